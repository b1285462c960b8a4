package propagation

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// TestReviewOne: the reviewer writes the state of a policy into its status, unless the status is the same already.
func TestReviewOne(t *testing.T) {
	op := tree.Policy{Kind: corev1alpha1.KindOverridePolicy, Namespace: "shop", Name: "op"}
	key := keyOf("configmaps", "web")
	used := func(generation int64, clusters ...string) func(*Controller) {
		return func(c *Controller) {
			p := &desiredState{placed: on(clusters...), targets: map[string]*target{}}
			for _, name := range clusters {
				p.targets[name] = &target{}
			}
			p.overrides = []refractv1alpha1.PolicyReference{{Kind: op.Kind, Namespace: op.Namespace, Name: op.Name, Generation: generation}}
			c.state.setDesired(key, p, previous{}, []tree.Policy{op})
			for _, name := range clusters {
				c.state.report(key, name, clusterStatus{seq: p.seq, state: refractv1alpha1.StateSynced})
			}
		}
	}
	forEach := []corev1alpha1.OverrideRule{rule("eu-1", "/data/x", `"1"`), rule("us-1", "/data/x", `"2"`)}
	type want struct {
		Wrote    []string
		Err      string
		Users    int64
		Clusters int64
		Idle     []int64 // Rules that match no cluster.
		Accepted string
		InEffect string
	}
	cases := map[string]struct {
		reason  string
		rules   []corev1alpha1.OverrideRule
		gone    bool // Whether the policy is unknown.
		behind  bool // Whether another replica leads.
		users   func(*Controller)
		refuse  error
		want    want
		written bool // Whether it is reviewed for the second time.
	}{
		"Unused": {
			reason: "The policy is valid, and no object names it.", rules: forEach,
			want: want{Wrote: []string{"status"}, Accepted: "Valid", InEffect: "Unused"},
		},
		"Used": {
			reason: "Rules count for the clusters of the users: a rule for another cluster matches none.", rules: forEach, users: used(1, "us-1"),
			want: want{Wrote: []string{"status"}, Users: 1, Clusters: 1, Idle: []int64{0}, Accepted: "Valid", InEffect: "InEffect"},
		},
		"UsedEverywhere": {
			reason: "Each rule matches a cluster.", rules: forEach, users: used(1, "eu-1", "us-1"),
			want: want{Wrote: []string{"status"}, Users: 1, Clusters: 2, Accepted: "Valid", InEffect: "InEffect"},
		},
		"Behind": {
			reason: "The user was rendered with a former generation.", rules: forEach, users: used(0, "us-1"),
			want: want{Wrote: []string{"status"}, Users: 1, Clusters: 1, Idle: []int64{0}, Accepted: "Valid", InEffect: reasonProgressing},
		},
		"Invalid": {
			reason: "The policy is invalid, so it is not in effect.", rules: []corev1alpha1.OverrideRule{rule("eu-1", "no/path", "1")}, users: used(1, "us-1"),
			want: want{Wrote: []string{"status"}, Users: 1, Idle: []int64{0}, Accepted: reasonInvalidPolicy, InEffect: reasonInvalidPolicy},
		},
		"Written": {
			reason: "The status is correct already.", rules: forEach, users: used(1, "us-1"), written: true,
			want: want{Users: 1, Clusters: 1, Idle: []int64{0}, Accepted: "Valid", InEffect: "InEffect"},
		},
		"Gone":  {reason: "The policy does not exist.", gone: true, users: used(1, "us-1")},
		"Other": {reason: "Another replica leads, and writes the status.", rules: forEach, behind: true, users: used(1, "us-1")},
		"Refused": {
			reason: "The write is tried again.", rules: forEach, refuse: errors.New("no answer"), want: want{Wrote: []string{"status"}, Err: "no answer"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := &desk{refuse: map[string]error{"status": tc.refuse}}
			policy := &corev1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "op", UID: "o", Generation: 1}}
			policy.Spec.OverrideRules = tc.rules
			s, _ := hubOf(t)
			c := station(t, s, &replica{leads: !tc.behind}, d.funcs(), policy)
			read := func() *corev1alpha1.OverridePolicy {
				t.Helper()
				is := &corev1alpha1.OverridePolicy{}
				if err := c.reviewer.client.Get(t.Context(), client.ObjectKeyFromObject(policy), is); err != nil {
					t.Fatal(err)
				}
				return is
			}
			if !tc.gone {
				c.decider.policies.store(read())
			}
			if tc.users != nil {
				tc.users(c)
			}
			if tc.written {
				if _, err := c.reviewer.reviewOne(t.Context(), op); err != nil {
					t.Fatal(err)
				}
				c.decider.policies.restate(read())
			}
			d.wrote = nil
			_, err := c.reviewer.reviewOne(t.Context(), op)
			status := read().Status
			got := want{Wrote: d.wrote, Users: status.RefCount, Clusters: status.ClusterCount, Idle: status.UnmatchedRules}
			if err != nil {
				got.Err = err.Error()
			}
			for _, condition := range status.Conditions {
				switch condition.Type {
				case "Accepted":
					got.Accepted = condition.Reason
				case "InEffect":
					got.InEffect = condition.Reason
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nreviewOne(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestReviewRollouts: the status of a rollout policy counts the objects that obey it. An object that names the policy
// does not count if the floor of its namespace forbids this policy.
func TestReviewRollouts(t *testing.T) {
	type counts struct{ Objects, Progressing int64 }
	one := counts{1, 1}
	for name, tc := range map[string]struct {
		reason              string
		floor               func(*refractv1alpha1.ClusterRolloutPolicySpec) // Nil if the namespace names no floor.
		wantOwn, wantFloors counts
	}{
		"NoFloor":  {"The object obeys the policy that it names.", nil, one, counts{}},
		"Strict":   {"The policy that the object names has no effect.", func(*refractv1alpha1.ClusterRolloutPolicySpec) {}, counts{}, one},
		"Narrower": {"The object obeys both policies.", func(s *refractv1alpha1.ClusterRolloutPolicySpec) { s.AllowNarrower = true }, one, one},
		"Invalid": {
			"While the floor is invalid, it is unknown which policy the object obeys, so the object waits.",
			func(s *refractv1alpha1.ClusterRolloutPolicySpec) { s.Waves = append(s.Waves, s.Waves...) }, one, one,
		},
	} {
		t.Run(name, func(t *testing.T) {
			own := &refractv1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "careful", UID: "c", Generation: 1}}
			floor := &refractv1alpha1.ClusterRolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "floor", UID: "f", Generation: 2}}
			own.Spec.Waves = []refractv1alpha1.RolloutWave{{Name: "canary"}}
			floor.Spec.Waves = own.Spec.Waves
			labels := map[string]string{}
			if tc.floor != nil {
				labels[refractv1alpha1.ClusterRolloutPolicyLabel] = floor.Name
				tc.floor(&floor.Spec)
			}
			s, _ := hubOf(t, governedObject("new"))
			c := station(t, s, &replica{leads: true}, interceptor.Funcs{}, own, floor)
			duplicated(c)
			c.decider.floor = func(string) (map[string]string, bool) { return labels, true }
			key := keyOf("configmaps", "web")
			c.decider.records.items[key] = &known{source: "1", rollout: &refractv1alpha1.RolloutStatus{
				UID: "1", Phase: refractv1alpha1.RolloutProgressing, Target: revisionNamed("new"), LastGood: revisionNamed("good"),
			}}
			for _, policy := range []client.Object{own, floor} {
				c.decider.policies.store(policy)
			}
			if _, err := c.decider.decideOne(t.Context(), key, priorityChanged); err != nil {
				t.Fatal(err)
			}
			for _, policy := range []client.Object{own, floor} {
				if _, err := c.reviewer.reviewOne(t.Context(), referenceTo(policy)); err != nil {
					t.Fatal(err)
				}
				if err := c.reviewer.client.Get(t.Context(), client.ObjectKeyFromObject(policy), policy); err != nil {
					t.Fatal(err)
				}
			}
			for of, is := range map[string]struct {
				status *refractv1alpha1.RolloutPolicyStatus
				want   counts
			}{"policy": {&own.Status, tc.wantOwn}, "floor": {&floor.Status, tc.wantFloors}} {
				if diff := cmp.Diff(is.want, counts{is.status.Objects, is.status.Phases.Progressing}); diff != "" {
					t.Errorf("%s\nreviewOne() of the %s: -want, +got:\n%s", tc.reason, of, diff)
				}
			}
		})
	}
}

// TestStatusIsReviewedAgain: a written status is outdated before the watch shows it. The reviewer compares with the
// earlier status in the cache, and finds nothing to write. It checks again when the watch shows the written status.
func TestStatusIsReviewedAgain(t *testing.T) {
	policy := &refractv1alpha1.RolloutPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "careful", UID: "c", Generation: 1}}
	policy.Spec.Waves = []refractv1alpha1.RolloutWave{{Name: "canary"}}
	s, _ := hubOf(t, governedObject("new"))
	c := station(t, s, &replica{leads: true}, interceptor.Funcs{}, policy)
	duplicated(c)
	c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
	key, ref := keyOf("configmaps", "web"), referenceTo(policy)
	view := &policyView{policies: c.decider.policies, kind: kindOf(policy)}
	watched := func() {
		t.Helper()
		is := &refractv1alpha1.RolloutPolicy{}
		if err := c.reviewer.client.Get(t.Context(), client.ObjectKeyFromObject(policy), is); err != nil {
			t.Fatal(err)
		}
		if err := view.Add(is); err != nil {
			t.Fatal(err)
		}
	}
	review := func(phase refractv1alpha1.RolloutPhase) {
		t.Helper()
		c.decider.records.items[key] = &known{source: "1", rollout: &refractv1alpha1.RolloutStatus{
			UID: "1", Phase: phase, Target: revisionNamed("new"), LastGood: revisionNamed("good"),
		}}
		if _, err := c.reviewer.reviewOne(t.Context(), ref); err != nil {
			t.Fatal(err)
		}
	}
	watched()
	if _, err := c.decider.decideOne(t.Context(), key, priorityChanged); err != nil {
		t.Fatal(err)
	}
	review(refractv1alpha1.RolloutComplete)
	watched()
	review(refractv1alpha1.RolloutProgressing)
	review(refractv1alpha1.RolloutComplete)
	c.reviewer.queue.queue = queue[tree.Policy]{}
	watched()
	if c.reviewer.queue.queue.items[ref] == nil {
		t.Error("want the status checked again: it shows Progressing, but the rollout is over")
	}
	review(refractv1alpha1.RolloutComplete)
	c.reviewer.queue.queue = queue[tree.Policy]{}
	watched()
	if status := rolloutStatusIn(c.decider.policies.object(ref)); status.Phases != (refractv1alpha1.RolloutPhases{Complete: 1}) {
		t.Errorf("want one complete rollout, got %+v", status.Phases)
	}
	c.reviewer.queue.queue = queue[tree.Policy]{}
	watched()
	if c.reviewer.queue.queue.items[ref] != nil {
		t.Error("want no check after a list without changes")
	}
}

