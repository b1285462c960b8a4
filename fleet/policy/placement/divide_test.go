package placement_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/placement"
)

func TestDivide(t *testing.T) {
	drain := corev1.Taint{Key: "drain", Effect: corev1.TaintEffectNoSchedule}
	weights := func(a, b, c int64) []corev1alpha1.DesiredPlacement {
		return []corev1alpha1.DesiredPlacement{weighted("a", a), weighted("b", b), weighted("c", c)}
	}
	moves := &corev1alpha1.ReschedulePolicy{ReplicaRescheduling: &corev1alpha1.ReplicaRescheduling{}}
	cases := map[string]struct {
		reason   string
		spec     corev1alpha1.PropagationPolicySpec
		clusters string // NAME, with ! if it is not ready, with * if it has a taint.
		previous string
		replicas int64
		want     string
	}{
		"EqualShares": {
			reason:   "Without weights the shares are equal; names decide about the remainder.",
			replicas: 8,
			want:     "a=3 b=3 c=2",
		},
		"Weights": {
			reason:   "The largest remainders are rounded up.",
			spec:     corev1alpha1.PropagationPolicySpec{Placements: weights(5, 3, 1)},
			replicas: 10, // Quotas: 5.56, 3.33, 1.11.
			want:     "a=6 b=3 c=1",
		},
		"WithoutWeight": {
			reason: "If one cluster has a weight, clusters without a weight get no replicas.",
			spec: corev1alpha1.PropagationPolicySpec{Placements: []corev1alpha1.DesiredPlacement{
				weighted("a", 1), {Cluster: "b"}, {Cluster: "c", Preferences: corev1alpha1.Preferences{MinReplicas: 2}},
			}},
			replicas: 10,
			want:     "a=8 c=2",
		},
		"Minimum": {
			reason: "A minimum is a bound of the share, not an addition.",
			spec: corev1alpha1.PropagationPolicySpec{Placements: []corev1alpha1.DesiredPlacement{
				bounded("a", 4, -1), bounded("b", 0, -1), bounded("c", 0, -1),
			}},
			replicas: 9,
			want:     "a=4 b=3 c=2",
		},
		"Maximum": {
			reason: "Replicas beyond a maximum go to the other clusters by their weights.",
			spec: corev1alpha1.PropagationPolicySpec{Placements: []corev1alpha1.DesiredPlacement{
				bounded("a", 0, 1), bounded("b", 0, -1), bounded("c", 0, -1),
			}},
			replicas: 9,
			want:     "a=1 b=4 c=4",
		},
		"NoRoom": {
			reason: "Bounds are kept, with a warning about unplaced replicas.",
			spec: corev1alpha1.PropagationPolicySpec{Placements: []corev1alpha1.DesiredPlacement{
				bounded("a", 0, 1), bounded("b", 0, 2),
			}},
			replicas: 9,
			want:     "a=1 b=2; only 3 of 9 replicas are placed: the clusters that fit have no room for more",
		},
		"MinimumsTooGreat": {
			reason: "With too few replicas, the first cluster gets its full minimum.",
			spec: corev1alpha1.PropagationPolicySpec{Placements: []corev1alpha1.DesiredPlacement{
				bounded("a", 3, -1), bounded("b", 3, -1), bounded("c", 3, -1),
			}},
			replicas: 5,
			want:     "a=3 b=2; minReplicas add up to more than the 5 replicas of the object",
		},
		"FewerThanClusters": {
			reason:   "A cluster without a replica is no target.",
			replicas: 2,
			want:     "a=1 b=1",
		},
		"None": {
			reason:   "With 0 replicas, the object stays on its clusters.",
			previous: "b=2",
			replicas: 0,
			want:     "b=0",
		},
		"NoneAnew": {
			reason:   "With 0 replicas, a new object is placed on all clusters.",
			replicas: 0,
			want:     "a=0 b=0 c=0",
		},
		"ScaleUp": {
			reason:   "Only the new replicas are placed, towards equal shares.",
			previous: "a=5 b=1",
			replicas: 9,
			want:     "a=5 b=2 c=2; avoidDisruption keeps replicas where they are: in a new division, a would have 3 instead of 5",
		},
		"ScaleDown": {
			reason:   "Only the excess replicas are removed, from the largest shares.",
			previous: "a=5 b=1 c=1",
			replicas: 5,
			want:     "a=3 b=1 c=1",
		},
		"NothingMoves": {
			reason:   "No replicas move to a cluster that joins; a warning says that it waits.",
			previous: "a=2 b=2",
			replicas: 4,
			want:     "a=2 b=2; waiting c for avoidDisruption",
		},
		"Moves": {
			reason:   "Replicas move to a cluster that joins if the policy allows it.",
			spec:     corev1alpha1.PropagationPolicySpec{ReschedulePolicy: moves},
			previous: "a=2 b=2",
			replicas: 4,
			want:     "a=2 b=1 c=1",
		},
		"WeightTaken": {
			reason:   "A cluster that has lost its weight loses replicas first, and no more than necessary.",
			spec:     corev1alpha1.PropagationPolicySpec{Placements: weights(0, 1, 1)},
			previous: "a=5 b=2 c=2",
			replicas: 7,
			want: "a=3 b=2 c=2; avoidDisruption keeps replicas where they are: in a new division, " +
				"a would have 0 instead of 3, b would have 4 instead of 2",
		},
		"ClusterGone": {
			reason:   "The replicas of a cluster that is gone are placed again; the others stay.",
			clusters: "a b",
			previous: "a=2 b=2 c=2",
			replicas: 6,
			want:     "a=3 b=3",
		},
		"NoSchedule": {
			reason:   "A tainted cluster gets no additional replicas.",
			clusters: "a* b c",
			previous: "a=2 b=2 c=2",
			replicas: 12,
			want:     "a=2 b=5 c=5",
		},
		"NotReady": {
			reason:   "A cluster that is not ready gets no additional replicas, and keeps its own.",
			clusters: "a b! c!",
			previous: "a=1 b=1",
			replicas: 5,
			want:     "a=4 b=1",
		},
		"MaxClusters": {
			reason:   "Clusters with replicas come first, then the greatest weights.",
			spec:     corev1alpha1.PropagationPolicySpec{Placements: weights(1, 2, 3), MaxClusters: new(int64(2))},
			previous: "a=1",
			replicas: 8,
			want:     "a=2 c=6",
		},
		"Duplicated": {
			reason:   "An object that was not divided before is divided like a new one.",
			previous: "a b c",
			replicas: 3,
			want:     "a=1 b=1 c=1",
		},
		"Binpack": {
			reason: "The cluster with the greatest priority is filled first, then names decide.",
			spec: corev1alpha1.PropagationPolicySpec{
				ReplicasStrategy: new(corev1alpha1.ReplicasStrategyBinpack),
				Placements: []corev1alpha1.DesiredPlacement{
					bounded("a", 0, 3), bounded("b", 0, 3),
					{Cluster: "c", Preferences: corev1alpha1.Preferences{MaxReplicas: new(int64(4)), Priority: new(int64(1))}},
				},
			},
			replicas: 6,
			want:     "a=2 c=4",
		},
		"BinpackMinimum": {
			reason: "Minimums are met before priorities count.",
			spec: corev1alpha1.PropagationPolicySpec{
				ReplicasStrategy: new(corev1alpha1.ReplicasStrategyBinpack),
				Placements:       []corev1alpha1.DesiredPlacement{bounded("a", 0, -1), bounded("b", 1, -1)},
			},
			replicas: 6,
			want:     "a=5 b=1",
		},
		"BinpackScaleDown": {
			reason:   "The cluster with the lowest priority loses replicas first.",
			spec:     corev1alpha1.PropagationPolicySpec{ReplicasStrategy: new(corev1alpha1.ReplicasStrategyBinpack)},
			previous: "a=2 b=2 c=2",
			replicas: 3,
			want:     "a=2 b=1",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.spec.SchedulingMode = corev1alpha1.SchedulingModeDivide
			p, errs := placement.Compile(&corev1alpha1.PropagationPolicy{Spec: tc.spec})
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
			if tc.clusters == "" {
				tc.clusters = "a b c"
			}
			request := &placement.Request{Previous: parseTargets(t, tc.previous), Replicas: &tc.replicas}
			for name := range strings.FieldsSeq(tc.clusters) {
				c := cluster(strings.TrimRight(name, "!*"), "eu", !strings.HasSuffix(name, "!"))
				if strings.HasSuffix(name, "*") {
					c.Taints = []corev1.Taint{drain}
				}
				request.Clusters = append(request.Clusters, c)
			}
			d, err := p.Place(request)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, textOf(&d)); diff != "" {
				t.Errorf("%s\nPlace(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestReschedule(t *testing.T) {
	evict := corev1.Taint{Key: "broken", Effect: corev1.TaintEffectNoExecute}
	eu := map[string]string{"region": "eu"}
	fleet := []placement.Cluster{cluster("a", "eu", true), cluster("b", "eu", true)}
	joined := slices.Concat(fleet, []placement.Cluster{cluster("c", "eu", true)})
	moved := []placement.Cluster{cluster("a", "us", true), fleet[1]}
	broken := []placement.Cluster{cluster("a", "eu", true, evict), fleet[1]}
	trigger := func(t corev1alpha1.RescheduleTrigger) *corev1alpha1.ReschedulePolicy {
		return &corev1alpha1.ReschedulePolicy{Trigger: &t}
	}
	type input struct {
		selector map[string]string
		clusters []placement.Cluster
		replicas int64
		frozen   bool
	}
	cases := map[string]struct {
		reason     string
		mode       corev1alpha1.SchedulingMode
		reschedule *corev1alpha1.ReschedulePolicy
		first      input
		then       input
		want       string
	}{
		"Absent": {
			reason: "Without a reschedulePolicy, every change of the placement counts.",
			first:  input{clusters: fleet},
			then:   input{clusters: joined},
			want:   "a b c",
		},
		"NotJoined": {
			reason:     "By default a cluster that joins does not count; a warning says that it waits.",
			reschedule: &corev1alpha1.ReschedulePolicy{},
			first:      input{clusters: fleet},
			then:       input{clusters: joined},
			want:       "a b; waiting c for spec.reschedulePolicy",
		},
		"Joined": {
			reason:     "A cluster that joins counts if the policy says so.",
			reschedule: trigger(corev1alpha1.RescheduleTrigger{ClusterJoined: true}),
			first:      input{clusters: fleet},
			then:       input{clusters: joined},
			want:       "a b c",
		},
		"PolicyChanged": {
			reason:     "By default a changed policy counts.",
			reschedule: &corev1alpha1.ReschedulePolicy{},
			first:      input{clusters: moved},
			then:       input{selector: eu, clusters: moved},
			want:       "b",
		},
		"PolicyChangedInVain": {
			reason:     "A changed policy does not count if the policy says so; a warning reports the difference.",
			reschedule: trigger(corev1alpha1.RescheduleTrigger{}),
			first:      input{clusters: moved},
			then:       input{selector: eu, clusters: moved},
			want:       "a b; stays on a, which a new decision would not choose",
		},
		"LabelsChangedInVain": {
			reason:     "By default labels of clusters do not count.",
			reschedule: &corev1alpha1.ReschedulePolicy{},
			first:      input{selector: eu, clusters: fleet},
			then:       input{selector: eu, clusters: moved},
			want:       "a b; stays on a, which a new decision would not choose",
		},
		"LabelsChanged": {
			reason:     "Labels of clusters count if the policy says so.",
			reschedule: trigger(corev1alpha1.RescheduleTrigger{ClusterLabelsChanged: true}),
			first:      input{selector: eu, clusters: fleet},
			then:       input{selector: eu, clusters: moved},
			want:       "b",
		},
		"ClusterGone": {
			reason:     "A placement with a cluster that is gone is not kept.",
			reschedule: &corev1alpha1.ReschedulePolicy{},
			first:      input{clusters: fleet},
			then:       input{clusters: joined[1:]},
			want:       "b c",
		},
		"NoExecute": {
			reason:     "A placement with a cluster whose taint evicts is not kept.",
			reschedule: &corev1alpha1.ReschedulePolicy{},
			first:      input{clusters: fleet},
			then:       input{clusters: broken},
			want:       "b",
		},
		"NoClusterBefore": {
			reason:     "An empty placement is not kept.",
			reschedule: &corev1alpha1.ReschedulePolicy{},
			then:       input{clusters: fleet},
			want:       "a b",
		},
		"Scaled": {
			reason:     "A change of the replicas always counts.",
			mode:       corev1alpha1.SchedulingModeDivide,
			reschedule: &corev1alpha1.ReschedulePolicy{},
			first:      input{clusters: fleet, replicas: 2},
			then:       input{clusters: joined, replicas: 4},
			want:       "a=2 b=1 c=1",
		},
		"Disabled": {
			reason:     "With disableRescheduling, only clusters that are gone count.",
			reschedule: &corev1alpha1.ReschedulePolicy{DisableRescheduling: true},
			first:      input{clusters: broken[:1:1]},
			then:       input{clusters: joined},
			want:       "a b c",
		},
		"DisabledEvicted": {
			reason:     "With disableRescheduling, not even a taint evicts.",
			reschedule: &corev1alpha1.ReschedulePolicy{DisableRescheduling: true},
			first:      input{clusters: fleet},
			then:       input{selector: map[string]string{"region": "us"}, clusters: broken},
			want:       "a b; stays on a, b, which a new decision would not choose",
		},
		"DisabledGone": {
			reason:     "With disableRescheduling, a cluster that is gone is not replaced.",
			reschedule: &corev1alpha1.ReschedulePolicy{DisableRescheduling: true},
			first:      input{clusters: fleet},
			then:       input{clusters: joined[1:]},
			want:       "b; waiting c for spec.reschedulePolicy.disableRescheduling",
		},
		"DisabledScaled": {
			reason:     "Replicas are divided among the current clusters.",
			mode:       corev1alpha1.SchedulingModeDivide,
			reschedule: &corev1alpha1.ReschedulePolicy{DisableRescheduling: true},
			first:      input{clusters: fleet, replicas: 2},
			then:       input{clusters: joined, replicas: 7},
			want:       "a=4 b=3; waiting c for avoidDisruption",
		},
		"DisabledScaledDown": {
			reason:     "A cluster whose share becomes 0 stays a target.",
			mode:       corev1alpha1.SchedulingModeDivide,
			reschedule: &corev1alpha1.ReschedulePolicy{DisableRescheduling: true},
			first:      input{clusters: fleet, replicas: 2},
			then:       input{clusters: fleet, replicas: 1},
			want:       "a=1 b=0; stays on b, which a new decision would not choose",
		},
		"Frozen": {
			reason: "A frozen object joins and leaves no cluster, whatever changes.",
			first:  input{clusters: fleet},
			then:   input{selector: map[string]string{"region": "us"}, clusters: slices.Concat(broken, []placement.Cluster{cluster("us", "us", true)}), frozen: true},
			want:   "a b; waiting us for annotation kubeadmiral.io/no-scheduling; stays on a, b, which a new decision would not choose",
		},
		"FrozenScaled": {
			reason: "The shares of a frozen object do not change.",
			mode:   corev1alpha1.SchedulingModeDivide,
			first:  input{clusters: fleet, replicas: 2},
			then:   input{clusters: joined, replicas: 9, frozen: true},
			want:   "a=1 b=1; waiting c for annotation kubeadmiral.io/no-scheduling; the shares add up to 2, and the object has 9 replicas",
		},
		"FrozenAnew": {
			reason: "A new frozen object is placed on no cluster.",
			then:   input{clusters: fleet, frozen: true},
			want:   "; waiting a b for annotation kubeadmiral.io/no-scheduling",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.mode == "" {
				tc.mode = corev1alpha1.SchedulingModeDuplicate
			}
			var d placement.Decision
			for _, in := range []input{tc.first, tc.then} {
				p, errs := placement.Compile(&corev1alpha1.PropagationPolicy{Spec: corev1alpha1.PropagationPolicySpec{
					SchedulingMode: tc.mode, ClusterSelector: in.selector, ReschedulePolicy: tc.reschedule,
				}})
				if len(errs) > 0 {
					t.Fatal(errs.ToAggregate())
				}
				var err error
				d, err = p.Place(&placement.Request{
					Clusters: in.clusters, Previous: d.Targets, Replicas: &in.replicas, Hash: d.Hash, Frozen: in.frozen,
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, textOf(&d)); diff != "" {
				t.Errorf("%s\nPlace(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestDivideWithoutReplicas(t *testing.T) {
	p, errs := placement.Compile(&corev1alpha1.PropagationPolicy{Spec: corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDivide}})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	d, err := p.Place(&placement.Request{Clusters: []placement.Cluster{cluster("b", "eu", true), cluster("a", "eu", true)}})
	if err != nil {
		t.Fatal(err)
	}
	want := "a b; schedulingMode Divide: the object has no spec.replicas, so each cluster gets all of it"
	if diff := cmp.Diff(want, textOf(&d)); diff != "" {
		t.Errorf("Place(): -want, +got:\n%s", diff)
	}
}

func weighted(cluster string, weight int64) corev1alpha1.DesiredPlacement {
	return corev1alpha1.DesiredPlacement{Cluster: cluster, Preferences: corev1alpha1.Preferences{Weight: &weight}}
}

// bounded returns a cluster of the placement list; it has no maximum if most is negative.
func bounded(cluster string, least, most int64) corev1alpha1.DesiredPlacement {
	d := corev1alpha1.DesiredPlacement{Cluster: cluster, Preferences: corev1alpha1.Preferences{MinReplicas: least}}
	if most >= 0 {
		d.Preferences.MaxReplicas = &most
	}
	return d
}

// parseTargets parses NAME or NAME=REPLICAS.
func parseTargets(t *testing.T, text string) []placement.Target {
	t.Helper()
	var targets []placement.Target
	for item := range strings.FieldsSeq(text) {
		name, count, divided := strings.Cut(item, "=")
		target := placement.Target{Cluster: name}
		if divided {
			target.Replicas = new(int64)
			if _, err := fmt.Sscan(count, target.Replicas); err != nil {
				t.Fatal(err)
			}
		}
		targets = append(targets, target)
	}
	return targets
}

// textOf formats the targets, the waiting clusters and the warnings.
func textOf(d *placement.Decision) string {
	items := make([]string, len(d.Targets))
	for i, target := range d.Targets {
		items[i] = target.Cluster
		if target.Replicas != nil {
			items[i] += fmt.Sprintf("=%d", *target.Replicas)
		}
	}
	parts := []string{strings.Join(items, " ")}
	if len(d.Waiting) > 0 {
		parts = append(parts, "waiting "+strings.Join(d.Waiting, " ")+" for "+d.Kept)
	}
	return strings.Join(append(parts, d.Warnings...), "; ")
}
