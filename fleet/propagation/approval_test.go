package propagation

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/tree"
)

// thirty returns thirty members of a fleet; the first two are in region eu.
func thirty() (names []string, clusters []placement.Cluster) {
	for i := range 30 {
		region := "us"
		if i < 2 {
			region = "eu"
		}
		names = append(names, fmt.Sprintf("member-%02d", i+1))
		clusters = append(clusters, placement.Cluster{
			Cluster: match.Cluster{Name: names[i], Labels: map[string]string{"region": region}}, Ready: true,
		})
	}
	return names, clusters
}

// placedBy returns inputs with a fleet of thirty and one propagation policy.
func placedBy(t *testing.T, spec corev1alpha1.PropagationPolicySpec, approved string) *inputs {
	t.Helper()
	spec.SchedulingMode = corev1alpha1.SchedulingModeDuplicate
	pp, errs := placement.Compile(&corev1alpha1.PropagationPolicy{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "pp", Generation: 2, Annotations: map[string]string{refractv1alpha1.ApprovePlacementAnnotation: approved},
		},
		Spec: spec, Status: corev1alpha1.PolicyStatus{PlacementHeld: &corev1alpha1.PlacementHeld{Token: "all"}},
	})
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	_, clusters := thirty()
	return &inputs{
		hub: "hub", may: nobodyMay, clusters: clusters,
		propagation: func(tree.Policy) *placement.Policy { return pp },
		override:    func(tree.Policy) *override.Policy { return nil },
	}
}