// TestReviewsWait: the delay of the status of a policy grows with the number of users of the policy.
func TestReviewsWait(t *testing.T) {
	op := tree.Policy{Kind: corev1alpha1.KindOverridePolicy, Namespace: "shop", Name: "op"}
	for name, tc := range map[string]struct {
		reason string
		users  int
		want   string
	}{
		"None": {"More changes may follow.", 0, "review op: after 2s"},
		"Many": {"A check of many users takes time.", 400, "review op: after 4s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := hubOf(t)
				c := station(t, s, &replica{leads: true}, (&desk{}).funcs())
				for i := range tc.users {
					key := keyOf("configmaps", strconv.Itoa(i))
					c.state.setDesired(key, &desiredState{}, previous{}, []tree.Policy{op})
				}
				c.reviewer.later(op)
				if diff := cmp.Diff([]string{tc.want}, asked(c)); diff != "" {
					t.Errorf("%s\nlater(): -want, +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestReviewAfterTheStart: until all objects are decided, the use of a policy is unknown, and its status stays.
func TestReviewAfterTheStart(t *testing.T) {
	d := &desk{}
	policy := &corev1alpha1.OverridePolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "op", UID: "o", Generation: 1}}
	s, _ := hubOf(t)
	c := station(t, s, &replica{leads: true}, d.funcs(), policy)
	c.decider.policies.store(policy)
	c.state.complete.Store(false)
	d.wrote = nil
	result, err := c.reviewer.reviewOne(t.Context(), tree.Policy{Kind: "OverridePolicy", Namespace: "shop", Name: "op"})
	if err != nil || d.wrote != nil || result.RequeueAfter != reviewDelay {
		t.Errorf("reviewOne(): want nothing written, and another attempt after %s, got %v, %v, %+v", reviewDelay, d.wrote, err, result)
	}
	c.reviewer.until = time.Now() // An object cannot be decided.
	if _, err := c.reviewer.reviewOne(t.Context(), tree.Policy{Kind: "OverridePolicy", Namespace: "shop", Name: "op"}); err != nil || len(d.wrote) == 0 {
		t.Errorf("reviewOne(): want the status written after a while, got %v, %v", d.wrote, err)
	}
}
