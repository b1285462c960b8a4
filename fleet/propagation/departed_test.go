package propagation

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestFollowersOutliveLeaders: the followers of an object stay for a minute after it is gone, so that its deletion and
// re-creation change nothing. Volumes need no such time: they wait for approval.
func TestFollowersOutliveLeaders(t *testing.T) {
	web, other := keyOf("deployments", "web"), keyOf("deployments", "other")
	leads := func(names ...string) *desiredState {
		p := &desiredState{followers: map[Key][]string{}}
		for _, resource := range []string{"configmaps", "persistentvolumeclaims"} {
			p.followers[keyOf(resource, "data")] = names
		}
		return p
	}
	gone := &desiredState{gone: true, cause: causeDeleted}
	type say struct {
		By     []string
		Stays  bool          // Whether the follower loses no cluster.
		Again  time.Duration // The delay until the next decision.
		Unsure bool
		Asked  bool // Whether all leaders of the follower (the objects that it travels with) were deleted by calls.
	}
	type step struct {
		reason string
		do     func(s *state)
		after  time.Duration
		want   say
		volume say
	}
	asked := say{Asked: true}
	cases := map[string]struct {
		before []Key
		steps  []step
	}{
		"Deleted": {[]Key{web}, []step{
			{reason: "The leader exists.", do: func(s *state) { s.setDesired(web, leads("m"), previous{}, nil) }, want: say{By: []string{"web"}}, volume: say{By: []string{"web"}}},
			{reason: "The leader was deleted.", do: func(s *state) { s.setDesired(web, gone, previous{}, nil) }, want: say{By: []string{"web"}, Stays: true, Again: leaderGrace, Asked: true}, volume: asked},
			{reason: "The leader's copies are gone, too.", do: func(s *state) { s.forget(web, gone) }, after: 59 * time.Second, want: say{By: []string{"web"}, Stays: true, Again: time.Second, Asked: true}, volume: asked},
			{reason: "The minute is over.", after: time.Second, want: asked, volume: asked},
		}},
		"CreatedAgain": {[]Key{web}, []step{
			{reason: "The leader exists.", do: func(s *state) { s.setDesired(web, leads("m"), previous{}, nil) }, want: say{By: []string{"web"}}, volume: say{By: []string{"web"}}},
			{reason: "The leader was deleted.", do: func(s *state) { s.setDesired(web, gone, previous{}, nil); s.forget(web, gone) }, after: 50 * time.Second, want: say{By: []string{"web"}, Stays: true, Again: 10 * time.Second, Asked: true}, volume: asked},
			{reason: "The leader exists again.", do: func(s *state) { s.setDesired(web, leads("m"), previous{}, nil) }, want: say{By: []string{"web"}}, volume: say{By: []string{"web"}}},
			{reason: "The leader was deleted again, so another minute begins.", do: func(s *state) { s.setDesired(web, gone, previous{}, nil) }, after: 30 * time.Second, want: say{By: []string{"web"}, Stays: true, Again: 30 * time.Second, Asked: true}, volume: asked},
		}},
		"Edited": {[]Key{web}, []step{
			{reason: "The leader exists.", do: func(s *state) { s.setDesired(web, leads("m"), previous{}, nil) }, want: say{By: []string{"web"}}, volume: say{By: []string{"web"}}},
			{reason: "The leader refers to nothing any more.", do: func(s *state) { s.setDesired(web, &desiredState{}, previous{}, nil) }},
		}},
		"OneOfTwo": {[]Key{web, other}, []step{
			{reason: "Both leaders exist.", do: func(s *state) {
				s.setDesired(web, leads("m", "n"), previous{}, nil)
				s.setDesired(other, leads("n"), previous{}, nil)
			}, want: say{By: []string{"other", "web"}}, volume: say{By: []string{"other", "web"}}},
			{reason: "One leader was deleted, and its clusters stay for a minute, too.", do: func(s *state) { s.setDesired(web, gone, previous{}, nil) }, want: say{By: []string{"other", "web"}, Stays: true, Again: leaderGrace}, volume: say{By: []string{"other"}}},
			{reason: "The minute is over.", after: leaderGrace, want: say{By: []string{"other"}}, volume: say{By: []string{"other"}}},
		}},
		"Restart": {[]Key{web}, []step{
			{reason: "After a restart, the Propagation says that the leader is gone. Its annotations are unknown.", do: func(s *state) { s.setDesired(web, gone, previous{}, nil) }, want: say{By: []string{"web"}, Stays: true, Again: leaderGrace, Unsure: true, Asked: true}, volume: asked},
			{reason: "The minute is over.", after: leaderGrace, want: asked, volume: asked},
		}},
		"RestartWithoutRecord": {[]Key{web}, []step{
			{reason: "Nothing is known of the leader, so a deletion by a call is not certain.", do: func(s *state) {
				for _, resource := range []string{"configmaps", "persistentvolumeclaims"} {
					s.setDesired(keyOf(resource, "data"), &desiredState{follows: []Key{web}}, previous{}, nil)
				}
				if got := s.dismiss(web); len(got) != 2 {
					t.Errorf("dismiss(): want both followers, got %v", got)
				}
			}, want: say{By: []string{"web"}, Stays: true, Again: leaderGrace, Unsure: true}},
			{reason: "The minute is over.", after: leaderGrace},
		}},
		"Blocked": {[]Key{web}, []step{
			{reason: "The leader has been blocked since the restart, so only the Propagations of its followers name it.", do: func(s *state) {
				s.setDesired(web, &desiredState{blocked: reasonPolicyNotFound}, previous{}, nil)
			}, want: say{By: []string{"web"}, Stays: true, Again: leaderGrace}, volume: say{By: []string{"web"}, Stays: true, Again: leaderGrace}},
			{reason: "The leader was deleted.", do: func(s *state) { s.setDesired(web, gone, previous{}, nil) }, want: say{By: []string{"web"}, Stays: true, Again: leaderGrace, Asked: true}, volume: asked},
			{reason: "The minute is over.", after: leaderGrace, want: asked, volume: asked},
		}},
		"DryRun": {[]Key{web}, []step{
			{reason: "The leader is in a dry run.", do: func(s *state) {
				s.setDesired(web, &desiredState{dryRun: true}, previous{}, nil)
			}, want: say{By: []string{"web"}, Stays: true, Again: leaderGrace}, volume: say{By: []string{"web"}, Stays: true, Again: leaderGrace}},
			{reason: "The leader was deleted.", do: func(s *state) { s.setDesired(web, gone, previous{}, nil) }, want: say{By: []string{"web"}, Stays: true, Again: leaderGrace, Asked: true}, volume: asked},
		}},
		"Failing": {[]Key{web}, []step{
			{reason: "The leader could not be rendered since the restart, so its references are unknown.", do: func(s *state) {
				s.setDesired(web, &desiredState{targets: map[string]*target{"m": {err: errors.New("no replicas")}}}, previous{}, nil)
			}, want: say{By: []string{"web"}, Again: leaderGrace}, volume: say{By: []string{"web"}, Again: leaderGrace}},
			{reason: "The leader was deleted.", do: func(s *state) { s.setDesired(web, gone, previous{}, nil) }, want: say{By: []string{"web"}, Stays: true, Again: leaderGrace, Asked: true}, volume: asked},
		}},
		"TypeDeleted": {[]Key{web}, []step{
			{reason: "The leader exists.", do: func(s *state) { s.setDesired(web, leads("m"), previous{}, nil) }, want: say{By: []string{"web"}}, volume: say{By: []string{"web"}}},
			{reason: "The leader's type was deleted.", do: func(s *state) { s.setDesired(web, &desiredState{gone: true, cause: causeType}, previous{}, nil) }, want: say{By: []string{"web"}, Stays: true, Again: leaderGrace}},
			{reason: "The minute is over.", after: leaderGrace},
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, now := newState(), time.Unix(0, 0)
			s.gone.now = func() time.Time { return now }
			look := func(resource string) say {
				key := keyOf(resource, "data")
				l := s.followed(key, tc.before)
				got := say{Stays: l.blocked, Again: l.until, Unsure: l.unsure, Asked: s.deleted(tc.before)}
				for _, leader := range l.by {
					got.By = append(got.By, leader.Name)
				}
				return got
			}
			for i, step := range tc.steps {
				if step.do != nil {
					step.do(s)
				}
				now = now.Add(step.after)
				if diff := cmp.Diff([]say{step.want, step.volume}, []say{look("configmaps"), look("persistentvolumeclaims")}); diff != "" {
					t.Errorf("step %d: %s\na ConfigMap, and a claim: -want, +got:\n%s", i, step.reason, diff)
				}
			}
		})
	}
}

