package placement_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/placement"
)

// members returns n clusters that are ready: m-01 and so on. The first five are in region eu, the others in us.
func members(n int) []placement.Cluster {
	all := make([]placement.Cluster, n)
	for i := range all {
		region := "us"
		if i < 5 {
			region = "eu"
		}
		all[i] = cluster(fmt.Sprintf("m-%02d", i+1), region, true)
	}
	return all
}

// placedOn returns targets on the first n members. If divided is true, each has one replica.
func placedOn(n int, divided bool) []placement.Target {
	var targets []placement.Target
	for _, c := range members(n) {
		target := placement.Target{Cluster: c.Name}
		if one := int64(1); divided {
			target.Replicas = &one
		}
		targets = append(targets, target)
	}
	return targets
}

func listed(names ...string) (all []corev1alpha1.DesiredPlacement) {
	for _, name := range names {
		all = append(all, corev1alpha1.DesiredPlacement{Cluster: name})
	}
	return all
}

func TestHeld(t *testing.T) {
	region := func(name string) map[string]string { return map[string]string{"region": name} }
	five, two, few := int64(5), int64(2), int64(3)
	evicts := func(n int) []placement.Cluster {
		all := members(10)
		for i := range n {
			all[i].Taints = []corev1.Taint{{Key: "broken", Effect: corev1.TaintEffectNoExecute}}
		}
		return all
	}
	cases := map[string]struct {
		reason  string
		spec    corev1alpha1.PropagationPolicySpec
		request placement.Request
		want    string // The change that waits, as text.
		targets int
		narrow  bool // Wanted Decision.Narrowed.
	}{
		"First": {
			reason:  "The first placement of an object does not wait.",
			request: placement.Request{Clusters: members(30)},
			targets: 30,
		},
		"SelectorWithoutMatch": {
			reason:  "A typo in a selector would remove an object from all clusters.",
			spec:    corev1alpha1.PropagationPolicySpec{ClusterSelector: region("ue")},
			request: placement.Request{Clusters: members(30), Previous: placedOn(30, false)},
			want:    "would leave 30 of 30 clusters (m-01, m-02, m-03 and 27 more)",
			targets: 30,
		},
		"ManyLeave": {
			reason:  "More than 30 % and more than two clusters at once wait for approval.",
			spec:    corev1alpha1.PropagationPolicySpec{ClusterSelector: region("us")},
			request: placement.Request{Clusters: members(10), Previous: placedOn(10, false)},
			want:    "would leave 5 of 10 clusters (m-01, m-02, m-03 and 2 more)",
			targets: 10,
		},
		"FewLeave": {
			reason:  "A loss of 30 % does not wait.",
			spec:    corev1alpha1.PropagationPolicySpec{ClusterSelector: region("us")},
			request: placement.Request{Clusters: members(17), Previous: placedOn(17, false)},
			targets: 12, narrow: true,
		},
		"TwoLeave": {
			reason:  "A loss of two clusters does not wait, even if the object has no others.",
			spec:    corev1alpha1.PropagationPolicySpec{ClusterSelector: region("us")},
			request: placement.Request{Clusters: members(30), Previous: placedOn(2, false)},
			targets: 25, narrow: true,
		},
		"ClustersThatAreGone": {
			reason:  "A cluster that has left the fleet is no loss: users have removed it.",
			request: placement.Request{Clusters: members(30)[20:], Previous: placedOn(30, false)},
			targets: 10,
		},
		"ManyTaints": {
			reason:  "Taints on many clusters at once wait like other losses.",
			request: placement.Request{Clusters: evicts(4), Previous: placedOn(10, false)},
			want:    "would leave 4 of 10 clusters (m-01, m-02, m-03, m-04)",
			targets: 10,
		},
		"FewTaints": {
			reason:  "A few taints evict.",
			request: placement.Request{Clusters: evicts(3), Previous: placedOn(10, false)},
			targets: 7,
		},
		"EmptiedList": {
			reason:  "An empty list would send an object to all clusters.",
			request: placement.Request{Clusters: members(30), Previous: placedOn(1, false), Narrowed: true},
			want:    "would be added to 29 other clusters (m-02, m-03, m-04 and 26 more), as the policy no longer names or selects clusters",
			targets: 1, narrow: true,
		},
		"EmptiedWhileNotReady": {
			reason: "A cluster that is not ready counts, because it may be ready later.",
			request: placement.Request{
				Clusters: []placement.Cluster{cluster("m-01", "eu", true), cluster("m-02", "eu", false)}, Previous: placedOn(1, false), Narrowed: true,
			},
			want:    "would be added to 1 other cluster (m-02), as the policy no longer names or selects clusters",
			targets: 1, narrow: true,
		},
		"AlwaysAll": {
			reason:  "Clusters that join get an object whose policy always chose all clusters.",
			request: placement.Request{Clusters: members(30), Previous: placedOn(1, false)},
			targets: 30,
		},
		"WiderSelector": {
			reason:  "A selector that chooses more clusters does not wait, because it is explicit.",
			spec:    corev1alpha1.PropagationPolicySpec{ClusterSelector: region("us")},
			request: placement.Request{Clusters: members(30), Previous: placedOn(6, false)[5:], Narrowed: true},
			targets: 25, narrow: true,
		},
		"EmptiedAndFull": {
			reason:  "A full maxClusters does not matter, because another cluster could be chosen when one leaves.",
			spec:    corev1alpha1.PropagationPolicySpec{MaxClusters: &two},
			request: placement.Request{Clusters: members(4), Previous: placedOn(2, false), Narrowed: true},
			want:    "would be added to 2 other clusters (m-03, m-04), as the policy no longer names or selects clusters",
			targets: 2, narrow: true,
		},
		"Besides": {
			reason: "Clusters on which an object is with its leader, the object that it travels with, are neither a loss nor a gain.",
			spec:   corev1alpha1.PropagationPolicySpec{Placements: listed("m-01")},
			request: placement.Request{
				Clusters: members(10), Previous: placedOn(10, false),
				Besides: []string{"m-02", "m-03", "m-04", "m-05", "m-06", "m-07", "m-08", "m-09"},
			},
			targets: 1, narrow: true,
		},
		"Frozen": {
			reason:  "A frozen object leaves no clusters, so no change waits.",
			spec:    corev1alpha1.PropagationPolicySpec{ClusterSelector: region("ue")},
			request: placement.Request{Clusters: members(30), Previous: placedOn(30, false), Frozen: true},
			targets: 30, narrow: true,
		},
		"FrozenWhenEmptied": {
			reason:  "If the policy becomes empty while the object is frozen, the change waits afterwards.",
			request: placement.Request{Clusters: members(30), Previous: placedOn(2, false), Frozen: true, Narrowed: true},
			want:    "would be added to 28 other clusters (m-03, m-04, m-05 and 25 more), as the policy no longer names or selects clusters",
			targets: 2, narrow: true,
		},
		"Rescheduled": {
			reason: "While a change waits, the hash stays that of the previous decision.",
			spec: corev1alpha1.PropagationPolicySpec{
				ClusterSelector:  region("ue"),
				ReschedulePolicy: &corev1alpha1.ReschedulePolicy{Trigger: &corev1alpha1.RescheduleTrigger{PolicyContentChanged: true}},
			},
			request: placement.Request{Clusters: members(30), Previous: placedOn(30, false), Hash: "before"},
			want:    "would leave 30 of 30 clusters (m-01, m-02, m-03 and 27 more)",
			targets: 30,
		},
		"ScaledDown": {
			reason:  "A scale-down to fewer replicas than clusters is an explicit request of a user.",
			spec:    corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDivide},
			request: placement.Request{Clusters: members(30), Previous: placedOn(30, true), Replicas: &five},
			targets: 5,
		},
		"ScaledDownAndTypo": {
			reason: "A lower number of replicas from an autoscaler does not hide a typo.",
			spec: corev1alpha1.PropagationPolicySpec{
				SchedulingMode: corev1alpha1.SchedulingModeDivide, ClusterSelector: region("ue"),
			},
			request: placement.Request{Clusters: members(5), Previous: placedOn(5, true), Replicas: &few},
			want:    "would leave 5 of 5 clusters (m-01, m-02, m-03 and 2 more)",
			targets: 5,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.spec.SchedulingMode == "" {
				tc.spec.SchedulingMode = corev1alpha1.SchedulingModeDuplicate
			}
			policy := &corev1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "all", Generation: 2}, Spec: tc.spec}
			p, errs := placement.Compile(policy)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			d, err := p.Place(&tc.request)
			if err != nil {
				t.Fatal(err)
			}
			if got := said(&d); got != tc.want {
				t.Errorf("%s\nwaits: %q\n want: %q", tc.reason, got, tc.want)
			}
			if len(d.Targets) != tc.targets || d.Narrowed != tc.narrow {
				t.Errorf("%s\n%d targets, narrowed %t; want %d, %t", tc.reason, len(d.Targets), d.Narrowed, tc.targets, tc.narrow)
			}
			if d.Held == nil {
				return
			}
			if d.Hash != tc.request.Hash {
				t.Errorf("%s\nthe hash is %q, want %q", tc.reason, d.Hash, tc.request.Hash)
			}
			after := d.Held.Approved()
			tc.request.Approved = d.Held.Number
			alone, err := p.Place(&tc.request)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(textOf(&after), textOf(&alone)); diff != "" {
				t.Errorf("approved for the object: -announced, +got:\n%s", diff)
			}
			policy.Annotations = map[string]string{refractv1alpha1.ApprovePlacementAnnotation: "t"}
			policy.Status.PlacementHeld = &corev1alpha1.PlacementHeld{Token: "t"}
			p, _ = placement.Compile(policy)
			tc.request.Approved = p.Approved(placement.Question{Number: d.Held.Number, Token: "alone", Shared: "t"}, "")
			all, err := p.Place(&tc.request)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(textOf(&after), textOf(&all)); diff != "" {
				t.Errorf("approved for the policy: -announced, +got:\n%s", diff)
			}
		})
	}
}

