package propagation

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// TestNamespaceWaits: if a policy would remove three objects from both of their clusters, all of them wait, although
// none of them would wait alone.
func TestNamespaceWaits(t *testing.T) {
	names := []string{"a", "b", "c"}
	key := func(name string) Key { return keyOf("configmaps", name) }
	ref := tree.Policy{Kind: corev1alpha1.KindPropagationPolicy, Namespace: "shop", Name: "pp"}
	cases := map[string]struct {
		reason  string
		objects int // The number of objects that name the policy.
		stays   bool
		held    string
	}{
		"All": {
			reason: "The namespace would leave all of its six clusters.", objects: 3,
			held: "would leave 2 of 2 clusters (m-0, m-1), and all objects of the namespace together 6 of 6",
		},
		"OneAlone": {reason: "The loss of two clusters needs no approval.", objects: 1},
		"AnotherStays": {
			reason: "The namespace stays on all clusters, by an object of another policy.", objects: 3, stays: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			sources, _ := hubOf(t,
				sourceObject("v1", "ConfigMap", "a", "pp"), sourceObject("v1", "ConfigMap", "b", "pp"),
				sourceObject("v1", "ConfigMap", "c", "pp"), sourceObject("v1", "ConfigMap", "stays", "deleted"))
			var fleet []client.Object
			for i := range 6 {
				fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("m-%d", i)}}
				fc.Status.Conditions = []corev1alpha1.ClusterCondition{{Type: corev1alpha1.ClusterReady, Status: metav1.ConditionTrue}}
				fleet = append(fleet, fc)
			}
			c := station(t, sources, &replica{leads: true}, interceptor.Funcs{}, fleet...)
			for _, fc := range fleet {
				if _, err := c.clusters.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: fc.GetName()}}); err != nil {
					t.Fatal(err)
				}
			}
			c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
			for i, object := range names[:tc.objects] {
				placed := on(fmt.Sprintf("m-%d", 2*i), fmt.Sprintf("m-%d", 2*i+1))
				c.state.setDesired(key(object), &desiredState{uid: "1", placed: placed}, previous{}, []tree.Policy{ref})
			}
			if tc.stays {
				c.state.setDesired(key("stays"), &desiredState{uid: "1", placed: on("m-0", "m-1", "m-2", "m-3", "m-4", "m-5")}, previous{}, nil)
			}
			policy := &corev1alpha1.PropagationPolicy{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pp", UID: "p", Generation: 2},
				Spec:       corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDuplicate, ClusterSelector: map[string]string{"region": "ue"}},
			}
			c.decider.policies.store(policy)
			decide := func(object string) *desiredState {
				t.Helper()
				if _, err := c.decider.decideOne(t.Context(), key(object), priorityChanged); err != nil {
					t.Fatal(err)
				}
				return c.state.desired(key(object))
			}
			for i, object := range names[:tc.objects] {
				p := decide(object)
				if (p.held != nil) != (tc.held != "") {
					t.Fatalf("%s\n%s waits: %v, want %q", tc.reason, object, p.held, tc.held)
				}
				if i == 0 && p.held != nil && p.held.String() != tc.held {
					t.Errorf("%s\n%s waits: %s, want %s", tc.reason, object, p.held, tc.held)
				}
			}
			if tc.held == "" {
				return
			}
			approved := policy.DeepCopy()
			approved.Annotations = map[string]string{refractv1alpha1.ApprovePlacementAnnotation: c.state.desired(key("a")).held.asked.Shared}
			approved.Status.PlacementHeld = &corev1alpha1.PlacementHeld{Token: c.state.desired(key("a")).held.asked.Shared}
			c.decider.policies.store(approved)
			for _, object := range names {
				if p := decide(object); p.held != nil || len(p.placed) > 0 {
					t.Errorf("%s is approved, but waits: %v, on %v", object, p.held, p.placed)
				}
			}
		})
	}
}