// TestFollowersOfWhatIsCreatedAgain: a Deployment is deleted and created again while the cluster us-1 is not ready. For
// this cluster the Deployment is new, and a cluster that is not ready gets no new object. Its follower, a Secret, stays
// there like the copy of the former Deployment.
func TestFollowersOfWhatIsCreatedAgain(t *testing.T) {
	web, db := keyOf("", "web"), keyOf("secrets", "db")
	web.GroupResource = deployments.GroupResource()
	type history struct {
		*state
		inputs *inputs
		now    time.Time
	}
	synced := func(h *history, key Key, p *desiredState) {
		for _, c := range h.inputs.clusters {
			if c.Ready && p.targets[c.Name] != nil {
				h.report(key, c.Name, clusterStatus{seq: p.seq, state: refractv1alpha1.StateSynced})
			}
		}
	}
	follow := func(h *history) {
		was, _ := h.previous(db)
		s := *h.inputs
		s.followed = h.followed(db, was.follows)
		p := decide(source{gvr: secrets, kind: "Secret", object: sourceObject("v1", "Secret", "db", "")}, was, &s)
		h.setDesired(db, p, was, nil)
		synced(h, db, p)
	}
	lead := func(h *history, uid types.UID, is *unstructured.Unstructured) {
		if is != nil {
			is.SetUID(uid)
		}
		was, _ := h.previous(web)
		p := decide(source{gvr: deployments, kind: "Deployment", object: is}, was, h.inputs)
		if _, _, followers := h.setDesired(web, p, was, nil); slices.Contains(followers, db) {
			follow(h)
		}
		synced(h, web, p)
	}
	turn := func(h *history, ready bool, taints ...corev1.Taint) {
		h.inputs.clusters = slices.Clone(h.inputs.clusters)
		c := &h.inputs.clusters[len(h.inputs.clusters)-1]
		c.Ready, c.Taints = ready, taints
	}
	replaced := func(h *history) { lead(h, "2", mounting()) }
	edited := func(h *history) { lead(h, "2", sourceObject("apps/v1", "Deployment", "web", "pp")) }
	deleted := func(h *history) { lead(h, "", nil) }
	comesBack := func(h *history) { turn(h, true); follow(h) }
	wait := func(left time.Duration) func(*history) {
		return func(h *history) { h.now = h.now.Add(left); follow(h) }
	}
	type step struct {
		reason string
		do     func(*history)
		want   string
	}
	for name, tc := range map[string]struct {
		only  bool // Whether the fleet has no other cluster.
		alone bool // Whether the first Deployment does not refer to the Secret.
		late  bool // Whether the cluster was never ready.
		steps []step
	}{
		"Deleted": {steps: []step{
			{"The Deployment is replaced.", replaced, "on eu-1, us-1"},
			{"The new Deployment is deleted as well.", deleted, "on eu-1, us-1"},
			{"The cluster is ready again before the minute is over.", comesBack, "on eu-1, us-1"},
			{"The Secret stays until the minute is over.", wait(leaderGrace - time.Second), "on eu-1, us-1"},
			{"The minute is over.", wait(time.Second), "gone: "},
		}},
		"DeletedBetween": {steps: []step{
			{"The Deployment is deleted.", deleted, "on eu-1, us-1"},
			{"The Deployment is created again.", replaced, "on eu-1, us-1"},
		}},
		"DeletedForLong": {steps: []step{
			{"The Deployment is deleted.", deleted, "on eu-1, us-1"},
			{"An unready cluster does not extend the minute.", func(h *history) {
				h.now = h.now.Add(3 * leaderGrace)
				h.gone.add(keyOf("deployments", "other"), departure{}) // The former departure is forgotten.
				follow(h)
			}, "gone: "},
		}},
		"OnlyThere": {only: true, steps: []step{
			{"The Deployment is replaced.", replaced, "on us-1"},
			{"The new Deployment is deleted as well.", deleted, "on us-1"},
			{"The cluster is ready again before the minute is over.", comesBack, "on us-1"},
			{"The minute is over.", wait(leaderGrace), "gone: "},
		}},
		"Ready": {steps: []step{
			{"The Deployment is replaced.", replaced, "on eu-1, us-1"},
			{"The cluster is ready again, and the Secret is decided first.", comesBack, "on eu-1, us-1"},
			{"The Deployment is decided.", replaced, "on eu-1, us-1"},
		}},
		"Elsewhere": {steps: []step{
			{"The Deployment is replaced.", replaced, "on eu-1, us-1"},
			{"The cluster is ready again, but gets no new object. The Secret is decided first.", func(h *history) {
				turn(h, true, corev1.Taint{Key: "k", Effect: corev1.TaintEffectNoSchedule})
				follow(h)
			}, "on eu-1, us-1"},
			{"The Deployment is not placed there, and the Secret is decided again.", replaced, "on eu-1"},
		}},
		"SecretComes": {alone: true, steps: []step{
			{"The new Deployment refers to the Secret, which is new to the cluster, too.", replaced, "on eu-1"},
			{"The reference is removed: the Secret was never on the cluster.", edited, "gone: "},
		}},
		"ClusterComes": {late: true, steps: []step{
			{"The Deployment is replaced.", replaced, "on eu-1"},
			{"The reference is removed: neither object was ever on the cluster.", edited, "gone: "},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := &history{state: newState(), inputs: around(t, "", false, nil), now: time.Unix(0, 0)}
			h.gone.now = func() time.Time { return h.now }
			if tc.only {
				h.inputs.clusters = h.inputs.clusters[1:]
			}
			turn(h, !tc.late)
			if tc.alone {
				lead(h, "1", sourceObject("apps/v1", "Deployment", "web", "pp"))
			} else {
				lead(h, "1", mounting())
			}
			turn(h, false)
			for i, step := range tc.steps {
				step.do(h)
				if got := summary(h.desired(db)); got != step.want {
					t.Errorf("step %d: %s\nwant the Secret %q, got %q", i, step.reason, step.want, got)
				}
			}
		})
	}
}