// TestPlacementWaits: a change that removes an object from many clusters, or adds it to clusters that its policy does
// not name, waits until a user approves it.
func TestPlacementWaits(t *testing.T) {
	names, _ := thirty()
	labelled := map[string]string{corev1alpha1.PropagationPolicyLabel: "pp"}
	typo := corev1alpha1.PropagationPolicySpec{ClusterSelector: map[string]string{"region": "eu"}}
	by := &refractv1alpha1.PolicyReference{Kind: "PropagationPolicy", Namespace: "shop", Name: "pp"}
	other := &refractv1alpha1.PolicyReference{Kind: "PropagationPolicy", Namespace: "shop", Name: "other"}
	leaves := "would leave 28 of 30 clusters (member-03, member-04, member-05 and 25 more)"
	cases := map[string]struct {
		reason      string
		spec        corev1alpha1.PropagationPolicySpec
		labels      map[string]string
		annotations map[string]string
		was         previous
		leaders     followed
		waits       string
		approve     string
		blocked     bool
		before      int // The number of clusters before the approval.
		after       int
		gone        bool // Whether the object is gone after the approval.
		chosenBy    *refractv1alpha1.PolicyReference
	}{
		"Typo": {
			reason: "A typo in a selector removes no copies.",
			spec:   typo, labels: labelled, was: previous{uid: "1", placed: on(names...)},
			waits: leaves, approve: "propagationpolicy/shop/pp", before: 30, after: 2, chosenBy: by,
		},
		"AnotherObject": {
			reason: "A recreated object has left no clusters.",
			spec:   typo, labels: labelled, was: previous{uid: "0", placed: on(names...)},
			before: 2, chosenBy: by,
		},
		"Emptied": {
			reason: "An emptied placement creates no copies.",
			labels: labelled, was: previous{uid: "1", placed: on(names[:2]...), chosenBy: by},
			waits:   "would be added to 28 other clusters (member-03, member-04, member-05 and 25 more), as the policy no longer names or selects clusters",
			approve: "propagationpolicy/shop/pp", before: 2, after: 30,
		},
		"AnotherPolicy": {
			reason: "A user who labels an object with another policy has requested the clusters of that policy.",
			labels: labelled, was: previous{uid: "1", placed: on(names[:2]...), chosenBy: other},
			before: 30,
		},
		"Joined": {
			reason: "A policy that selected all clusters still does when more clusters join.",
			labels: labelled, was: previous{uid: "1", placed: on(names[:2]...)},
			before: 30,
		},
		"Travels": {
			reason: "The clusters that an object has because of its leader (the object that it travels with) stay, even if its own policy does not select them.",
			spec:   typo, labels: labelled, was: previous{uid: "1", placed: on(names...)},
			leaders: followed{by: []Key{keyOf("deployments", "web")}, clusters: names[2:]},
			before:  30, chosenBy: by,
		},
		"Withdrawn": {
			reason: "A label that is removed by mistake removes no copies.",
			was:    previous{uid: "1", placed: on(names...)},
			waits:  "would leave 30 of 30 clusters (member-01, member-02, member-03 and 27 more)", approve: "deployment/shop/web", blocked: true, gone: true,
		},
		"WithdrawnFromTwo": {
			reason: "Two clusters are below the limit, so the change does not wait.",
			was:    previous{uid: "1", placed: on(names[:2]...)}, gone: true,
		},
		"WithdrawnBefore": {
			reason: "The removal of the copies was already decided, so it continues.",
			was:    previous{uid: "1", placed: on(names...), cause: causeWithdrawn}, gone: true,
		},
		"TriedOut": {
			reason:      "A dry run removes nothing, so no approval is requested.",
			annotations: map[string]string{corev1alpha1.DryRunAnnotation: "true"},
			was:         previous{uid: "1", placed: on(names...)},
		},
		"TriedOutOnFew": {
			reason:      "The object is on few clusters, so the change does not wait.",
			annotations: map[string]string{corev1alpha1.DryRunAnnotation: "true"},
			was:         previous{uid: "1", placed: on(names[:1]...)},
		},
		"TriedOutAndNotReferredToAnyMore": {
			reason:      "A follower of another object, on few clusters, does not wait either.",
			annotations: map[string]string{corev1alpha1.DryRunAnnotation: "true"},
			was:         previous{uid: "1", placed: on(names...), follows: []Key{keyOf("deployments", "web")}},
		},
		"TriedOutTooLate": {
			reason:      "The copies are already being removed.",
			annotations: map[string]string{corev1alpha1.DryRunAnnotation: "true"},
			was:         previous{uid: "1", placed: on(names...), cause: causeWithdrawn}, gone: true,
		},
		"AnotherTriedOut": {
			reason:      "The copies belong to a deleted object.",
			annotations: map[string]string{corev1alpha1.DryRunAnnotation: "true"},
			was:         previous{uid: "0", placed: on(names...)}, gone: true,
		},
		"NotReferredToAnyMore": {
			reason: "A follower loses its copies together with the reference to it.",
			was:    previous{uid: "1", placed: on(names...), follows: []Key{keyOf("deployments", "web")}}, gone: true,
		},
		"Orphaned": {
			reason:      "Copies that are kept are no loss.",
			annotations: map[string]string{corev1alpha1.OrphanAnnotation: "all"},
			was:         previous{uid: "1", placed: on(names...)}, gone: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			src := source{gvr: deployments, kind: "Deployment", object: deployment(tc.labels, tc.annotations, false)}
			if tc.labels == nil { // Watches by label no longer show the object.
				src.object, src.withdrawn = nil, src.object
			}
			s := placedBy(t, tc.spec, "")
			s.followed = tc.leaders
			p := decide(src, tc.was, s)
			if tc.waits == "" {
				if p.held != nil || p.gone != tc.gone || len(p.targets) != tc.before {
					t.Errorf("%s\nwaits: %v, gone: %t, on %d clusters; want no wait, %t, %d", tc.reason, p.held, p.gone, len(p.targets), tc.gone, tc.before)
				}
				if diff := cmp.Diff(tc.chosenBy, p.chosenBy); diff != "" {
					t.Errorf("%s\nchosen by: -want, +got:\n%s", tc.reason, diff)
				}
				return
			}
			if p.held == nil {
				t.Fatalf("%s\nnothing waits", tc.reason)
			}
			want := fmt.Sprintf("waits for approval: %s; approve with: refract approve %s", tc.waits, tc.approve)
			if diff := cmp.Diff(want, p.held.message()); diff != "" {
				t.Errorf("%s\nmessage: -want, +got:\n%s", tc.reason, diff)
			}
			if (p.blocked == reasonAwaitingApproval) != tc.blocked || len(p.targets) != tc.before || p.gone {
				t.Errorf("%s\nblocked: %q, on %d clusters, gone: %t; want %t, %d, false", tc.reason, p.blocked, len(p.targets), p.gone, tc.blocked, tc.before)
			}
			// Each later decision has the same question, also in a process that has read it from the Propagation.
			p.held.asked = placement.Question{Number: p.held.Number, Token: "alone", Shared: "all"}
			now := p.remember(tc.was)
			if diff := cmp.Diff(tc.was.placed, now.placed); diff != "" {
				t.Errorf("%s\nmemory of the decision: -before, +now:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.was.chosenBy, now.chosenBy); diff != "" {
				t.Errorf("%s\nchosen by: -before, +now:\n%s", tc.reason, diff)
			}
			again := decide(src, now, s)
			if again.held == nil || again.held.message() != p.held.message() {
				t.Errorf("%s\nthe change does not wait any more", tc.reason)
			}
			for _, other := range []string{"all", p.held.Number} {
				s.approved = other
				if other := decide(src, now, s); other.held == nil {
					t.Errorf("%s\n%q approves the change", tc.reason, s.approved)
				}
			}
			s.approved = "alone"
			done := decide(src, now, s)
			if done.held != nil || done.gone != tc.gone || len(done.targets) != tc.after {
				t.Errorf("%s\napproved: waits %v, gone %t, on %d clusters; want gone %t, %d", tc.reason, done.held, done.gone, len(done.targets), tc.gone, tc.after)
			}
			if tc.gone {
				return
			}
			if diff := cmp.Diff(tc.chosenBy, done.chosenBy); diff != "" {
				t.Errorf("%s\nchosen by: -want, +got:\n%s", tc.reason, diff)
			}
			if all := decide(src, now, placedBy(t, tc.spec, "all")); all.held != nil || len(all.targets) != tc.after {
				t.Errorf("%s\napproved for the policy: waits %v, on %d clusters, want %d", tc.reason, all.held, len(all.targets), tc.after)
			}
		})
	}
}

