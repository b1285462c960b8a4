package propagation

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// hashed returns a desired state of the object with this UID: the same content on all clusters.
func hashed(uid types.UID, hash string, clusters ...string) *desiredState {
	p := &desiredState{uid: uid, placed: on(clusters...), targets: map[string]*target{}}
	for _, name := range clusters {
		p.targets[name] = &target{variant: &variant{content: &content{hash: hash}}}
	}
	return p
}

// TestSetDesired: after a decision, setDesired returns the clusters that have, may have or are to have a copy, unless
// their copy is correct; the policies that the object names or named; and the followers that have changed.
func TestSetDesired(t *testing.T) {
	key, db, old := keyOf("configmaps", "web"), keyOf("secrets", "db"), keyOf("secrets", "old")
	op, pp := tree.Policy{Kind: "OverridePolicy", Name: "op"}, tree.Policy{Kind: "PropagationPolicy", Name: "pp"}
	followedBy := func(p *desiredState, followers map[Key][]string) *desiredState {
		p.followers = followers
		return p
	}
	with := func(p *desiredState, change func(*desiredState)) *desiredState {
		change(p)
		return p
	}
	synced := func(hash string) *clusterStatus {
		return &clusterStatus{state: refractv1alpha1.StateSynced, hash: hash}
	}
	type want struct {
		Clusters  []string
		Policies  []tree.Policy
		Followers []Key
		Settled   bool // Whether all clusters have reported.
	}
	cases := map[string]struct {
		reason string
		before *desiredState
		status *clusterStatus // The earlier report of eu-1.
		was    previous
		p      *desiredState
		named  []tree.Policy // The policies that the object named before,
		names  []tree.Policy // and those that it names now.
		want   want
	}{
		"New":         {reason: "All clusters that are to have a copy.", p: hashed("1", "h", "eu-1", "us-1"), want: want{Clusters: []string{"eu-1", "us-1"}}},
		"NotPlaced":   {reason: "One cluster may have a copy from before a restart.", was: previous{placed: on("eu-1")}, p: hashed("1", "h", "us-1"), want: want{Clusters: []string{"eu-1", "us-1"}}},
		"Reported":    {reason: "One cluster was to lose its copy before a restart.", was: previous{statuses: []refractv1alpha1.ClusterStatus{{Name: "eu-1"}}}, p: hashed("1", "h"), want: want{Clusters: []string{"eu-1"}, Settled: true}},
		"AsBefore":    {reason: "The copy is correct.", before: hashed("1", "h", "eu-1"), status: synced("h"), p: hashed("1", "h", "eu-1"), want: want{Settled: true}},
		"Other":       {reason: "The content has changed.", before: hashed("1", "h", "eu-1"), status: synced("h"), p: hashed("1", "i", "eu-1"), want: want{Clusters: []string{"eu-1"}}},
		"NotYet":      {reason: "The cluster has not reported the copy.", before: hashed("1", "h", "eu-1"), p: hashed("1", "h", "eu-1"), want: want{Clusters: []string{"eu-1"}}},
		"Failed":      {reason: "The cluster has reported a failure.", before: hashed("1", "h", "eu-1"), status: &clusterStatus{state: refractv1alpha1.StateFailed}, p: hashed("1", "h", "eu-1"), want: want{Clusters: []string{"eu-1"}}},
		"MadeAgain":   {reason: "The copy belongs to a former object of the name.", before: hashed("1", "h", "eu-1"), status: synced("h"), p: hashed("other", "h", "eu-1"), want: want{Clusters: []string{"eu-1"}}},
		"Unblocked":   {reason: "The copy was not checked while the object was blocked.", before: with(hashed("1", "h", "eu-1"), func(p *desiredState) { p.blocked = reasonPolicyNotFound }), status: synced("h"), p: hashed("1", "h", "eu-1"), want: want{Clusters: []string{"eu-1"}}},
		"DryRun":      {reason: "The cluster is to show the change of a dry run.", before: hashed("1", "h", "eu-1"), status: synced("h"), p: with(hashed("1", "h", "eu-1"), func(p *desiredState) { p.dryRun = true }), want: want{Clusters: []string{"eu-1"}}},
		"Names":       {reason: "The number of users changes for former policies, too.", p: hashed("1", "h"), named: []tree.Policy{op}, names: []tree.Policy{pp}, before: hashed("1", "h"), want: want{Policies: []tree.Policy{op, pp}, Settled: true}},
		"NamesAsWell": {reason: "The number of users does not change.", p: hashed("1", "h"), named: []tree.Policy{op}, names: []tree.Policy{op}, before: hashed("1", "h"), want: want{Settled: true}},
		"Follows":     {reason: "The follower is new.", p: followedBy(hashed("1", "h"), map[Key][]string{db: {"eu-1"}}), want: want{Followers: []Key{db}, Settled: true}},
		"FollowsElsewhere": {
			reason: "The follower gets other clusters.", before: followedBy(hashed("1", "h"), map[Key][]string{db: {"us-1"}}),
			p: followedBy(hashed("1", "h"), map[Key][]string{db: {"eu-1"}}), want: want{Followers: []Key{db}, Settled: true},
		},
		"FollowsAsBefore": {
			reason: "The follower keeps its clusters.", before: followedBy(hashed("1", "h"), map[Key][]string{db: {"eu-1"}}),
			p: followedBy(hashed("1", "h"), map[Key][]string{db: {"eu-1"}}), want: want{Settled: true},
		},
		"FollowsNoMore": {
			reason: "The former follower loses its clusters.", before: followedBy(hashed("1", "h"), map[Key][]string{old: {"eu-1"}}),
			p: hashed("1", "h"), want: want{Followers: []Key{old}, Settled: true},
		},
		"BlockedLeads": {
			reason: "While the object is blocked, its followers keep their clusters.", before: followedBy(hashed("1", "h"), map[Key][]string{old: {"eu-1"}}),
			p: with(hashed("1", "h"), func(p *desiredState) { p.blocked = reasonPolicyNotFound }), want: want{Settled: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newState()
			if tc.before != nil {
				s.setDesired(key, tc.before, previous{}, tc.named)
				if tc.status != nil {
					tc.status.seq = tc.before.seq
					s.report(key, "eu-1", *tc.status)
				}
			}
			var got want
			got.Clusters, got.Policies, got.Followers = s.setDesired(key, tc.p, tc.was, tc.names)
			got.Settled = s.objects[key].behind == 0
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nsetDesired(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestReports: reports of many clusters are combined. The first result schedules a report, and the last result brings
// it forward. A result after the report schedules another one.
func TestReports(t *testing.T) {
	key := keyOf("configmaps", "web")
	s := newState()
	p := hashed("1", "h", "a", "b", "c")
	if settled, due := s.report(key, "a", clusterStatus{}); settled || !due {
		t.Errorf("report() of an unknown key: want no report queued, got %t, %t", settled, due)
	}
	s.setDesired(key, p, previous{}, nil)
	for i, step := range []struct {
		reason       string
		cluster      string
		read         bool // Whether the report is written before this step.
		settled, due bool
	}{
		{"The first result queues a report for later.", "a", false, false, false},
		{"A report is queued already.", "b", false, false, true},
		{"The last result makes the report due soon.", "c", false, true, true},
		{"A new result comes after the report.", "a", true, true, false},
	} {
		if step.read {
			s.snapshot(key)
		}
		settled, due := s.report(key, step.cluster, clusterStatus{seq: p.seq, state: refractv1alpha1.StateSynced})
		if settled != step.settled || due != step.due {
			t.Errorf("step %d: %s\nreport(): want %t, %t, got %t, %t", i, step.reason, step.settled, step.due, settled, due)
		}
	}
}

// TestClusterHasLeft: the state has no facts of a cluster that has left, whatever decision comes next. Decisions that
// began before the cluster left are not recorded.
func TestClusterHasLeft(t *testing.T) {
	key := keyOf("configmaps", "web")
	cases := map[string]struct {
		reason string
		first  bool // Whether the object has no decision before.
		next   *desiredState
	}{
		"First":   {"The rows from before a restart have the cluster.", true, hashed("1", "h", "us-1")},
		"Later":   {"The decision places on the cluster.", false, hashed("1", "h", "us-1")},
		"Blocked": {"A blocked decision keeps the clusters of the decision before.", false, &desiredState{uid: "1", blocked: reasonPolicyNotFound}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newState()
			if !tc.first {
				s.setDesired(key, hashed("1", "h", "eu-1", "us-1"), previous{}, nil)
			}
			began := s.names()
			s.leave("eu-1")
			underWay := hashed("1", "h", "eu-1", "us-1")
			underWay.naming = began
			s.setDesired(key, underWay, previous{placed: on("eu-1", "us-1"), statuses: []refractv1alpha1.ClusterStatus{{Name: "eu-1"}, {Name: "us-1"}}}, nil)
			if s.desired(key) == underWay {
				t.Errorf("%s\nsetDesired(): want the decision refused", tc.reason)
			}
			tc.next.naming = s.names()
			s.setDesired(key, tc.next, previous{placed: on("us-1")}, nil)
			if s.concerns(key, "eu-1") || !s.concerns(key, "us-1") {
				t.Errorf("%s\nsetDesired(): want facts of us-1 only", tc.reason)
			}
		})
	}
}

// TestTravelsWhileContentFails: while content cannot be rendered, its references are unknown.
func TestTravelsWhileContentFails(t *testing.T) {
	leader := keyOf("deployments", "web")
	follower := func(name string) Key { return keyOf("secrets", name) }
	both := []string{"eu-1", "us-1"}
	before := map[Key][]string{follower("keys"): both, follower("certs"): both, follower("local"): {"eu-1"}}
	good, bad := &target{variant: &variant{content: &content{hash: "h"}}}, &target{err: errors.New("revision k1 is not known")}
	for name, tc := range map[string]struct {
		reason  string
		targets map[string]*target
		now     map[Key][]string
		want    map[Key][]string
	}{
		"All": {"The revision is lost, so all followers stay.", map[string]*target{"eu-1": bad, "us-1": bad}, nil, before},
		"One": {
			"Followers stay on the failed cluster; on the others, the new content determines them.",
			map[string]*target{"eu-1": bad, "us-1": good}, map[Key][]string{follower("keys"): {"us-1"}, follower("new"): {"us-1"}},
			map[Key][]string{follower("keys"): both, follower("certs"): {"eu-1"}, follower("local"): {"eu-1"}, follower("new"): {"us-1"}},
		},
		"None":  {"The new content determines all followers.", map[string]*target{"eu-1": good, "us-1": good}, map[Key][]string{follower("keys"): both}, map[Key][]string{follower("keys"): both}},
		"Moved": {"The object leaves the cluster.", map[string]*target{"us-1": bad}, nil, map[Key][]string{follower("keys"): {"us-1"}, follower("certs"): {"us-1"}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState()
			s.setDesired(leader, &desiredState{uid: "1", followers: before, targets: map[string]*target{"eu-1": good, "us-1": good}}, previous{}, nil)
			p := &desiredState{uid: "1", followers: tc.now, targets: tc.targets}
			s.setDesired(leader, p, previous{}, nil)
			if diff := cmp.Diff(tc.want, s.objects[leader].followers); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.now, p.followers); diff != "" {
				t.Errorf("the argument was modified (-want +got):\n%s", diff)
			}
			if _, _, touched := s.setDesired(leader, &desiredState{uid: "1", followers: tc.now, targets: tc.targets}, previous{}, nil); len(touched) > 0 {
				t.Errorf("the same desired state again: want no key to decide, got %v", touched)
			}
		})
	}
}
