package placement_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/placement"
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
	}{
		"EveryCluster": {
			reason: "Without a selector every ready cluster without taints is chosen, sorted by name.",
			want:   []string{"eu-1", "eu-2", "us-1"},
		},
		"Selector": {
			reason: "The cluster must have every label of the selector.",
			spec:   corev1alpha1.PropagationPolicySpec{ClusterSelector: map[string]string{"region": "us"}},
			want:   []string{"us-1"},
		},
		"SelectorAndAffinity": {
			reason: "Selector and affinity must both match.",
			spec: corev1alpha1.PropagationPolicySpec{
				ClusterSelector: map[string]string{"region": "us"},
				ClusterAffinity: []corev1alpha1.ClusterSelectorTerm{{MatchExpressions: []corev1alpha1.ClusterSelectorRequirement{
					{Key: "region", Operator: corev1alpha1.ClusterSelectorOpIn, Values: []string{"eu"}},
				}}},
			},
		},
		"PlacementList": {
			reason: "The list narrows the choice; a name without a cluster is ignored.",
			spec: corev1alpha1.PropagationPolicySpec{Placements: []corev1alpha1.DesiredPlacement{
				{Cluster: "us-1"}, {Cluster: "nowhere"},
			}},
			want: []string{"us-1"},
		},
		"NotReadyKeepsWhatItHas": {
			reason:   "A cluster that is not ready gets no new objects, and keeps its objects.",
			previous: []string{"eu-3"},
			want:     []string{"eu-1", "eu-2", "eu-3", "us-1"},
		},
		"NoScheduleKeepsWhatItHas": {
			reason:   "NoSchedule keeps only new objects away.",
			previous: []string{"eu-gpu"},
			want:     []string{"eu-1", "eu-2", "eu-gpu", "us-1"},
		},
		"NoExecuteEvicts": {
			reason:   "NoExecute evicts existing copies.",
			previous: []string{"eu-broken"},
			want:     []string{"eu-1", "eu-2", "us-1"},
		},
		"Tolerated": {
			reason: "A tolerated taint has no effect.",
			spec: corev1alpha1.PropagationPolicySpec{Tolerations: []corev1.Toleration{
				{Key: "gpu", Value: "a100"}, {Key: "broken", Operator: corev1.TolerationOpExists},
			}},
			want: []string{"eu-1", "eu-2", "eu-broken", "eu-gpu", "us-1"},
		},
		"WrongTolerationValue": {
			reason: "A toleration with another value does not match.",
			spec:   corev1alpha1.PropagationPolicySpec{Tolerations: []corev1.Toleration{{Key: "gpu", Value: "h100"}}},
			want:   []string{"eu-1", "eu-2", "us-1"},
		},
		"MaxClustersByName": {
			reason: "For a new object, names decide.",
			spec:   corev1alpha1.PropagationPolicySpec{MaxClusters: &max1},
			want:   []string{"eu-1"},
		},
		"MaxClustersSticky": {
			reason:   "Existing copies stay, regardless of the names.",
			spec:     corev1alpha1.PropagationPolicySpec{MaxClusters: &max1},
			previous: []string{"us-1"},
			want:     []string{"us-1"},
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
			d, err := p.Place(&placement.Request{Clusters: fleet, Previous: on(tc.previous...)})
			if err != nil {
				t.Fatalf("%s\nPlace(): %v", tc.reason, err)
			}
			if diff := cmp.Diff(tc.want, names(d.Targets)); diff != "" {
				t.Errorf("%s\nPlace(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestCompileReportsEveryMistake(t *testing.T) {
	strategy := corev1alpha1.ReplicasStrategy("Pile")
	p, errs := placement.CompileCluster(&corev1alpha1.ClusterPropagationPolicy{Spec: corev1alpha1.PropagationPolicySpec{
		SchedulingMode:   "Both",
		ReplicasStrategy: &strategy,
		MaxClusters:      new(int64(-1)),
		ClusterSelector:  map[string]string{"not a key": "x"},
		Tolerations: []corev1.Toleration{
			{Operator: corev1.TolerationOpEqual},
			{Key: "gpu", Operator: corev1.TolerationOpExists, Value: "a100"},
			{Key: "not a key", Operator: "In", Effect: "Never"},
			{Key: "gpu", Value: "not a value"},
			{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute},
		},
		Placements: []corev1alpha1.DesiredPlacement{
			{},
			{Cluster: "eu-1", Preferences: corev1alpha1.Preferences{MinReplicas: 3, MaxReplicas: new(int64(2))}},
			{Cluster: "eu-1", Preferences: corev1alpha1.Preferences{MinReplicas: -1, MaxReplicas: new(int64(-2))}},
			{Cluster: "eu-2", Preferences: corev1alpha1.Preferences{Weight: new(int64(1 << 31)), Priority: new(int64(-1))}},
		},
	}})
	var fields []string
	for _, e := range errs {
		fields = append(fields, e.Field)
	}
	want := []string{
		"spec.clusterSelector[not a key]", "spec.schedulingMode", "spec.replicasStrategy", "spec.maxClusters",
		"spec.tolerations[0].operator", "spec.tolerations[1].value", "spec.tolerations[2].key", "spec.tolerations[2].operator",
		"spec.tolerations[2].effect", "spec.tolerations[3].value",
		"spec.placement[0].cluster", "spec.placement[1].preferences.minReplicas", "spec.placement[2].cluster",
		"spec.placement[2].preferences.minReplicas", "spec.placement[2].preferences.maxReplicas",
		"spec.placement[3].preferences.weight", "spec.placement[3].preferences.priority",
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("CompileCluster() fields: -want, +got:\n%s", diff)
	}
	if got, err := p.Place(&placement.Request{Clusters: []placement.Cluster{cluster("eu-1", "eu", true)}}); err == nil {
		t.Errorf("Place() with an invalid policy: want an error, got %v", got)
	}
}

func TestLimits(t *testing.T) {
	spec := func(placements, tolerations, terms int) corev1alpha1.PropagationPolicySpec {
		s := corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDuplicate}
		for i := range placements {
			s.Placements = append(s.Placements, corev1alpha1.DesiredPlacement{Cluster: fmt.Sprint("c", i)})
		}
		for range tolerations {
			s.Tolerations = append(s.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
		}
		s.ClusterAffinity = make([]corev1alpha1.ClusterSelectorTerm, terms)
		return s
	}
	for name, tc := range map[string]struct {
		reason string
		spec   corev1alpha1.PropagationPolicySpec
		want   string // The mistake; empty for a valid policy.
	}{
		"All":               {"The maximum numbers are allowed.", spec(placement.MaxPlacements, placement.MaxTolerations, match.MaxTerms), ""},
		"OnePlacementMore":  {"Each entry takes time for each object that names the policy.", spec(placement.MaxPlacements+1, 0, 0), "spec.placement: Too many: 10001: must have at most 10000 items"},
		"OneTolerationMore": {"Tolerations take time, too.", spec(0, placement.MaxTolerations+1, 0), "spec.tolerations: Too many: 101: must have at most 100 items"},
		"OneTermMore":       {"Terms take time for each cluster.", spec(0, 0, match.MaxTerms+1), "spec.clusterAffinity: Too many: 101: must have at most 100 items"},
	} {
		t.Run(name, func(t *testing.T) {
			p, errs := placement.Compile(&corev1alpha1.PropagationPolicy{Spec: tc.spec})
			got := ""
			if len(errs) > 0 {
				got = errs[0].Error()
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || len(errs) > 1 {
				t.Errorf("%s\nCompile(): %d mistakes: -want, +got:\n%s", tc.reason, len(errs), diff)
			}
			if _, err := p.Place(&placement.Request{}); (err != nil) != (tc.want != "") {
				t.Errorf("%s\nPlace(): %v", tc.reason, err)
			}
		})
	}
}

func TestCompileRefusesWeightsThatAreAllZero(t *testing.T) {
	spec := corev1alpha1.PropagationPolicySpec{
		SchedulingMode: corev1alpha1.SchedulingModeDivide,
		Placements:     []corev1alpha1.DesiredPlacement{{Cluster: "eu-1", Preferences: corev1alpha1.Preferences{Weight: new(int64(0))}}, {Cluster: "eu-2"}},
	}
	_, errs := placement.Compile(&corev1alpha1.PropagationPolicy{Spec: spec})
	want := "spec.placement: Invalid value: all weights are 0, so no cluster gets replicas: leave them out for equal shares"
	if diff := cmp.Diff(want, errs.ToAggregate().Error()); diff != "" {
		t.Errorf("Compile(): -want, +got:\n%s", diff)
	}
	spec.ReplicasStrategy = new(corev1alpha1.ReplicasStrategyBinpack)
	if _, errs := placement.Compile(&corev1alpha1.PropagationPolicy{Spec: spec}); len(errs) > 0 {
		t.Errorf("Compile() with Binpack, which ignores weights: %v", errs.ToAggregate())
	}
}

func TestInertFieldsAreNamed(t *testing.T) {
	preferences := []corev1alpha1.DesiredPlacement{
		{Cluster: "a", Preferences: corev1alpha1.Preferences{Weight: new(int64(2))}},
		{Cluster: "b", Preferences: corev1alpha1.Preferences{Priority: new(int64(2))}},
	}
	cases := map[string]struct {
		reason string
		spec   corev1alpha1.PropagationPolicySpec
		want   []string
	}{
		"Duplicate": {
			reason: "Unsupported fields, and fields for Divide, have no effect.",
			spec: corev1alpha1.PropagationPolicySpec{
				SchedulingMode:    corev1alpha1.SchedulingModeDuplicate,
				ReplicasStrategy:  new(corev1alpha1.ReplicasStrategySpread),
				SchedulingProfile: "gold",
				AutoMigration:     &corev1alpha1.AutoMigration{},
				ReschedulePolicy: &corev1alpha1.ReschedulePolicy{
					DisableRescheduling: true,
					Trigger:             &corev1alpha1.RescheduleTrigger{ClusterJoined: true, ClusterAPIResourcesChanged: true},
				},
				Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists, TolerationSeconds: new(int64(3))}},
				Placements:  preferences[:1],
			},
			want: []string{
				"spec.schedulingProfile has no effect",
				"spec.autoMigration has no effect",
				"spec.reschedulePolicy.rescheduleWhen.clusterAPIResourcesChanged has no effect",
				"spec.tolerations[0].tolerationSeconds has no effect: a taint is tolerated permanently",
				"spec.replicasStrategy has no effect with schedulingMode Duplicate",
				"spec.placement[0].preferences has no effect with schedulingMode Duplicate",
			},
		},
		"Spread": {
			reason: "Priorities have an effect only with Binpack.",
			spec:   corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDivide, Placements: preferences},
			want:   []string{"spec.placement[1].preferences.priority has no effect with replicasStrategy Spread"},
		},
		"Binpack": {
			reason: "Weights have an effect only with Spread.",
			spec: corev1alpha1.PropagationPolicySpec{
				SchedulingMode: corev1alpha1.SchedulingModeDivide, Placements: preferences, ReplicasStrategy: new(corev1alpha1.ReplicasStrategyBinpack),
			},
			want: []string{"spec.placement[0].preferences.weight has no effect with replicasStrategy Binpack"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, errs := placement.Compile(&corev1alpha1.PropagationPolicy{Spec: tc.spec})
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			if diff := cmp.Diff(tc.want, p.Inert); diff != "" {
				t.Errorf("%s\nInert: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// on returns targets without replicas.
func on(clusters ...string) []placement.Target {
	var targets []placement.Target
	for _, name := range clusters {
		targets = append(targets, placement.Target{Cluster: name})
	}
	return targets
}

func names(targets []placement.Target) []string {
	var all []string
	for _, t := range targets {
		all = append(all, t.Cluster)
	}
	return all
}

func cluster(name, region string, ready bool, taints ...corev1.Taint) placement.Cluster {
	return placement.Cluster{
		Cluster: match.Cluster{Name: name, Labels: map[string]string{"region": region}},
		Taints:  taints, Ready: ready,
	}
}