// TestPlacementWaitsInWaves: while a new placement of an object waits for approval, its rollout continues on its
// present clusters.
func TestPlacementWaitsInWaves(t *testing.T) {
	names, _ := thirty()
	s := placedBy(t, corev1alpha1.PropagationPolicySpec{ClusterSelector: map[string]string{"region": "eu"}}, "")
	obj := deployment(map[string]string{corev1alpha1.PropagationPolicyLabel: "pp"}, nil, false)
	earlier := deployment(obj.GetLabels(), nil, false)
	earlier.Object["spec"] = map[string]any{"replicas": int64(1)}
	first := refractv1alpha1.Revision{Name: "first"}
	s.governed = &governance{
		target:   refractv1alpha1.Revision{Name: "second"},
		recorded: &refractv1alpha1.RolloutStatus{UID: "1", Phase: refractv1alpha1.RolloutProgressing, Target: refractv1alpha1.Revision{Name: "second"}, LastGood: first},
		kept:     map[string]*material{"first": {object: earlier, kept: true, allowed: true}},
	}
	s.governed.policy = &rollout.Policy{}
	p := decide(source{gvr: deployments, kind: "Deployment", object: obj}, previous{uid: "1", placed: on(names...)}, s)
	if p.held == nil || len(p.targets) != 30 {
		t.Fatalf("waits: %v, on %d clusters; want 30", p.held, len(p.targets))
	}
	if p.rollout == nil || len(p.rollout.changes) != 30 {
		t.Errorf("the rollout covers %v, want all clusters that have a copy", p.rollout)
	}
	if p.targets["member-30"].from == nil {
		t.Error("a cluster has the new revision before its turn")
	}
}

