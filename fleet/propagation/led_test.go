package propagation

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/fleet/revision"
)

func ledRevision(name, object string, followers ...refractv1alpha1.FollowerRevision) refractv1alpha1.Revision {
	r := revision.Of(object, 1, nil, followers...)
	if name != "" {
		r.Name = name
	}
	return r
}

func settings(object string) refractv1alpha1.FollowerRevision {
	return refractv1alpha1.FollowerRevision{Resource: "configmaps", Name: "settings", Object: object}
}

// TestNaming covers the changes of content that make a new revision.
func TestNaming(t *testing.T) {
	other := refractv1alpha1.FollowerRevision{Resource: "secrets", Name: "db", Object: "db-1"}
	complete := func(target refractv1alpha1.Revision) *refractv1alpha1.RolloutStatus {
		return &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutComplete, Target: target, LastGood: target}
	}
	under := func(target, good refractv1alpha1.Revision) *refractv1alpha1.RolloutStatus {
		return &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutProgressing, Target: target, LastGood: good}
	}
	for name, tc := range map[string]struct {
		reason   string
		recorded *refractv1alpha1.RolloutStatus
		is       refractv1alpha1.Revision
		want     string // Empty for a new name.
	}{
		"First":    {"There is no revision yet.", nil, ledRevision("", "web-1", settings("s-1")), ""},
		"Same":     {"Nothing has changed.", complete(ledRevision("a", "web-1", settings("s-1"))), ledRevision("", "web-1", settings("s-1")), "a"},
		"Object":   {"The object has changed.", complete(ledRevision("a", "web-1", settings("s-1"))), ledRevision("", "web-2", settings("s-1")), ""},
		"Follower": {"A follower has changed.", complete(ledRevision("a", "web-1", settings("s-1"))), ledRevision("", "web-1", settings("s-2")), ""},
		"Comes":    {"A new follower begins no rollout.", complete(ledRevision("a", "web-1")), ledRevision("", "web-1", settings("s-1")), "a"},
		"Goes":     {"The removal of a follower begins no rollout either.", complete(ledRevision("a", "web-1", settings("s-1"))), ledRevision("", "web-1"), "a"},
		"Back": {
			"A return of both to the good revision is that revision.", under(ledRevision("b", "web-2", settings("s-2")), ledRevision("a", "web-1", settings("s-1"))),
			ledRevision("", "web-1", settings("s-1")), "a",
		},
		"HalfBack": {
			"A return of only one of both is a new revision.", under(ledRevision("b", "web-2", settings("s-2")), ledRevision("a", "web-1", settings("s-1"))),
			ledRevision("", "web-1", settings("s-2")), "",
		},
		"BackWithOther": {
			"The good revision lacks the follower that was added.", under(ledRevision("b", "web-2", settings("s-2")), ledRevision("a", "web-1", settings("s-1"))),
			ledRevision("", "web-1", settings("s-1"), other), "",
		},
		"CompleteKnowsTheTargetAlone": {
			"The last good revision lacks the follower, so it is another revision.",
			&refractv1alpha1.RolloutStatus{
				Phase: refractv1alpha1.RolloutComplete, Target: ledRevision("a", "web-1", settings("s-1")), LastGood: ledRevision("a", "web-1"),
			}, ledRevision("", "web-1", settings("s-2")), "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			own := revision.Of(tc.is.Object, 1, nil, tc.is.Followers...).Name
			naming(tc.recorded, &tc.is)
			want := tc.want
			if want == "" {
				want = own
			}
			if tc.is.Name != want {
				t.Errorf("%s: got %s, want %s", tc.reason, tc.is.Name, want)
			}
		})
	}
}

