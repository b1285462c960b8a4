package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/placement"
)

func TestWhy(t *testing.T) {
	max1 := int64(1)
	gpu := corev1.Taint{Key: "gpu", Value: "a100", Effect: corev1.TaintEffectNoSchedule}
	evict := corev1.Taint{Key: "broken", Effect: corev1.TaintEffectNoExecute}
	soft := corev1.Taint{Key: "full", Effect: corev1.TaintEffectPreferNoSchedule}
	cases := map[string]struct {
		reason   string
		spec     corev1alpha1.PropagationPolicySpec
		cluster  placement.Cluster
		placed   bool
		replicas *int64
		chosen   []string
		waiting  []string
		want     string
	}{
		"Chosen": {
			reason:  "The object is placed there, even on a cluster that is not ready if it was there before.",
			cluster: cluster("eu-1", "eu", false),
			placed:  true,
			chosen:  []string{"eu-1"},
		},
		"NotListed": {
			reason:  "The policy lists other clusters.",
			spec:    corev1alpha1.PropagationPolicySpec{Placements: []corev1alpha1.DesiredPlacement{{Cluster: "us-1"}}},
			cluster: cluster("eu-1", "eu", true),
			want:    "the policy's placement does not list it",
		},
		"Selector": {
			reason:  "The reason of the selector is returned.",
			spec:    corev1alpha1.PropagationPolicySpec{ClusterSelector: map[string]string{"region": "us"}},
			cluster: cluster("eu-1", "eu", false, gpu),
			want:    `label region is "eu", want "us"`,
		},
		"Taint": {
			reason:  "The first untolerated taint with a hard effect is named in the format of kubectl.",
			spec:    corev1alpha1.PropagationPolicySpec{Tolerations: []corev1.Toleration{{Key: "gpu", Value: "h100"}}},
			cluster: cluster("eu-1", "eu", true, soft, gpu),
			want:    "taint gpu=a100:NoSchedule is not tolerated",
		},
		"NotReady": {
			reason:  "Only the readiness of the cluster is missing.",
			cluster: cluster("eu-1", "eu", false, soft),
			want:    "it is not ready, so it gets no new objects",
		},
		"MaxClusters": {
			reason:  "Only maxClusters excludes the cluster.",
			spec:    corev1alpha1.PropagationPolicySpec{MaxClusters: &max1},
			cluster: cluster("eu-2", "eu", true),
			chosen:  []string{"eu-1"},
			want:    "maxClusters (1) is reached without it",
		},
		"NotReadyWithCopy": {
			reason:  "A cluster may keep its copy even if it is not ready, so the readiness is not the reason.",
			spec:    corev1alpha1.PropagationPolicySpec{MaxClusters: &max1},
			cluster: cluster("us-1", "us", false),
			placed:  true,
			chosen:  []string{"eu-1"},
			want:    "maxClusters (1) is reached without it",
		},
		"NoScheduleWithCopy": {
			reason:  "NoSchedule keeps only new objects away, so the taint is not the reason for the loss of a copy.",
			spec:    corev1alpha1.PropagationPolicySpec{MaxClusters: &max1},
			cluster: cluster("us-1", "us", true, gpu),
			placed:  true,
			chosen:  []string{"eu-1"},
			want:    "maxClusters (1) is reached without it",
		},
		"NoExecuteWithCopy": {
			reason:  "NoExecute evicts the copy, and is named although another taint comes first.",
			cluster: cluster("us-1", "us", false, gpu, evict),
			placed:  true,
			want:    "taint broken:NoExecute is not tolerated",
		},
		"NoReplicaLeft": {
			reason:   "The object has fewer replicas than clusters.",
			spec:     corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDivide},
			cluster:  cluster("eu-2", "eu", true),
			replicas: new(int64(1)),
			chosen:   []string{"eu-1"},
			want:     "none of the 1 replica is left for it",
		},
		"NoWeight": {
			reason: "A cluster without weight gets no more than its minimum.",
			spec: corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDivide, Placements: []corev1alpha1.DesiredPlacement{
				{Cluster: "eu-1", Preferences: corev1alpha1.Preferences{Weight: new(int64(1))}}, {Cluster: "eu-2"},
			}},
			cluster:  cluster("eu-2", "eu", true),
			replicas: new(int64(9)),
			chosen:   []string{"eu-1"},
			want:     "its weight is 0",
		},
		"NoRoom": {
			reason: "A maximum of 0 excludes a cluster.",
			spec: corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDivide, Placements: []corev1alpha1.DesiredPlacement{
				{Cluster: "eu-1"}, {Cluster: "eu-2", Preferences: corev1alpha1.Preferences{MaxReplicas: new(int64(0))}},
			}},
			cluster:  cluster("eu-2", "eu", true),
			replicas: new(int64(9)),
			chosen:   []string{"eu-1"},
			want:     "its maxReplicas is 0",
		},
		"Waiting": {
			reason:  "The kept placement is the reason, not the cluster.",
			cluster: cluster("eu-2", "eu", true),
			chosen:  []string{"eu-1"},
			waiting: []string{"eu-2"},
			want:    "a new decision would choose it, but spec.reschedulePolicy keeps the object where it is",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.spec.SchedulingMode == "" {
				tc.spec.SchedulingMode = corev1alpha1.SchedulingModeDuplicate
			}
			p, errs := placement.Compile(&corev1alpha1.PropagationPolicy{Spec: tc.spec})
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			request := &placement.Request{Clusters: []placement.Cluster{tc.cluster}, Replicas: tc.replicas}
			if tc.placed {
				request.Previous = on(tc.cluster.Name)
			}
			decision := &placement.Decision{Targets: on(tc.chosen...), Waiting: tc.waiting, Kept: "spec.reschedulePolicy"}
			if diff := cmp.Diff(tc.want, p.Why(&tc.cluster, request, decision)); diff != "" {
				t.Errorf("%s\nWhy(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestWhyLaw verifies with random fleets that Why returns a reason exactly for the clusters that are not chosen. The
// reason must be maxClusters exactly for the clusters that would be chosen without that limit.
func TestWhyLaw(t *testing.T) {
	for seed := range uint64(500) {
		r := rand.New(rand.NewPCG(seed, 0))
		spec := corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDuplicate}
		if r.IntN(2) == 0 {
			spec.ClusterSelector = map[string]string{"region": "eu"}
		}
		if r.IntN(2) == 0 {
			limit := int64(r.IntN(4))
			spec.MaxClusters = &limit
		}
		if r.IntN(3) == 0 {
			spec.Placements = []corev1alpha1.DesiredPlacement{{Cluster: "c1"}, {Cluster: "c2"}, {Cluster: "c3"}}
		}
		if r.IntN(3) == 0 {
			spec.Tolerations = []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}
		}
		var fleet []placement.Cluster
		var previous []string
		effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule}
		for i := range 1 + r.IntN(6) {
			c := cluster(fmt.Sprintf("c%d", i), []string{"eu", "us"}[r.IntN(2)], r.IntN(4) > 0)
			if r.IntN(3) == 0 {
				c.Taints = []corev1.Taint{{Key: []string{"gpu", "broken"}[r.IntN(2)], Effect: effects[r.IntN(3)]}}
			}
			if r.IntN(3) == 0 {
				previous = append(previous, c.Name)
			}
			fleet = append(fleet, c)
		}
		p, request, decision := placed(t, spec, fleet, previous)
		chosen := names(decision.Targets)
		spec.MaxClusters = nil
		_, _, free := placed(t, spec, fleet, previous)
		unbounded := names(free.Targets)
		for i := range fleet {
			name := fleet[i].Name
			why := p.Why(&fleet[i], request, decision)
			if slices.Contains(chosen, name) != (why == "") {
				t.Errorf("seed %d: chosen are %v, and of %s Why() says %q", seed, chosen, name, why)
			}
			crowded := slices.Contains(unbounded, name) && !slices.Contains(chosen, name)
			if strings.HasPrefix(why, "maxClusters") != crowded {
				t.Errorf("seed %d: without maxClusters %v are chosen, with it %v, and of %s Why() says %q", seed, unbounded, chosen, name, why)
			}
		}
	}
}

func placed(t *testing.T, spec corev1alpha1.PropagationPolicySpec, fleet []placement.Cluster, previous []string) (*placement.Policy, *placement.Request, *placement.Decision) {
	t.Helper()
	p, errs := placement.Compile(&corev1alpha1.PropagationPolicy{Spec: spec})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	request := &placement.Request{Clusters: fleet, Previous: on(previous...)}
	d, err := p.Place(request)
	if err != nil {
		t.Fatal(err)
	}
	if d.Held != nil {
		d = d.Held.Approved()
	}
	return p, request, &d
}