func said(d *placement.Decision) string {
	if d.Held == nil {
		return ""
	}
	return d.Held.String()
}

// TestApproved verifies that only the tokens of the question approve a change, and no value that a client can compute.
func TestApproved(t *testing.T) {
	asked := placement.Question{Number: "815", Token: "alone", Shared: "all"}
	cases := map[string]struct {
		reason    string
		asked     placement.Question
		asks      *corev1alpha1.PlacementHeld
		policy    string // The annotation of the policy.
		report    string // The annotation of the Propagation.
		want      string
		withdrawn string // What the annotation of the Propagation alone approves.
	}{
		"Nothing": {reason: "No annotation has a token.", asked: asked, asks: &corev1alpha1.PlacementHeld{Token: "all"}},
		"Policy": {
			reason: "The annotation of the policy has the token of its question.",
			asked:  asked, asks: &corev1alpha1.PlacementHeld{Token: "all"}, policy: "all", want: "815",
		},
		"Report": {reason: "The annotation of the Propagation has the token of its question.", asked: asked, report: "alone", want: "815", withdrawn: "815"},
		"Swapped": {
			reason: "The policy and the Propagation have different tokens.",
			asked:  asked, asks: &corev1alpha1.PlacementHeld{Token: "all"}, policy: "alone", report: "all",
		},
		"Number": {
			reason: "The number, which any client can compute, approves nothing.",
			asked:  asked, asks: &corev1alpha1.PlacementHeld{Token: "all"}, policy: "815", report: "815",
		},
		"NotAsked":      {reason: "The status of the policy does not show the question yet, or no longer.", asked: asked, policy: "all"},
		"AnotherAsked":  {reason: "The policy asks about other objects.", asked: asked, asks: &corev1alpha1.PlacementHeld{Token: "others"}, policy: "others"},
		"Before":        {reason: "The token belongs to another question.", asked: asked, asks: &corev1alpha1.PlacementHeld{Token: "all"}, policy: "others"},
		"EarlierReport": {reason: "The question of an earlier version had only the number.", asked: placement.Question{Number: "815"}, policy: "815", report: "815"},
		"Empty":         {reason: "An empty token is no approval.", asked: placement.Question{Number: "815"}, asks: &corev1alpha1.PlacementHeld{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			policy := &corev1alpha1.PropagationPolicy{
				ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{refractv1alpha1.ApprovePlacementAnnotation: tc.policy}},
				Spec:       corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDuplicate},
				Status:     corev1alpha1.PolicyStatus{PlacementHeld: tc.asks},
			}
			p, errs := placement.Compile(policy)
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if got := p.Approved(tc.asked, tc.report); got != tc.want {
				t.Errorf("%s\nthe change %q is approved, want %q", tc.reason, got, tc.want)
			}
			if got := tc.asked.Approved(tc.report); got != tc.withdrawn {
				t.Errorf("%s\nwithout a policy the change %q is approved, want %q", tc.reason, got, tc.withdrawn)
			}
		})
	}
}