// TestRolloutOf: a cluster has the revision of the follower that belongs to its revision of the leader, the object that
// the follower travels with.
func TestRolloutOf(t *testing.T) {
	web := Key{GroupResource: schema.GroupResource{Group: "apps", Resource: "deployments"}, NamespacedName: types.NamespacedName{Namespace: "shop", Name: "web"}}
	key := Key{GroupResource: schema.GroupResource{Resource: "configmaps"}, NamespacedName: types.NamespacedName{Namespace: "shop", Name: "settings"}}
	newest := revision.Of("s-3", 0, nil)
	by := &led{by: web, from: &refractv1alpha1.RolloutStatus{
		Phase:  refractv1alpha1.RolloutProgressing,
		Target: ledRevision("b", "web-2", settings("s-2")), LastGood: ledRevision("a", "web-1", settings("s-1")),
		Current: []refractv1alpha1.ReleasedCluster{{Name: "canary"}},
	}}
	is := rolloutOf(by, key, &newest)
	for cluster, want := range map[string]string{"canary": "s-2", "other": "s-1"} {
		if got := rollout.Assigned(is, cluster).Object; got != want {
			t.Errorf("%s has %s, want %s", cluster, got, want)
		}
	}
	if got := by.from.Target.Object; got != "web-2" {
		t.Errorf("want the rollout of the leader unchanged, got %s", got)
	}
	by.from.LastGood.Followers = nil
	if got := rollout.Assigned(rolloutOf(by, key, &newest), "other").Object; got != "s-3" {
		t.Errorf("want the newest revision of a follower where nothing refers to it, got %s", got)
	}
}

// TestLedVerdict: a follower that changes with its leader, the object that it travels with, has no rollout of its own.
// Its report names the leader, whatever other problems it reports. Its clusters are Synced with the content that they
// have.
func TestLedVerdict(t *testing.T) {
	const with = "it changes with deployments/web, wave by wave"
	newest, older := revision.Of("s-2", 0, nil), revision.Of("s-1", 0, nil)
	complete := func(is refractv1alpha1.Revision) *refractv1alpha1.RolloutStatus {
		return &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutComplete, Target: is, LastGood: is}
	}
	synced := refractv1alpha1.ClusterStatus{Name: "ap-1", State: refractv1alpha1.StateSynced}
	failed := refractv1alpha1.ClusterStatus{Name: "eu-1", State: refractv1alpha1.StateFailed, Reason: reasonAlreadyExists, Message: "it is another"}
	for name, tc := range map[string]struct {
		reason   string
		recorded *refractv1alpha1.RolloutStatus // The rollout of the leader, with the revisions of the follower.
		rows     []refractv1alpha1.ClusterStatus
		blocked  string
		held     *heldPlacement
		want     string
	}{
		"NoRecord": {"The rollout of the leader is not recorded.", nil, []refractv1alpha1.ClusterStatus{synced}, "", nil, "RolloutProgressing: " + with},
		"Older": {
			"The leader waits for a policy, so its rollout does not include the newest content.", complete(older),
			[]refractv1alpha1.ClusterStatus{synced}, "", nil, "RolloutProgressing: " + with,
		},
		"Failed": {
			"A cluster has failed, and another one has the older content.", complete(older),
			[]refractv1alpha1.ClusterStatus{synced, failed}, "", nil, "AlreadyExists: eu-1: it is another; " + with,
		},
		"Held": {
			"A change of the placement waits, and so does the newest content.", complete(older), []refractv1alpha1.ClusterStatus{synced}, "",
			&heldPlacement{Hold: &placement.Hold{Leaves: []string{"us-1"}, Of: 2}, approve: "all"},
			"AwaitingApproval: waits for approval: would leave 1 of 2 clusters (us-1); approve with: refract approve all; " + with,
		},
		"Settled": {
			"A cluster has failed, and the others have the newest content.", complete(newest),
			[]refractv1alpha1.ClusterStatus{synced, failed}, "", nil, "AlreadyExists: eu-1: it is another",
		},
		"Blocked": {
			"The follower itself waits. The reason explains why no cluster gets the newest content.", complete(older),
			[]refractv1alpha1.ClusterStatus{synced}, reasonPolicyNotFound, nil, "PolicyNotFound: ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := &desiredState{
				targets: map[string]*target{"ap-1": {}, "eu-1": {}}, blocked: tc.blocked, held: tc.held,
				governed: &governance{led: &led{by: keyOf("deployments", "web")}, target: newest, recorded: tc.recorded},
			}
			c := verdict(p, &refractv1alpha1.PropagationStatus{Clusters: tc.rows, Synced: 1})
			if got := c.Reason + ": " + c.Message; got != tc.want || c.Status != metav1.ConditionFalse {
				t.Errorf("%s\nwant False, %q, got %s, %q", tc.reason, tc.want, c.Status, got)
			}
		})
	}
}
