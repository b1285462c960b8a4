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

// TestWritesInOurName is row 9: who applies, on a member, the very fields that Refract
// does under the name of its field manager, changes neither who owns which field nor the
// hash of the content.
func TestWritesInOurName(t *testing.T) {
	t.Parallel()
	ns, _ := namespace(t)
	for _, tc := range []struct {
		name, reason string
		after        time.Duration
	}{
		{"later", "The time of the apply is another.", 1100 * time.Millisecond},
		{"at-once", "The time may be the same, and nobody else has left a trace.", 0},
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
				return fmt.Errorf("it is %q", now.Data["size"])
			}
			return nil
		})
	}
	eventually(t, "what the report says of it", "refract", func() string {
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

// TestFieldsGivenBack: who changes a copy until that is corrected later, and then writes down
// that all fields are Refract's as they were, has changed it no less.
func TestFieldsGivenBack(t *testing.T) {
	t.Parallel()
	ns, _ := namespace(t)
	const name = "given-back"
	given(t, "hub", ns, configMap(name, labelled, ""))
	everywhere(t, "configmap", ns, name, []string{"1", "1"}, "data", "size")
	edit := func(change func(*corev1.ConfigMap)) {
		t.Helper()
		harness.Eventually(t, "somebody writes the copy", func(ctx context.Context) error {
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
				return fmt.Errorf("it is %q", is.Data["size"])
			}
			return nil
		})
		return is
	}
	foreign := func(c *corev1.ConfigMap) { c.Data["size"] = "666" }
	var was *corev1.ConfigMap
	for range 3 {
		edit(foreign)
		was = corrected("what is changed is corrected at once, three times")
	}
	edit(foreign)
	edit(func(c *corev1.ConfigMap) { c.ManagedFields = was.ManagedFields })
	corrected("and what only seems not to be changed, too")
}

// inOurName applies what Refract did, with another value, and returns the version that
// the copy then has.
func inOurName(t *testing.T, cluster, ns, name string) string {
	t.Helper()
	forged, err := forge(t.Context(), clients[cluster], get(t, cluster, "configmap", ns, name), "666")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range forged.GetManagedFields() {
		if e.Manager == member.FieldManager && e.Operation != metav1.ManagedFieldsOperationApply {
			t.Fatalf("It was to be an apply: %v", e)
		}
	}
	return forged.GetResourceVersion()
}

// forge applies a ConfigMap with another size, as if Refract did, and returns it as it is
// then.
func forge(ctx context.Context, as client.Client, is *unstructured.Unstructured, size string) (*unstructured.Unstructured, error) {
	forged := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"size": size},
		"metadata": map[string]any{"namespace": is.GetNamespace(), "name": is.GetName()},
	}}
	forged.SetLabels(is.GetLabels())
	forged.SetAnnotations(is.GetAnnotations())
	err := as.Patch(ctx, forged, client.Apply, client.FieldOwner(member.FieldManager), client.ForceOwnership) //nolint:staticcheck // Of what is there, not of a type.
	return forged, err
}