// TestDepartedLeadersMarkTheirFollowers: while a leader is gone for a moment, the marks of its followers stay, so no
// copy is written again.
func TestDepartedLeadersMarkTheirFollowers(t *testing.T) {
	web, data := keyOf("deployments", "web"), keyOf("configmaps", "data")
	s := newState()
	p := &desiredState{followers: map[Key][]string{data: {"m"}}}
	p.orphan = "all"
	s.setDesired(web, p, previous{}, nil)
	s.setDesired(web, &desiredState{gone: true, cause: causeDeleted}, previous{}, nil)
	if got := s.followed(data, []Key{web}); got.orphan != "all" {
		t.Errorf("followed() = %+v: want the orphan annotation of the former leader", got)
	}
}

// TestLeadersMarkTheirFollowers: the leaders decide which copies of a follower stay, also while a leader cannot be
// decided or rendered, and this process does not know the followers of the leader from before.
func TestLeadersMarkTheirFollowers(t *testing.T) {
	web, data := keyOf("deployments", "web"), keyOf("configmaps", "data")
	for name, tc := range map[string]struct {
		reason string
		leader desiredState
		want   orphaning
	}{
		"Leads":   {"The leader names its followers.", desiredState{followers: map[Key][]string{data: {"m"}}}, "all"},
		"Blocked": {"The leader names a missing rollout policy.", desiredState{blocked: reasonRolloutPolicy}, "all"},
		"DryRun":  {"The leader is in a dry run.", desiredState{dryRun: true}, "all"},
		"Fails":   {"The leader cannot be rendered, so its references are unknown.", desiredState{targets: map[string]*target{"m": {err: errors.New("no")}}}, "all"},
		"Others":  {"The leader does not refer to the object any more.", desiredState{targets: map[string]*target{"m": {}}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newState()
			tc.leader.orphan = "all"
			s.setDesired(web, &tc.leader, previous{}, nil)
			if got := s.followed(data, []Key{web}); got.orphan != tc.want {
				t.Errorf("%s\nfollowed(): want orphan %q, got %q", tc.reason, tc.want, got.orphan)
			}
		})
	}
}

