package propagation

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestFloorJustSet: a floor was set before an edit, but this replica sees the edit first. The edit changes no cluster.
// Without a floor, the edit takes effect, and one request covers all edits that were seen before it.
func TestFloorJustSet(t *testing.T) {
	key := keyOf("configmaps", "web")
	for name, tc := range map[string]struct {
		leads, floor, fails bool
		want                bool // Whether the edit takes effect.
	}{
		"Follower":   {floor: true},
		"Leader":     {leads: true, floor: true},
		"NoFloor":    {want: true},
		"Unreadable": {leads: true, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			obj := sourceObject("v1", "ConfigMap", "web", "pp")
			obj.SetUID("1")
			obj.SetResourceVersion("1")
			obj.Object["data"] = map[string]any{"x": "old"}
			s, _ := hubOf(t, obj)
			shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
			reads := 0
			c := station(t, s, &replica{leads: tc.leads}, interceptor.Funcs{
				Get: func(ctx context.Context, c client.WithWatch, at client.ObjectKey, obj client.Object, o ...client.GetOption) error {
					if _, is := obj.(*corev1.Namespace); is {
						if reads++; tc.fails {
							return errors.New("no answer")
						}
					}
					return c.Get(ctx, at, obj, o...)
				},
			}, shop)
			duplicated(c)
			c.decider.floor = func(string) (map[string]string, bool) { return nil, true } // In the cache of this replica, the namespace has no floor.
			c.decider.records.items[key] = &known{source: "1", placed: on("eu-1", "us-1")}
			decide := func() error {
				_, err := c.decider.decideOne(t.Context(), key, priorityChanged)
				return err
			}
			if err := decide(); err != nil {
				t.Fatal(err)
			}
			before := c.state.desired(key)
			if before == nil || before.targets["us-1"] == nil || reads != 0 {
				t.Fatalf("want the first copies decided without a request, got %s and %d reads", summary(before), reads)
			}
			if tc.floor {
				shop.Labels = map[string]string{refractv1alpha1.ClusterRolloutPolicyLabel: "careful"}
				if err := c.reporter.revisions.client.Update(t.Context(), shop); err != nil {
					t.Fatal(err)
				}
			}
			edited := obj.DeepCopy()
			edited.Object["data"] = map[string]any{"x": "new"}
			edited.SetResourceVersion("2")
			s.types[key.GroupResource].views[0].fetched(edited)
			c.decider.sourceChanged(key, false)
			if err := decide(); (err != nil) != tc.fails {
				t.Fatalf("want an error: %t, got %v", tc.fails, err)
			}
			if is := c.state.desired(key) != before; is != tc.want || reads != 1 {
				t.Errorf("want the edit to take effect: %t, with one read, got %t and %d", tc.want, is, reads)
			}
			again := obj.DeepCopy()
			again.Object["data"] = map[string]any{"x": "newer"}
			again.SetResourceVersion("3")
			s.types[key.GroupResource].views[0].fetched(again) // This version counts as seen together with the edit.
			if err := decide(); tc.want && (err != nil || reads != 1) {
				t.Errorf("want no further request, got %d reads, %v", reads, err)
			}
		})
	}
}

// TestFloorBeforeTheStart: a namespace got a floor, and then an object was edited, both before this replica began. Its
// cache of namespaces does not show the floor yet. The copies keep their content.
func TestFloorBeforeTheStart(t *testing.T) {
	key := keyOf("configmaps", "web")
	for name, tc := range map[string]struct{ floor, placed, want bool }{
		"Floor":     {floor: true, placed: true},
		"NoFloor":   {placed: true, want: true},
		"FirstCopy": {floor: true, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := hubOf(t, sourceObject("v1", "ConfigMap", "web", "pp"))
			shop := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
			if tc.floor {
				shop.Labels = map[string]string{refractv1alpha1.ClusterRolloutPolicyLabel: "careful"}
			}
			c := station(t, s, &replica{leads: true}, interceptor.Funcs{}, shop)
			duplicated(c)
			c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
			if tc.placed {
				c.decider.records.items[key] = &known{
					source: "1", placed: on("us-1"), status: &refractv1alpha1.PropagationStatus{Clusters: []refractv1alpha1.ClusterStatus{{Name: "us-1"}}},
				}
			}
			if _, err := c.decider.decideOne(t.Context(), key, priorityResync); err != nil {
				t.Fatal(err)
			}
			if got := c.state.desired(key) != nil; got != tc.want {
				t.Errorf("want the object decided: %t, got %t", tc.want, got)
			}
		})
	}
}