// TestVerdictOfWhatWaits: the report describes the waiting change and names the policy.
func TestVerdictOfWhatWaits(t *testing.T) {
	names, _ := thirty()
	spec := corev1alpha1.PropagationPolicySpec{ClusterSelector: map[string]string{"region": "eu"}}
	key := Key{GroupResource: deployments.GroupResource()}
	key.Namespace, key.Name = "shop", "web"
	src := source{gvr: deployments, kind: "Deployment", object: deployment(map[string]string{corev1alpha1.PropagationPolicyLabel: "pp"}, nil, false)}
	p := decide(src, previous{uid: "1", placed: on(names...)}, placedBy(t, spec, ""))
	status := &refractv1alpha1.PropagationStatus{Placed: 30, Synced: 30}
	c := verdict(p, status)
	if c.Status != metav1.ConditionFalse || c.Reason != reasonAwaitingApproval || c.Message != p.held.message() {
		t.Errorf("the condition is %+v", c)
	}
	if diff := cmp.Diff(&refractv1alpha1.HeldPlacement{Number: p.held.Number, Leaves: names[2:]}, p.held.status()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	p.held.asked = placement.Question{Number: p.held.Number, Token: "alone", Shared: "all"}
	if held := p.held.status(); held.Token != "alone" || held.PolicyToken != "all" {
		t.Errorf("the report asks for approval with %q and %q", held.Token, held.PolicyToken)
	}
	ref := tree.Policy{Kind: "PropagationPolicy", Namespace: "shop", Name: "pp"}
	st := newState()
	st.setDesired(key, p, previous{uid: "1", placed: on(names...)}, []tree.Policy{ref})
	u := st.usage(ref, 2)
	is := inEffect(&u, metav1.ConditionTrue, 2)
	want := "1 of 1 objects wait for approval; the first is deployments.apps shop/web: it " + p.held.message()
	if is.Reason != reasonAwaitingApproval || is.Message != want {
		t.Errorf("the policy reports %q %q,\nwant %q", is.Reason, is.Message, want)
	}
}

// TestFollowersOfWhatWaits: while the new placement of an object waits for approval, its followers keep their clusters.
func TestFollowersOfWhatWaits(t *testing.T) {
	names, _ := thirty()
	leader, follower := keyOf("deployments", "web"), keyOf("configmaps", "settings")
	src := source{gvr: deployments, kind: "Deployment", object: deployment(nil, nil, false)}
	st := newState()
	st.setDesired(leader, &desiredState{uid: "1", followers: map[Key][]string{follower: names}, targets: map[string]*target{}}, previous{}, nil)
	withdrawn := decide(src, previous{uid: "1", placed: on(names...)}, placedBy(t, corev1alpha1.PropagationPolicySpec{}, ""))
	if _, _, touched := st.setDesired(leader, withdrawn, previous{}, nil); len(touched) > 0 {
		t.Errorf("%v are decided again", touched)
	}
	with := st.followed(follower, []Key{leader})
	if !slices.Equal(with.clusters, names) {
		t.Errorf("the follower stays on %v, want all", with.clusters)
	}
	// After a restart, the reference from the leader is unknown.
	again := newState()
	again.setDesired(leader, withdrawn, previous{uid: "1", placed: on(names...)}, nil)
	if with = again.followed(follower, []Key{leader}); !slices.Equal(with.on(on(names...)), names) {
		t.Errorf("after a restart the follower stays on %v, want all", with.on(on(names...)))
	}
}

// TestPolicyDeletedEvent: the deletion of an override policy that objects name causes an event.
func TestPolicyDeletedEvent(t *testing.T) {
	op := tree.Policy{Kind: "OverridePolicy", Namespace: "shop", Name: "op"}
	cases := map[string]struct {
		reason string
		ref    tree.Policy
		used   bool
		want   []string
	}{
		"Used":    {"All copies lose its changes at once.", op, true, []string{"Warning PolicyDeleted its changes are reverted: 1 object on 2 clusters named it"}},
		"Unused":  {"Nothing happens.", op, false, nil},
		"Placing": {"The objects keep their clusters.", tree.Policy{Kind: "PropagationPolicy", Namespace: "shop", Name: "op"}, true, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := station(t, nil, &replica{leads: true}, interceptor.Funcs{})
			told := make(chan string, 2)
			c.reporter.recorder = &events.FakeRecorder{Events: told}
			if tc.used {
				c.state.setDesired(keyOf("configmaps", "web"), &desiredState{placed: on("eu-1", "us-1")}, previous{}, []tree.Policy{tc.ref})
			}
			policies := newPolicies(discard)
			policies.deleted = c.reporter.policyDeleted
			obj, _ := policyObject(tc.ref)
			obj.SetNamespace(tc.ref.Namespace)
			obj.SetName(tc.ref.Name)
			policies.store(obj)
			policies.forget(tc.ref)
			policies.forget(tc.ref) // A list may report the same deletion again.
			close(told)
			var got []string
			for e := range told {
				got = append(got, e)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
