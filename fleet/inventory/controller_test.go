package inventory

import (
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestNotTakenOver: if the entry of a FederatedCluster is gone, an entry of the same name in another inventory does not
// take its place. The entry is not reported as gone before all inventories are read.
func TestNotTakenOver(t *testing.T) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, corev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{
		Name: "eu-1", Annotations: map[string]string{refractv1alpha1.InventoryAnnotation: "ClusterProfile/fleet/eu-1"},
	}}
	fc.Spec.APIEndpoint = "https://fleet:1"
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(fc).WithStatusSubresource(fc).Build()
	c := newController(Options{
		SystemNamespace: "sys", ClusterProfiles: []string{"fleet", "lab"}, Leads: func() bool { return true },
	}, hub, nil, events.NewFakeRecorder(10), logr.Discard())
	elsewhere := object(t, `{kind: ClusterProfile, metadata: {name: eu-1, namespace: lab}, status: {accessProviders: [{name: secretreader, cluster: {server: "https://lab:1"}}]}}`)
	look := func() *corev1alpha1.FederatedCluster {
		t.Helper()
		name := types.NamespacedName{Name: "eu-1"}
		if _, err := c.Reconcile(t.Context(), reconcile.Request{NamespacedName: name}); err != nil {
			t.Fatal(err)
		}
		now := &corev1alpha1.FederatedCluster{}
		if err := hub.Get(t.Context(), name, now); err != nil {
			t.Fatal(err)
		}
		if now.Spec.APIEndpoint != fc.Spec.APIEndpoint {
			t.Errorf("want the address unchanged, got %s", now.Spec.APIEndpoint)
		}
		return now
	}
	if err := c.listed[1].Replace([]any{elsewhere}, "1"); err != nil {
		t.Fatal(err)
	}
	if got := look().Status.Conditions; len(got) > 0 {
		t.Errorf("want no condition before all inventories are read, got %v", got)
	}
	if err := c.listed[0].Replace(nil, "1"); err != nil {
		t.Fatal(err)
	}
	if got := look().Status.Conditions; len(got) != 1 || got[0].Reason != corev1alpha1.ReasonGone {
		t.Errorf("want the condition to report that the entry is gone, got %v", got)
	}
}
