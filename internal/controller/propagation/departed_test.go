package propagation

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestFollowersOutliveLeaders: what travels with an object stays for a minute after that is gone, so that to
// delete and create it again changes nothing. Volumes need no such time: they wait for approval.
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
		Stays  bool          // Whether it loses no cluster.
		Again  time.Duration // When that is to be looked at again.
		Unsure bool
		Asked  bool // Whether all that it travelled with was deleted by calls.
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
			{reason: "It is there.", do: func(s *state) { s.setDesired(web, leads("m"), previous{}, nil) }, want: say{By: []string{"web"}}, volume: say{By: []string{"web"}}},
			{reason: "It was deleted.", do: func(s *state) { s.setDesired(web, gone, previous{}, nil) }, want: say{By: []string{"web"}, Stays: true, Again: leaderGrace, Asked: true}, volume: asked},
			{reason: "Its copies are gone, too.", do: func(s *state) { s.forget(web, gone) }, after: 59 * time.Second, want: say{By: []string{"web"}, Stays: true, Again: time.Second, Asked: true}, volume: asked},
			{reason: "A minute is over.", after: time.Second, want: asked, volume: asked},
		}},
		"CreatedAgain": {[]Key{web}, []step{
			{reason: "It is there.", do: func(s *state) { s.setDesired(web, leads("m"), previous{}, nil) }, want: say{By: []string{"web"}}, volume: say{By: []string{"web"}}},
			{reason: "It was deleted.", do: func(s *state) { s.setDesired(web, gone, previous{}, nil); s.forget(web, gone) }, after: 50 * time.Second, want: say{By: []string{"web"}, Stays: true, Again: 10 * time.Second, Asked: true}, volume: asked},
			{reason: "It is there again.", do: func(s *state) { s.setDesired(web, leads("m"), previous{}, nil) }, want: say{By: []string{"web"}}, volume: say{By: []string{"web"}}},
			{reason: "It was deleted again: another minute begins.", do: func(s *state) { s.setDesired(web, gone, previous{}, nil) }, after: 30 * time.Second, want: say{By: []string{"web"}, Stays: true, Again: 30 * time.Second, Asked: true}, volume: asked},
		}},
		"Edited": {[]Key{web}, []step{
			{reason: "It is there.", do: func(s *state) { s.setDesired(web, leads("m"), previous{}, nil) }, want: say{By: []string{"web"}}, volume: say{By: []string{"web"}}},
			{reason: "It refers to nothing any more.", do: func(s *state) { s.setDesired(web, &desiredState{}, previous{}, nil) }},
		}},
		"OneOfTwo": {[]Key{web, other}, []step{
			{reason: "Both are there.", do: func(s *state) {
				s.setDesired(web, leads("m", "n"), previous{}, nil)
				s.setDesired(other, leads("n"), previous{}, nil)
			}, want: say{By: []string{"other", "web"}}, volume: say{By: []string{"other", "web"}}},
			{reason: "One was deleted: the clusters of that one are not lost either.", do: func(s *state) { s.setDesired(web, gone, previous{}, nil) }, want: say{By: []string{"other", "web"}, Stays: true, Again: leaderGrace}, volume: say{By: []string{"other"}}},
			{reason: "A minute is over.", after: leaderGrace, want: say{By: []string{"other"}}, volume: say{By: []string{"other"}}},
		}},
		"Restart": {[]Key{web}, []step{
			{reason: "A record says that it is gone; what it was is not known.", do: func(s *state) { s.setDesired(web, gone, previous{}, nil) }, want: say{By: []string{"web"}, Stays: true, Again: leaderGrace, Unsure: true, Asked: true}, volume: asked},
			{reason: "A minute is over.", after: leaderGrace, want: asked, volume: asked},
		}},
		"RestartWithoutRecord": {[]Key{web}, []step{
			{reason: "Nothing is known of it: nobody says that it was deleted by a call.", do: func(s *state) {
				for _, resource := range []string{"configmaps", "persistentvolumeclaims"} {
					s.setDesired(keyOf(resource, "data"), &desiredState{follows: []Key{web}}, previous{}, nil)
				}
				if got := s.dismiss(web); len(got) != 2 {
					t.Errorf("dismiss(): want both that travelled with it, got %v", got)
				}
			}, want: say{By: []string{"web"}, Stays: true, Again: leaderGrace, Unsure: true}},
			{reason: "A minute is over.", after: leaderGrace},
		}},
		"TypeDeleted": {[]Key{web}, []step{
			{reason: "It is there.", do: func(s *state) { s.setDesired(web, leads("m"), previous{}, nil) }, want: say{By: []string{"web"}}, volume: say{By: []string{"web"}}},
			{reason: "Its type was deleted.", do: func(s *state) { s.setDesired(web, &desiredState{gone: true, cause: causeType}, previous{}, nil) }, want: say{By: []string{"web"}, Stays: true, Again: leaderGrace}},
			{reason: "A minute is over.", after: leaderGrace},
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

// TestDepartedLeadersMarkTheirFollowers: a copy is not written again because its leader is gone for a moment.
func TestDepartedLeadersMarkTheirFollowers(t *testing.T) {
	web, data := keyOf("deployments", "web"), keyOf("configmaps", "data")
	s := newState()
	p := &desiredState{followers: map[Key][]string{data: {"m"}}}
	p.keeping.Orphan = "all"
	s.setDesired(web, p, previous{}, nil)
	s.setDesired(web, &desiredState{gone: true, cause: causeDeleted}, previous{}, nil)
	if got := s.followed(data, []Key{web}); got.orphan != "all" {
		t.Errorf("followed() = %+v: want what the leader said of its copies", got)
	}
}

// TestDeparturesAreForgotten, so that a hub on which objects come and go costs nothing.
func TestDeparturesAreForgotten(t *testing.T) {
	now := time.Unix(0, 0)
	d := newDepartures(func() time.Time { return now })
	for i := range 1000 {
		d.add(numbered(i), departure{})
		now = now.Add(time.Second)
	}
	if most := int(2*leaderGrace/time.Second) + 1; len(d.byKey) > most || len(d.queue) > most {
		t.Errorf("after 1000 s there are %d, and %d in the queue: want at most %d", len(d.byKey), len(d.queue), most)
	}
	d.remove(numbered(999))
	d.add(numbered(999), departure{})
	now = now.Add(leaderGrace)
	if left := d.left(d.byKey[numbered(999)]); left > 0 {
		t.Errorf("one that came and went again: %s left after a minute", left)
	}
}
