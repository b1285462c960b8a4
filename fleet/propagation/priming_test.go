package propagation

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestPriming: the start waits for decisions about existing objects, and about objects of which only a Propagation
// exists. Otherwise their deletions would reach the guards in small groups. It does not wait forever.
func TestPriming(t *testing.T) {
	gone, unserved := keyOf("configmaps", "gone"), keyOf("podsecuritypolicies", "strict")
	unserved.Group = "policy" // A group of Kubernetes: an unserved type there is no proof that the object is gone.
	type want struct{ Before, Decided, Late bool }
	cases := map[string]struct {
		reason  string
		reports []Key
		refuses error // The hub's error for a list of the objects.
		forgets bool  // Whether the key is forgotten after the decision although its report stays.
		want    want
	}{
		"Nothing":   {reason: "No decision is missing.", want: want{true, true, true}},
		"Gone":      {reason: "The object has not been decided yet.", reports: []Key{gone}, want: want{false, true, true}},
		"Several":   {reason: "All decisions are awaited.", reports: []Key{gone, keyOf("configmaps", "other")}, want: want{false, true, true}},
		"Unserved":  {reason: "The decision may never be possible, which must not delay the readiness.", reports: []Key{unserved}, want: want{false, true, true}},
		"Refused":   {reason: "The list may succeed later, or never.", reports: []Key{gone}, refuses: errors.New("no"), want: want{false, false, true}},
		"Forgotten": {reason: "A finalizer of another program keeps the Propagation.", reports: []Key{gone}, forgets: true, want: want{false, true, true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := starting(t, tc.refuses, tc.reports...)
				ctx, stop := context.WithCancel(t.Context())
				go func() { _ = c.prime(ctx) }()
				defer synctest.Wait()
				defer stop()
				var got want
				time.Sleep(time.Second)
				got.Before = c.state.complete.Load()
				for i, key := range tc.reports {
					if time.Sleep(time.Second); i > 0 && c.state.complete.Load() {
						t.Errorf("%s\nprime(): want a wait for all decisions, and not only for the first", tc.reason)
					}
					if _, err := c.decider.decideOne(ctx, key, priorityResync); !errors.Is(err, tc.refuses) {
						t.Fatal(err)
					}
					if tc.forgets {
						c.decider.forget(key, c.state.desired(key))
					}
				}
				time.Sleep(time.Second)
				got.Decided = c.state.complete.Load()
				time.Sleep(primingPatience)
				got.Late = c.state.complete.Load()
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s\nprime(): -want, +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// starting returns a controller that has just begun. Its hub serves ConfigMaps, has none, and has these reports.
func starting(t *testing.T, refuses error, reports ...Key) *Controller {
	t.Helper()
	hub := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		configMaps: "ConfigMapList", namespaceResource: "NamespaceList", crdResource: "CustomResourceDefinitionList",
	})
	hub.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return refuses != nil, nil, refuses })
	src := newSources(hub, nil, discard)
	src.discovered = true
	src.types[configMaps.GroupResource()] = &sourceType{gvr: configMaps, kind: "ConfigMap", namespaced: true, views: []*view{{synced: true}, {synced: true}}}
	c := connected(t, nil, src, Options{Leadership: &replica{leads: true}})
	for _, key := range reports {
		c.decider.records.items[key] = &known{uid: "r", source: "u", status: &refractv1alpha1.PropagationStatus{}}
	}
	c.begin()
	return c
}

// TestPrimingGoesOn: the wait continues as long as there is progress.
func TestPrimingGoesOn(t *testing.T) {
	var p priming
	began := time.Unix(0, 0)
	now := began
	for left := 100; left > 1; left-- {
		now = now.Add(primingPatience)
		if p.over(left, now) {
			t.Fatalf("over(): after %s with %d left: want it to wait", now.Sub(began), left)
		}
	}
	now = now.Add(primingPatience)
	if p.over(2, now) {
		t.Error("over(): want a wait of more than primingPatience without progress")
	}
	if now = now.Add(time.Second); !p.over(2, now) {
		t.Error("over(): want no wait for decisions that fail")
	}
}