// TestNumber verifies which inputs give a held placement another number.
func TestNumber(t *testing.T) {
	number := func(change func(*corev1alpha1.PropagationPolicy, *placement.Request)) string {
		t.Helper()
		policy := &corev1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "all", UID: "u", Generation: 2}}
		policy.Spec.SchedulingMode, policy.Spec.Placements = corev1alpha1.SchedulingModeDuplicate, listed("m-01", "m-02")
		r := &placement.Request{Clusters: members(30), Previous: placedOn(30, false)}
		change(policy, r)
		p, _ := placement.Compile(policy)
		d, err := p.Place(r)
		if err != nil || d.Held == nil {
			t.Fatalf("want a waiting change, got %v", err)
		}
		return d.Held.Number
	}
	is := number(func(*corev1alpha1.PropagationPolicy, *placement.Request) {})
	for name, tc := range map[string]struct {
		change func(*corev1alpha1.PropagationPolicy, *placement.Request)
		same   bool
	}{
		"AnotherObject": {func(_ *corev1alpha1.PropagationPolicy, r *placement.Request) { r.Previous = r.Previous[10:] }, true},
		"Readiness": {func(_ *corev1alpha1.PropagationPolicy, r *placement.Request) {
			r.Clusters = slices.Clone(r.Clusters)
			r.Clusters[0].Ready = false
		}, true},
		"AnotherGeneration":      {func(p *corev1alpha1.PropagationPolicy, _ *placement.Request) { p.Generation++ }, false},
		"AnotherPolicyOfTheName": {func(p *corev1alpha1.PropagationPolicy, _ *placement.Request) { p.UID = "v" }, false},
		"AnotherChoice":          {func(_ *corev1alpha1.PropagationPolicy, r *placement.Request) { r.Clusters = r.Clusters[1:] }, false},
	} {
		if got := number(tc.change); (got == is) != tc.same {
			t.Errorf("%s: the number is %s, and was %s; want the same: %t", name, got, is, tc.same)
		}
	}
}

