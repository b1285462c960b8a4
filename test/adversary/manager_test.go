package adversary

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/fleet/member"
	"refract.dev/test/harness"
)

// TestWritesInOurName is row 9: on a member, a user applies the fields of a copy under the name of Refract's field
// manager. Neither the owners of the fields nor the hash annotation shows the change, but Refract must revert it.
func TestWritesInOurName(t *testing.T) {
	t.Parallel()
	ns, _ := namespace(t)
	for _, tc := range []struct {
		name, reason string
		after        time.Duration
	}{
		{"later", "The apply has a later time.", 1100 * time.Millisecond},
		{"at-once", "The time may be the same, so managedFields may show no difference.", 0},
	} {
		given(t, "hub", ns, configMap(tc.name, labelled, ""))
		everywhere(t, "configmap", ns, tc.name, []string{"1", "1"}, "data", "size")
		<-time.After(tc.after)
		forged := inOurName(t, "member-1", ns, tc.name)
		harness.Eventually(t, tc.reason, func(ctx context.Context) error {
			now := &corev1.ConfigMap{}
			if err := clients["member-1"].Get(ctx, client.ObjectKey{Namespace: ns, Name: tc.name}, now); err != nil {
				return err
			}
			if now.Data["size"] != "1" || now.ResourceVersion == forged {
				return fmt.Errorf("the size is %q", now.Data["size"])
			}
			return nil
		})
	}
	eventually(t, "the field manager in the report", "refract", func() string {
		u := get(t, "hub", "propagations.refract.dev", ns, "later.configmaps")
		clusters, _, _ := unstructured.NestedSlice(u.Object, "status", "clusters")
		for _, c := range clusters {
			if row, _ := c.(map[string]any); row["name"] == "member-1" {
				manager, _, _ := unstructured.NestedString(row, "drift", "manager")
				return manager
			}
		}
		return ""
	})
}

// TestFieldsGivenBack: a user changes a copy so often that its correction is delayed, and then restores Refract's
// ownership of all fields. Refract must still revert the change.
func TestFieldsGivenBack(t *testing.T) {
	t.Parallel()
	ns, _ := namespace(t)
	const name = "given-back"
	given(t, "hub", ns, configMap(name, labelled, ""))
	everywhere(t, "configmap", ns, name, []string{"1", "1"}, "data", "size")
	edit := func(change func(*corev1.ConfigMap)) {
		t.Helper()
		harness.Eventually(t, "another user writes the copy", func(ctx context.Context) error {
			after := &corev1.ConfigMap{}
			if err := clients["member-1"].Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, after); err != nil {
				return err
			}
			change(after)
			return clients["member-1"].Update(ctx, after, client.FieldOwner("else"))
		})
	}
	corrected := func(reason string) (is *corev1.ConfigMap) {
		t.Helper()
		harness.Eventually(t, reason, func(ctx context.Context) error {
			is = &corev1.ConfigMap{}
			if err := clients["member-1"].Get(ctx, client.ObjectKey{Namespace: ns, Name: name}, is); err != nil {
				return err
			}
			if is.Data["size"] != "1" {
				return fmt.Errorf("the size is %q", is.Data["size"])
			}
			return nil
		})
		return is
	}
	foreign := func(c *corev1.ConfigMap) { c.Data["size"] = "666" }
	var was *corev1.ConfigMap
	for range 3 {
		edit(foreign)
		was = corrected("the first three changes are reverted at once")
	}
	edit(foreign)
	edit(func(c *corev1.ConfigMap) { c.ManagedFields = was.ManagedFields })
	corrected("so is a change under Refract's ownership")
}

// inOurName applies the same fields as Refract with another value, and returns the new resource version of the copy.
func inOurName(t *testing.T, cluster, ns, name string) string {
	t.Helper()
	forged, err := forge(t.Context(), clients[cluster], get(t, cluster, "configmap", ns, name), "666")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range forged.GetManagedFields() {
		if e.Manager == member.FieldManager && e.Operation != metav1.ManagedFieldsOperationApply {
			t.Fatalf("want an apply: %v", e)
		}
	}
	return forged.GetResourceVersion()
}

// forge applies a ConfigMap with another size under Refract's field manager, and returns the result.
func forge(ctx context.Context, as client.Client, is *unstructured.Unstructured, size string) (*unstructured.Unstructured, error) {
	forged := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"size": size},
		"metadata": map[string]any{"namespace": is.GetNamespace(), "name": is.GetName()},
	}}
	forged.SetLabels(is.GetLabels())
	forged.SetAnnotations(is.GetAnnotations())
	err := as.Patch(ctx, forged, client.Apply, client.FieldOwner(member.FieldManager), client.ForceOwnership) //nolint:staticcheck // The object has no Go type with an apply configuration.
	return forged, err
}
