package propagation

import (
	"errors"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// TestReviewOne: the reviewer takes a policy, and writes into its status what has come of it, if
// that is not there already.
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
		Idle     []int64 // Rules that hold for no cluster.
		Accepted string
		InEffect string
	}
	cases := map[string]struct {
		reason  string
		rules   []corev1alpha1.OverrideRule
		gone    bool // Nobody has seen it.
		behind  bool // Another replica leads.
		users   func(*Controller)
		refuse  error
		want    want
		written bool // Whether it is looked at for the second time.
	}{
		"Unused": {
			reason: "That it is valid and nobody names it.", rules: forEach,
			want: want{Wrote: []string{"status"}, Accepted: "Valid", InEffect: "Unused"},
		},
		"Used": {
			reason: "Rules are counted for clusters on which its users are: that for others holds for none.", rules: forEach, users: used(1, "us-1"),
			want: want{Wrote: []string{"status"}, Users: 1, Clusters: 1, Idle: []int64{0}, Accepted: "Valid", InEffect: "InEffect"},
		},
		"UsedEverywhere": {
			reason: "All rules hold somewhere.", rules: forEach, users: used(1, "eu-1", "us-1"),
			want: want{Wrote: []string{"status"}, Users: 1, Clusters: 2, Accepted: "Valid", InEffect: "InEffect"},
		},
		"Behind": {
			reason: "Its user was rendered with what it said before.", rules: forEach, users: used(0, "us-1"),
			want: want{Wrote: []string{"status"}, Users: 1, Clusters: 1, Idle: []int64{0}, Accepted: "Valid", InEffect: reasonProgressing},
		},
		"Invalid": {
			reason: "What is wrong with it, so that nothing of it is in effect.", rules: []corev1alpha1.OverrideRule{rule("eu-1", "no/path", "1")}, users: used(1, "us-1"),
			want: want{Wrote: []string{"status"}, Users: 1, Idle: []int64{0}, Accepted: reasonInvalidPolicy, InEffect: reasonInvalidPolicy},
		},
		"Written": {
			reason: "All of it is there already.", rules: forEach, users: used(1, "us-1"), written: true,
			want: want{Users: 1, Clusters: 1, Idle: []int64{0}, Accepted: "Valid", InEffect: "InEffect"},
		},
		"Gone":  {reason: "There is nothing to write to.", gone: true, users: used(1, "us-1")},
		"Other": {reason: "Another replica leads, and knows more.", rules: forEach, behind: true, users: used(1, "us-1")},
		"Refused": {
			reason: "It is tried again.", rules: forEach, refuse: errors.New("no answer"), want: want{Wrote: []string{"status"}, Err: "no answer"},
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

// TestReviewsWait: the more users a policy has, the longer what has come of it may lag behind.
func TestReviewsWait(t *testing.T) {
	op := tree.Policy{Kind: corev1alpha1.KindOverridePolicy, Namespace: "shop", Name: "op"}
	for name, tc := range map[string]struct {
		reason string
		users  int
		want   string
	}{
		"None": {"Something else may change in a moment.", 0, "review op: after 2s"},
		"Many": {"To look at them takes time.", 400, "review op: after 4s"},
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