func TestWithdrawal(t *testing.T) {
	if h := placement.Withdrawal("u", placedOn(2, false)); h != nil {
		t.Errorf("want no wait for a loss of two clusters, got %s", h)
	}
	h := placement.Withdrawal("u", placedOn(3, false))
	if h == nil || h.String() != "would leave 3 of 3 clusters (m-01, m-02, m-03)" {
		t.Fatalf("want a wait for a loss of three clusters, got %v", h)
	}
	if other := placement.Withdrawal("v", placedOn(3, false)); other.Number == h.Number {
		t.Error("want another number for another object")
	}
	if later := placement.Withdrawal("u", placedOn(5, false)); later.Number != h.Number {
		t.Error("want a number that does not depend on the remaining copies")
	}
}

// TestTogether computes the loss of several objects of a namespace. Each object is on few clusters.
func TestTogether(t *testing.T) {
	compiled := func(spec corev1alpha1.PropagationPolicySpec) *placement.Policy {
		spec.SchedulingMode = corev1alpha1.SchedulingModeDuplicate
		p, errs := placement.Compile(&corev1alpha1.PropagationPolicy{Spec: spec})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		return p
	}
	typo := compiled(corev1alpha1.PropagationPolicySpec{ClusterSelector: map[string]string{"region": "ue"}})
	at := func(policy *placement.Policy, from, to int) placement.Asked {
		return placement.Asked{Policy: policy, Request: &placement.Request{Clusters: members(30), Previous: placedOn(to, false)[from:]}}
	}
	cases := map[string]struct {
		reason string
		asked  []placement.Asked
		want   *placement.Loss
	}{
		"Nothing": {reason: "A namespace without objects has no loss."},
		"Two":     {reason: "A loss of two clusters needs no approval.", asked: []placement.Asked{at(typo, 0, 2)}},
		"Many": {
			reason: "The losses of all objects are counted together.",
			asked:  []placement.Asked{at(typo, 0, 2), at(typo, 2, 4)},
			want:   &placement.Loss{Leaves: []string{"m-01", "m-02", "m-03", "m-04"}, Of: 4},
		},
		"Held": {
			reason: "Objects whose own changes wait are counted, too.",
			asked:  []placement.Asked{at(typo, 0, 2), at(typo, 2, 6)},
			want:   &placement.Loss{Leaves: []string{"m-01", "m-02", "m-03", "m-04", "m-05", "m-06"}, Of: 6},
		},
		"OthersStay": {
			reason: "Only clusters without any remaining object of the namespace count.",
			asked:  []placement.Asked{at(typo, 0, 2), at(typo, 2, 4), at(nil, 0, 3)},
		},
		"FewOfMany": {
			reason: "A loss of 30 % needs no approval.",
			asked:  []placement.Asked{at(typo, 0, 2), at(typo, 2, 3), at(nil, 3, 10)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, placement.Together(tc.asked)); diff != "" {
				t.Errorf("%s\nTogether(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
