package propagation

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
)

// TestDispatch: a key is passed to the appliers of the clusters that a decision concerns. A report is requested for
// clusters without an applier, and for objects that need no work from an applier.
func TestDispatch(t *testing.T) {
	web := keyOf("configmaps", "web")
	namespace := Key{GroupResource: namespaceResource.GroupResource()}
	namespace.Name = "shop"
	cases := map[string]struct {
		reason   string
		key      Key
		p        *desiredState
		clusters []string
		idle     bool // Whether no cluster has an applier yet.
		want     []string
	}{
		"Concerned": {"Only the clusters concerned get the key.", web, &desiredState{}, []string{"us-1"}, false, []string{"us-1 configmaps web: dependency"}},
		"Namespace": {"The objects in the namespace wait for it.", namespace, &desiredState{}, []string{"us-1"}, false, []string{"us-1 namespaces shop: required"}},
		"NobodyHas": {"No cluster has work, so a report is requested.", web, &desiredState{}, nil, false, []string{"report configmaps web: after 100ms"}},
		"BlockedSomewhere": {
			"The appliers change nothing, so a report with the reason is requested.", web, &desiredState{blocked: reasonPolicyNotFound}, []string{"eu-1"}, false,
			[]string{"eu-1 configmaps web: dependency", "report configmaps web: after 100ms"},
		},
		"NotConnected": {"The cluster has no applier. The report waits for other clusters of the object.", web, &desiredState{}, []string{"eu-1"}, true, []string{"report configmaps web: after 2s"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := station(t, nil, &replica{leads: true}, interceptor.Funcs{})
				if tc.idle {
					clear(c.dispatcher.appliers)
				}
				c.dispatcher.dispatch(tc.key, tc.p, tc.clusters, priorityDependency)
				if diff := cmp.Diff(tc.want, asked(c)); diff != "" {
					t.Errorf("%s\ndispatch(): -want, +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestStraysAreDispatched: if a member has a copy without a desired state, its applier checks the copy, and the copy
// counts as existing.
func TestStraysAreDispatched(t *testing.T) {
	s := newDepot()
	s.put(s.copyOf("stray", "h"))
	c, m := joined(t, s, 0, onHub(nil))
	a, _ := idle(t, c, m)
	<-m.Copies.Watch(configMaps)
	stray, absent := keyOf("configmaps", "stray"), keyOf("configmaps", "absent")
	if !c.dispatcher.anywhere(stray) || c.dispatcher.anywhere(absent) {
		t.Error("anywhere(): want true for the existing copy only")
	}
	for _, key := range []Key{stray, absent} {
		c.dispatcher.dispatch(key, &desiredState{}, nil, priorityDependency)
	}
	c.dispatcher.dispatch(stray, &desiredState{targets: map[string]*target{"m": {}}}, nil, priorityDependency)
	if diff := cmp.Diff([]string{"m configmaps stray: dependency"}, waitingIn("m", a.queue)); diff != "" {
		t.Errorf("want a check of the copy that is to be deleted: dispatch(): -want, +got:\n%s", diff)
	}
	a.queue.queue = queue[Key]{}
	c.dispatcher.dispatch(stray, &desiredState{targets: map[string]*target{"m": {}}}, nil, priorityDependency)
	if diff := cmp.Diff([]string(nil), waitingIn("m", a.queue)); diff != "" {
		t.Errorf("want no check of a correct copy: dispatch(): -want, +got:\n%s", diff)
	}
}

// TestStrayIsNotForgotten: a member has a copy without a desired state, and the hub has neither its object nor its
// Propagation. The key stays known until the applier has checked the copy. Otherwise the applier would enqueue the key
// for a decision again and again, and the copy would stay.
func TestStrayIsNotForgotten(t *testing.T) {
	gone := &desiredState{gone: true, cause: causeNamespace}
	for name, tc := range map[string]struct {
		reason string
		hub    string // The hub of the copy.
		p      *desiredState
		was    []refractv1alpha1.ClusterStatus
		asked  []string // The appliers that check the copy.
		known  bool     // Whether a copy is known to exist before the applier has looked.
	}{
		"Leads":         {"No other copy was known.", theHub, gone, nil, []string{"m configmaps web: dependency"}, true},
		"OfAnotherHub":  {"The copy stays, so there is nothing to wait for.", "another", gone, nil, nil, false},
		"ObjectIsThere": {"The copy counts only after the applier has found it.", theHub, &desiredState{uid: "1"}, nil, []string{"m configmaps web: dependency"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newDepot()
			copied := s.copyOf("web", "h")
			copied.Annotations[refractv1alpha1.SourceAnnotation] = sourceOf(tc.hub, "1", configMaps.GroupResource(), "shop", "web")
			s.put(copied)
			_, m := joined(t, s, 0, onHub(nil))
			<-m.Copies.Watch(configMaps)
			c := station(t, nil, &replica{leads: true}, interceptor.Funcs{})
			clear(c.dispatcher.appliers)
			a, _ := idle(t, c, m)
			key := keyOf("configmaps", "web")
			p := *tc.p
			clusters, _, _ := c.state.setDesired(key, &p, previous{uid: "1", statuses: tc.was}, nil)
			c.dispatcher.dispatch(key, &p, clusters, priorityDependency)
			if diff := cmp.Diff(tc.asked, waitingIn("m", a.queue)); diff != "" {
				t.Errorf("%s\ndispatch(): -want, +got:\n%s", tc.reason, diff)
			}
			if _, is := c.state.clusterStatus(key, "m"); is != tc.known {
				t.Errorf("%s\nwant the cluster known to have a copy: %v, got %v", tc.reason, tc.known, is)
			}
			if !p.gone {
				return
			}
			report := func(reason string, want bool) {
				t.Helper()
				if _, err := c.reporter.reportOne(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				if got := c.state.desired(key) != nil; got != want {
					t.Errorf("%s\n%s: want known=%v, got %v", tc.reason, reason, want, got)
				}
			}
			report("before the applier has looked", tc.known)
			c.state.report(key, "m", clusterStatus{absent: true})
			report("when the copy is gone", false)
			if n := c.state.copies["m"]["shop"]; n != (copyCount{}) {
				t.Errorf("%s\nwant no copy counted any more, got %+v", tc.reason, n)
			}
		})
	}
}

// TestRecord: only the present applier of a member records statuses. Statuses of requests that began before the member
// left, or before its connection changed, are ignored.
func TestRecord(t *testing.T) {
	web := keyOf("configmaps", "web")
	done := clusterStatus{state: refractv1alpha1.StateSynced, hash: "h"}
	type want struct{ Settled, Due, OK, Known bool }
	cases := map[string]struct {
		reason  string
		targets map[string]*target
		then    string // The change of the member meanwhile.
		want    want
	}{
		"Last":     {"All clusters have a status, so a report is due.", map[string]*target{"eu-1": {}}, "", want{Settled: true, OK: true, Known: true}},
		"First":    {"The status of another cluster is missing.", map[string]*target{"eu-1": {}, "us-1": {}}, "", want{OK: true, Known: true}},
		"Left":     {"The member has left the fleet.", map[string]*target{"eu-1": {}}, "left", want{}},
		"Replaced": {"The member has another applier.", map[string]*target{"eu-1": {}}, "replaced", want{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := station(t, nil, &replica{}, interceptor.Funcs{})
			p := &desiredState{targets: tc.targets}
			c.state.setDesired(web, p, previous{}, nil)
			a := c.dispatcher.applier("eu-1")
			switch tc.then {
			case "left":
				delete(c.dispatcher.appliers, "eu-1")
			case "replaced":
				idle(t, c, &member.Member{Name: "eu-1", Copies: &member.Copies{}})
			}
			s := done
			s.seq = p.seq
			var got want
			got.Settled, got.Due, got.OK = c.dispatcher.record(a, web, s)
			_, got.Known = c.state.clusterStatus(web, "eu-1")
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nrecord(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestDispatcherIsTold: changes on members and on the hub reach the right queues.
func TestDispatcherIsTold(t *testing.T) {
	known, unknown := keyOf("configmaps", "known"), keyOf("configmaps", "unknown")
	cases := map[string]struct {
		reason string
		tell   func(c *Controller)
		want   []string
	}{
		"Copy":              {"The member checks the copy.", func(c *Controller) { c.dispatcher.copyChanged(c.dispatcher.applier("eu-1").member, known) }, []string{"eu-1 configmaps known: dependency"}},
		"CopyOfNothing":     {"First it must be known whether the copy has an object.", func(c *Controller) { c.dispatcher.copyChanged(c.dispatcher.applier("eu-1").member, unknown) }, []string{"decide configmaps unknown: resync"}},
		"CopyOfBefore":      {"An event of a replaced member says nothing about its successor.", func(c *Controller) { c.dispatcher.copyChanged(&member.Member{Name: "eu-1"}, known) }, nil},
		"CopyOfAnothers":    {"The member has no applier.", func(c *Controller) { c.dispatcher.copyChanged(&member.Member{Name: "left"}, known) }, nil},
		"Namespace":         {"The labels of the namespace may change on every member.", func(c *Controller) { c.dispatcher.namespaceChanged("shop") }, []string{"eu-1 namespace shop: dependency", "us-1 namespace shop: dependency"}},
		"Decide":            {"The applier does not know the desired state.", func(c *Controller) { c.dispatcher.decide(unknown, priorityResync) }, []string{"decide configmaps unknown: resync"}},
		"ReportAfter":       {"The applier has a new status.", func(c *Controller) { c.dispatcher.reportAfter(known, time.Second) }, []string{"report configmaps known: after 1s"}},
		"ReportLater":       {"More will report.", func(c *Controller) { c.dispatcher.reportLater(known) }, []string{"report configmaps known: after 2s"}},
		"Pend":              {"More deletions may become pending soon, which changes the token.", func(c *Controller) { c.dispatcher.pend("eu-1") }, []string{"pend eu-1: after 1.5s"}},
		"LeadershipChanged": {"This replica begins to lead.", func(c *Controller) { c.LeadershipChanged() }, []string{"own all: required"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := station(t, nil, &replica{leads: true}, interceptor.Funcs{})
				c.state.setDesired(known, &desiredState{}, previous{}, nil)
				tc.tell(c)
				if diff := cmp.Diff(tc.want, asked(c)); diff != "" {
					t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestClusterLeaves: the statuses of a cluster that has left are forgotten, because no event would ever correct them.
// They disappear from reports, and all objects are placed again.
func TestClusterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		web := keyOf("configmaps", "web")
		c := station(t, nil, &replica{leads: true}, interceptor.Funcs{})
		c.state.setDesired(web, &desiredState{}, previous{statuses: []refractv1alpha1.ClusterStatus{{Name: "left"}, {Name: "eu-1"}}}, nil)
		c.dispatcher.clusterChanged("left")
		if got := asked(c); got != nil {
			t.Errorf("clusterChanged(): want no effect before the start, got %v", got)
		}
		c.dispatcher.ctx = t.Context()
		before := c.state.epoch.Load()
		c.dispatcher.clusterChanged("left")
		if diff := cmp.Diff([]string{"place all: after 50ms", "report configmaps web: after 2s"}, asked(c)); diff != "" {
			t.Errorf("clusterChanged(): asked: -want, +got:\n%s", diff)
		}
		if c.state.epoch.Load() != before+1 {
			t.Error("clusterChanged(): decisions under way include the cluster: want another epoch")
		}
		if c.state.concerns(web, "left") || !c.state.concerns(web, "eu-1") {
			t.Error("clusterChanged(): want only the statuses of this cluster forgotten")
		}
	})
}

// TestMemberJoins: on the leading replica, a member gets exactly one applier, which replaces the applier of a former
// member of the same name.
func TestMemberJoins(t *testing.T) {
	c, m := joined(t, &shop{}, 0)
	d := c.dispatcher
	ctx, stop := context.WithCancel(t.Context())
	defer d.wait()
	defer stop()
	before, ended := idle(t, c, &member.Member{Name: "m", Copies: &member.Copies{}})
	d.start(ctx)
	a := d.applier("m")
	if !ended() || a == before || a == nil || a.member != m {
		t.Fatal("start(): want the applier of the former member ended, and a new one in its place")
	}
	d.clusterChanged("m")
	if d.applier("m") != a {
		t.Error("clusterChanged(): want the same applier while the member is unchanged")
	}
	if held, known := d.pendingDeletions("m"); held != nil || !known {
		t.Error("pendingDeletions(): want none")
	}
	if !d.emptied("m") || d.emptied("other") {
		t.Error("emptied(): want true only for a member that this replica writes to")
	}
	stop()
	d.wait()
	d.clusterChanged("m") // No applier starts any more: it would not end.
	d.wait()
}

// TestMembersChangeHands: takeOver keeps the applier of an unchanged connection, and does not check its copies again.
// It ends the applier of a former connection, and all appliers when this replica no longer leads.
func TestMembersChangeHands(t *testing.T) {
	web := keyOf("configmaps", "web")
	c, m := joined(t, &shop{}, 0)
	d := c.dispatcher
	d.ctx = t.Context()
	kept, _ := idle(t, c, m)
	c.state.setDesired(web, &desiredState{targets: map[string]*target{"m": {}}}, previous{}, nil)
	own := func() {
		t.Helper()
		if _, err := d.takeOver(t.Context(), struct{}{}); err != nil {
			t.Fatal(err)
		}
		d.running.Wait()
	}
	own()
	if got := waitingIn("m", kept.queue); d.applier("m") != kept || got != nil {
		t.Errorf("takeOver(): want the same applier without new work while nothing has changed, got %v", got)
	}
	if diff := cmp.Diff([]string{"decide configmaps web: resync"}, waitingIn("decide", c.decider.queue)); diff != "" {
		t.Errorf("takeOver(): want the objects decided: -want, +got:\n%s", diff)
	}
	stale, ended := idle(t, c, &member.Member{Name: "m", Copies: &member.Copies{}})
	stale.cluster = c.members
	d.newApplier = func(*member.Member) (*applier, error) { return nil, errors.New("none is needed") }
	own()
	if !ended() || d.applier("m") != nil {
		t.Error("takeOver(): want the applier of the former connection ended")
	}
	d.lead = &lead{&replica{}, c.members}
	_, ended = idle(t, c, m)
	own()
	if !ended() || d.applier("m") != nil || c.members.Get("m") != nil {
		t.Error("takeOver(): want the applier and the connection ended when this replica does not lead")
	}
}

// TestClusterIsEmptied: a cluster is empty when all objects are known and none of them has a copy or a target there.
func TestClusterIsEmptied(t *testing.T) {
	web := keyOf("configmaps", "web")
	cases := map[string]struct {
		reason   string
		complete bool
		p        *desiredState
		was      previous
		want     bool
	}{
		"Nothing":    {"The cluster has no copy.", true, &desiredState{}, previous{}, true},
		"Unknown":    {"Not all objects have been decided.", false, &desiredState{}, previous{}, false},
		"ToHave":     {"The cluster is to get a copy.", true, &desiredState{targets: map[string]*target{"eu-1": {}}}, previous{}, false},
		"Has":        {"The cluster reports a copy.", true, &desiredState{}, previous{statuses: []refractv1alpha1.ClusterStatus{{Name: "eu-1"}}}, false},
		"OthersHave": {"Only other clusters have copies.", true, &desiredState{targets: map[string]*target{"us-1": {}}}, previous{}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := station(t, nil, &replica{leads: true}, interceptor.Funcs{})
			c.state.complete.Store(tc.complete)
			c.state.setDesired(web, tc.p, tc.was, nil)
			if got := c.dispatcher.emptied("eu-1"); got != tc.want {
				t.Errorf("%s\nemptied(): want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}

// TestMemberIsLookedAtAgain: when a user has approved deletions, or the member is reachable again, the applier checks
// the waiting deletions and all copies that the member has or should have.
func TestMemberIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := station(t, nil, &replica{leads: true}, interceptor.Funcs{})
		held, has, wanted, elsewhere := keyOf("configmaps", "held"), keyOf("configmaps", "has"), keyOf("configmaps", "wanted"), keyOf("configmaps", "elsewhere")
		a := c.dispatcher.applier("eu-1")
		a.guard.pending.add(removal{Key: held})
		c.state.setDesired(has, &desiredState{}, previous{statuses: []refractv1alpha1.ClusterStatus{{Name: "eu-1"}}}, nil)
		c.state.setDesired(wanted, &desiredState{targets: map[string]*target{"eu-1": {}}}, previous{}, nil)
		c.state.setDesired(elsewhere, &desiredState{targets: map[string]*target{"us-1": {}}}, previous{}, nil)
		c.dispatcher.lookAgain(a)
		want := []string{"eu-1 configmaps has: resync", "eu-1 configmaps held: dependency", "eu-1 configmaps wanted: resync"}
		if diff := cmp.Diff(want, asked(c)); diff != "" {
			t.Errorf("lookAgain(): -want, +got:\n%s", diff)
		}
		if pending, known := c.dispatcher.pendingDeletions("eu-1"); !known || pending == nil || pending.Copies != 1 {
			t.Errorf("pendingDeletions(): want the pending deletion, got %+v", pending)
		}
	})
}
