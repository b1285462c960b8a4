package propagation

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// gate is a depot that does not answer to lists of ConfigMaps after it was shut until it is opened, or the client goes away.
type gate struct {
	*depot
	shut   bool
	opened chan struct{}
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

// TestWaitsForItsList: a copy whose type is just being listed is looked at when that has ended, and not again and again before. If the
// list fails, it says so.
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
			g := &gate{depot: newDepot(), opened: make(chan struct{})}
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
			until := func(what string, holds func() bool) {
				t.Helper()
				if err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 20*time.Second, true, func(context.Context) (bool, error) {
					return holds(), nil
				}); err != nil {
					t.Fatalf("waiting until %s: %v", what, err)
				}
			}
			apply := func() time.Duration {
				result, err := a.applyOne(t.Context(), key)
				if err != nil {
					t.Fatal(err)
				}
				return result.RequeueAfter
			}
			// The look through the types that [joined] has seen ended may be told of only now, once.
			until("it waits for the list", func() bool { return apply() == unlistedRetry })
			close(g.opened)
			until("it is due, and done", func() bool {
				if a.queue.depth() == 0 {
					return false
				}
				apply()
				return statusOf(a.state, key) == tc.want
			})
		})
	}
}

// TestUnlisted: what was looked at before a list ended, and waits after it, has missed that: it is looked at again soon.
func TestUnlisted(t *testing.T) {
	var u unlisted
	web, api := keyOf("configmaps", "web"), keyOf("configmaps", "api")
	seen := u.seen()
	if got := u.wait(web, seen); got != unlistedRetry {
		t.Errorf("wait(): want %s, got %s", unlistedRetry, got)
	}
	if diff := cmp.Diff([]Key{web}, u.listed()); diff != "" {
		t.Errorf("listed(): -want, +got:\n%s", diff)
	}
	if got := u.wait(api, seen); got >= time.Second {
		t.Errorf("wait(): want it soon, got %s", got)
	}
	if got := u.listed(); got != nil {
		t.Errorf("listed(): want nothing that waits, got %v", got)
	}
}
