package propagation

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/internal/poll"
)

// lockedDepot is a depot that, once shut, does not answer lists of ConfigMaps until it is opened or the client
// disconnects.
type lockedDepot struct {
	*depot
	shut   bool
	opened chan struct{}
}

func (g *lockedDepot) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var shut, refused bool
	var status metav1.Status
	g.depot.change(func() {
		shut = g.shut
		status, refused = g.refuse["LIST"]
	})
	if shut && r.Method == http.MethodGet && r.URL.Path == "/api/v1/configmaps" {
		select {
		case <-g.opened:
		case <-r.Context().Done():
		}
	}
	if refused && r.URL.Path == "/api/v1/configmaps" {
		g.fail(w, status)
		return
	}
	g.depot.ServeHTTP(w, r)
}

// TestWaitsForItsList: a copy whose type is being listed is checked when the list ends, and not repeatedly before. If
// the list fails, its row says so, and it is checked when another list has ended.
func TestWaitsForItsList(t *testing.T) {
	forbidden := metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}
	for name, tc := range map[string]struct {
		refuse map[string]metav1.Status
		want   string
	}{
		"Listed":  {nil, "Synced"},
		"Refused": {map[string]metav1.Status{"LIST": forbidden}, "Failed Unreadable"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &lockedDepot{depot: newDepot(), opened: make(chan struct{})}
			c, m := joined(t, g, 0, onHub(nil))
			a, err := c.dispatcher.newApplier(m)
			if err != nil {
				t.Fatal(err)
			}
			c.dispatcher.mu.Lock()
			c.dispatcher.appliers[m.Name] = runningApplier{applier: a}
			c.dispatcher.mu.Unlock()
			g.depot.change(func() { g.shut, g.refuse = true, tc.refuse })
			key := keyOf("configmaps", "web")
			c.state.setDesired(key, wanted(t, key.Name, "m"), previous{}, nil)
			apply := func() time.Duration {
				result, err := a.applyOne(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				return result.RequeueAfter
			}
			// The end of the sweep that [joined] has waited for may be reported only now, once.
			poll.Until(t, "the copy waits for the list", func() bool { return apply() == unlistedRetry })
			close(g.opened)
			poll.Until(t, "the copy is due, and done", func() bool {
				if a.queue.depth() == 0 {
					return false
				}
				apply()
				return statusOf(a.state, key) == tc.want
			})
			if tc.refuse == nil {
				return
			}
			waits := func() bool {
				a.unlisted.mu.Lock()
				defer a.unlisted.mu.Unlock()
				return len(a.unlisted.waiting) > 0
			}
			poll.Until(t, "the copy waits for another list", func() bool {
				apply()
				return waits()
			})
			g.depot.change(func() { g.refuse = nil })
			poll.Until(t, "the copy does not wait any more, because that list has ended", func() bool { return !waits() })
		})
	}
}

// TestWaitsForTheRight: a copy that is to be deleted, on a cluster that forbids lists of its type, waits for that
// right, and the list is retried. Otherwise the cluster could not leave until the next sweep of all types, and no
// status would show the reason.
func TestWaitsForTheRight(t *testing.T) {
	g := &lockedDepot{depot: newDepot()}
	g.refuse["LIST"] = metav1.Status{Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden}
	key := keyOf("configmaps", "web")
	g.put(g.copyOf(key.Name, "h"))
	c, m := joined(t, g, 0, onHub(nil))
	a, err := c.dispatcher.newApplier(m)
	if err != nil {
		t.Fatal(err)
	}
	c.dispatcher.mu.Lock() // The cluster is being searched for copies.
	c.dispatcher.appliers[m.Name] = runningApplier{applier: a}
	c.dispatcher.mu.Unlock()
	was := previous{uid: "1", statuses: []refractv1alpha1.ClusterStatus{{Name: "m", State: refractv1alpha1.StateSynced}}}
	c.state.setDesired(key, &desiredState{gone: true, cause: causeDeleted, of: "1"}, was, nil)
	apply := func() {
		t.Helper()
		if _, err := a.applyOne(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	apply()
	if got := statusOf(a.state, key); got != "Failed Unreadable" {
		t.Errorf("want a status that the copy cannot be listed, got %q", got)
	}
	g.change(func() { delete(g.refuse, "LIST") })
	poll.Until(t, "the copy is known", func() bool {
		_, found := m.Copies.Get(key)
		return found == member.Present
	})
	apply()
	if got := g.sent(); !slices.Contains(got, "DELETE web") {
		t.Errorf("want the copy deleted, got %v", got)
	}
}

// TestUnlisted: a waiting copy is checked when the list of its type has ended or failed. If its last check has already
// seen the failure, it is checked only when a list has ended.
func TestUnlisted(t *testing.T) {
	web, api, secret := keyOf("configmaps", "web"), keyOf("configmaps", "api"), keyOf("secrets", "web")
	cases := map[string]struct {
		reason string
		of     schema.GroupResource
		known  bool
		want   []Key
	}{
		"Listed":      {"The copies are known now, even after a list that failed.", web.GroupResource, true, []Key{api, web}},
		"Failed":      {"Each copy is checked once, to report the failure.", web.GroupResource, false, []Key{web}},
		"Swept":       {"The copies of all types are known.", member.AllTypes, true, []Key{api, web, secret}},
		"NotSwept":    {"The lists of all types have failed.", member.AllTypes, false, []Key{web, secret}},
		"AnotherType": {"No copy of the type waits.", schema.GroupResource{Resource: "services"}, true, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var u unlisted
			for key, failed := range map[Key]bool{web: false, api: true, secret: false} {
				if got := u.wait(key, u.look(key), failed); got != unlistedRetry {
					t.Errorf("wait(): want %s, got %s", unlistedRetry, got)
				}
			}
			seen := u.look(web)
			u.wait(web, seen, false)
			got := u.listed(tc.of, tc.known)
			slices.SortFunc(got, compareKeys)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nlisted(): -want, +got:\n%s", tc.reason, diff)
			}
			if got := u.listed(tc.of, tc.known); got != nil {
				t.Errorf("listed(): want each copy checked once, got %v", got)
			}
			if got := u.wait(web, seen, false); got >= time.Second {
				t.Errorf("%s\nwait(): a check that began before the end of the list must be repeated soon, got %s", tc.reason, got)
			}
			for _, key := range []Key{web, api, secret} {
				u.look(key)
			}
			if len(u.waiting) != 0 {
				t.Errorf("look(): want no waiting copy, got %v", u.waiting)
			}
		})
	}
}
