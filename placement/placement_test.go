package placement_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/match"
	"refract.dev/placement"
)

func TestPlace(t *testing.T) {
	max1 := int64(1)
	gpu := corev1.Taint{Key: "gpu", Value: "a100", Effect: corev1.TaintEffectNoSchedule}
	evict := corev1.Taint{Key: "broken", Effect: corev1.TaintEffectNoExecute}
	fleet := []placement.Cluster{
		cluster("us-1", "us", true),
		cluster("eu-2", "eu", true),
		cluster("eu-1", "eu", true),
		cluster("eu-3", "eu", false),
		cluster("eu-gpu", "eu", true, gpu),
		cluster("eu-broken", "eu", true, evict),
	}
	cases := map[string]struct {
		reason   string
		spec     corev1alpha1.PropagationPolicySpec
		previous []string
		want     []string
		err      error
	}{
		"EveryCluster": {
			reason: "Without a selector every ready cluster without taints is chosen, sorted by name.",
			want:   []string{"eu-1", "eu-2", "us-1"},
		},
		"Selector": {
			reason: "Every label of the selector must be there.",
			spec:   corev1alpha1.PropagationPolicySpec{ClusterSelector: map[string]string{"region": "us"}},
			want:   []string{"us-1"},
		},
		"SelectorAndAffinity": {
			reason: "Selector and affinity must both hold.",
			spec: corev1alpha1.PropagationPolicySpec{
				ClusterSelector: map[string]string{"region": "us"},
				ClusterAffinity: []corev1alpha1.ClusterSelectorTerm{{MatchExpressions: []corev1alpha1.ClusterSelectorRequirement{
					{Key: "region", Operator: corev1alpha1.ClusterSelectorOpIn, Values: []string{"eu"}},
				}}},
			},
		},
		"PlacementList": {
			reason: "The list narrows the choice; a name that no cluster has means nothing.",
			spec: corev1alpha1.PropagationPolicySpec{Placements: []corev1alpha1.DesiredPlacement{
				{Cluster: "us-1"}, {Cluster: "nowhere"},
			}},
			want: []string{"us-1"},
		},
		"NotReadyKeepsWhatItHas": {
			reason:   "A cluster that is not ready gets nothing new and loses nothing.",
			previous: []string{"eu-3"},
			want:     []string{"eu-1", "eu-2", "eu-3", "us-1"},
		},
		"NoScheduleKeepsWhatItHas": {
			reason:   "NoSchedule keeps only new objects away.",
			previous: []string{"eu-gpu"},
			want:     []string{"eu-1", "eu-2", "eu-gpu", "us-1"},
		},
		"NoExecuteEvicts": {
			reason:   "NoExecute takes away what is there.",
			previous: []string{"eu-broken"},
			want:     []string{"eu-1", "eu-2", "us-1"},
		},
		"Tolerated": {
			reason: "A tolerated taint is no obstacle.",
			spec: corev1alpha1.PropagationPolicySpec{Tolerations: []corev1.Toleration{
				{Key: "gpu", Value: "a100"}, {Key: "broken", Operator: corev1.TolerationOpExists},
			}},
			want: []string{"eu-1", "eu-2", "eu-broken", "eu-gpu", "us-1"},
		},
		"WrongTolerationValue": {
			reason: "A toleration with another value does not tolerate.",
			spec:   corev1alpha1.PropagationPolicySpec{Tolerations: []corev1.Toleration{{Key: "gpu", Value: "h100"}}},
			want:   []string{"eu-1", "eu-2", "us-1"},
		},
		"MaxClustersByName": {
			reason: "Names decide when nothing is placed yet.",
			spec:   corev1alpha1.PropagationPolicySpec{MaxClusters: &max1},
			want:   []string{"eu-1"},
		},
		"MaxClustersSticky": {
			reason:   "What is placed stays, whatever its name.",
			spec:     corev1alpha1.PropagationPolicySpec{MaxClusters: &max1},
			previous: []string{"us-1"},
			want:     []string{"us-1"},
		},
		"Divide": {
			reason:   "Giving every cluster all replicas would be worse than doing nothing.",
			spec:     corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDivide},
			previous: []string{"eu-1"},
			err:      placement.ErrUnsupported,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.spec.SchedulingMode == "" {
				tc.spec.SchedulingMode = corev1alpha1.SchedulingModeDuplicate
			}
			p, errs := placement.Compile(&corev1alpha1.PropagationPolicy{Spec: tc.spec})
			if len(errs) > 0 {
				t.Fatalf("%s\nCompile(): %v", tc.reason, errs.ToAggregate())
			}
			got, err := p.Place(fleet, tc.previous)
			if !errors.Is(err, tc.err) {
				t.Fatalf("%s\nPlace() error: want %v, got %v", tc.reason, tc.err, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nPlace(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCompileReportsEveryMistake(t *testing.T) {
	negative := int64(-1)
	strategy := corev1alpha1.ReplicasStrategy("Pile")
	p, errs := placement.CompileCluster(&corev1alpha1.ClusterPropagationPolicy{Spec: corev1alpha1.PropagationPolicySpec{
		SchedulingMode:   "Both",
		ReplicasStrategy: &strategy,
		MaxClusters:      &negative,
		ClusterSelector:  map[string]string{"not a key": "x"},
		Placements:       []corev1alpha1.DesiredPlacement{{}},
	}})
	var fields []string
	for _, e := range errs {
		fields = append(fields, e.Field)
	}
	want := []string{
		"spec.clusterSelector[not a key]", "spec.schedulingMode", "spec.replicasStrategy", "spec.maxClusters", "spec.placement[0].cluster",
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("CompileCluster() fields: -want, +got:\n%s", diff)
	}
	if got, err := p.Place([]placement.Cluster{cluster("eu-1", "eu", true)}, nil); err == nil {
		t.Errorf("Place() with an invalid policy: want an error, got %v", got)
	}
}

func TestInertFieldsAreNamed(t *testing.T) {
	weight := int64(2)
	p, errs := placement.Compile(&corev1alpha1.PropagationPolicy{Spec: corev1alpha1.PropagationPolicySpec{
		SchedulingMode:    corev1alpha1.SchedulingModeDuplicate,
		SchedulingProfile: "gold",
		AutoMigration:     &corev1alpha1.AutoMigration{},
		Placements:        []corev1alpha1.DesiredPlacement{{Cluster: "a", Preferences: corev1alpha1.Preferences{Weight: &weight}}},
	}})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	want := []string{
		"spec.schedulingProfile is accepted and not acted on",
		"spec.autoMigration is accepted and not acted on",
		"spec.placement[0].preferences has no meaning with schedulingMode Duplicate",
	}
	if diff := cmp.Diff(want, p.Inert); diff != "" {
		t.Errorf("Inert: -want, +got:\n%s", diff)
	}
}

func cluster(name, region string, ready bool, taints ...corev1.Taint) placement.Cluster {
	return placement.Cluster{
		Cluster: match.Cluster{Name: name, Labels: map[string]string{"region": region}},
		Taints:  taints, Ready: ready,
	}
}