// TestFollowersForgetWhatNobodySays: one object names another as its follower. The other may name the first as well, or
// an object may name itself. The orphan annotation of the first object is set, and later removed; all marks must then
// be removed. If each mark came from the mark of the other copy, both would stay forever.
func TestFollowersForgetWhatNobodySays(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		names  [2]string // The follower that each object names.
	}{
		"Itself":    {"An object does not travel with itself.", [2]string{"0", ""}},
		"OneWay":    {"A follower gets the mark of its leader.", [2]string{"1", ""}},
		"EachOther": {"Two objects travel with each other.", [2]string{"1", "0"}},
	} {
		t.Run(name, func(t *testing.T) {
			s, in := newState(), around(t, "", false, nil)
			in.resource = func(schema.GroupKind) (schema.GroupResource, bool) { return configMaps.GroupResource(), true }
			keys := []Key{keyOf("configmaps", "0"), keyOf("configmaps", "1")}
			decideOn := func(i int, orphan string) (again []Key) {
				obj := sourceObject("v1", "ConfigMap", keys[i].Name, "pp")
				annotations := map[string]string{corev1alpha1.OrphanAnnotation: orphan}
				if tc.names[i] != "" {
					annotations[corev1alpha1.FollowersAnnotation] = `[{"kind":"ConfigMap","name":"` + tc.names[i] + `"}]`
				}
				obj.SetAnnotations(annotations)
				was, _ := s.previous(keys[i])
				with := *in
				with.followed = s.followed(keys[i], was.follows)
				p := decide(source{gvr: configMaps, kind: "ConfigMap", object: obj}, was, &with)
				_, _, again = s.setDesired(keys[i], p, was, nil)
				return again
			}
			said := []string{"", ""}
			edit := func(orphan string) (marks []string) {
				said[0] = orphan
				for next := []Key{keys[0]}; len(next) > 0; next = next[1:] {
					i := slices.Index(keys, next[0])
					next = append(next, decideOn(i, said[i])...)
				}
				for _, key := range keys {
					marks = append(marks, s.desired(key).keeping.Orphan)
				}
				return marks
			}
			decideOn(1, "")
			edit("")
			want := []string{"all", "all"}
			if tc.names[0] != "1" {
				want[1] = ""
			}
			if diff := cmp.Diff(want, edit("all")); diff != "" {
				t.Errorf("%s\nmarks of copies with the annotation: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]string{"", ""}, edit("")); diff != "" {
				t.Errorf("%s\nmarks of copies after the annotation is removed: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestDeparturesAreForgotten: the memory for gone objects is bounded, however many objects are created and deleted.
func TestDeparturesAreForgotten(t *testing.T) {
	now := time.Unix(0, 0)
	d := newDepartures(func() time.Time { return now })
	for i := range 1000 {
		d.add(numbered(i), departure{})
		now = now.Add(time.Second)
	}
	if most := int(2*leaderGrace/time.Second) + 1; len(d.byKey) > most || len(d.queue) > most {
		t.Errorf("after 1000 s there are %d departures, and %d in the queue: want at most %d", len(d.byKey), len(d.queue), most)
	}
	d.remove(numbered(999))
	d.add(numbered(999), departure{})
	now = now.Add(leaderGrace)
	if left := d.left(d.byKey[numbered(999)]); left > 0 {
		t.Errorf("a leader that came back and went again: %s left after a minute", left)
	}
}
