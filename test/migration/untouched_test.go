package migration

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"refract.dev/conversion/migration"
)

// TestUntouched: a migration changes only the stored form of objects, no matter who wrote them. A second run writes
// nothing.
func TestUntouched(t *testing.T) {
	t.Parallel()
	for name, k := range map[string]kind{
		"Namespaced": {},
		"Cluster":    {scope: "Cluster"},
		"Webhook":    {webhook: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testUntouched(t, install(t, k))
		})
	}
}

func testUntouched(t *testing.T, k *kind) { //nolint:thelper // It is the test.
	k.create("plain", 3)
	k.applied("v1", "applied", "one", map[string]any{"size": 3})
	k.applied("v2", "applied", "two", map[string]any{"note": "by another, in another version"})
	for name, patch := range map[string]string{
		"plain-00000": `{"metadata":{"managedFields":[{}]}}`, // Removes the managed fields.
		"plain-00001": `{"metadata":{"finalizers":["example.org/hold"],"labels":{"a":"b"}}}`,
	} {
		if _, err := k.in("v1").Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	status := []byte(`{"status":{"phase":"Ready","deep":{"n":[1,null,"x"]}}}`)
	if _, err := k.in("v1").Patch(t.Context(), "plain-00002", types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
	if err := k.in("v1").Delete(t.Context(), "plain-00001", metav1.DeleteOptions{}); err != nil { // The finalizer keeps the object.
		t.Fatal(err)
	}
	t.Cleanup(func() { release(t, k, "plain-00001") })

	k.mustApply(versions{storage: "v2"})
	before := k.listed()
	if diff := cmp.Diff(map[string]int{"v1": 4}, k.storedIn()); diff != "" {
		t.Fatalf("-want, +got:\n%s", diff)
	}
	r := k.migrate(k.options())
	if r.Outcome != migration.Migrated || r.Rewritten != 4 || r.Unchanged != 0 || r.Objects != 4 {
		t.Errorf("Run(...): want 4 objects rewritten, got %+v", r)
	}
	if diff := cmp.Diff([]string{"v1", "v2"}, r.StoredVersionsBefore); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	k.wantMigrated(4)
	after := k.listed()
	for name, was := range before {
		is := after[name]
		if is == nil {
			t.Errorf("%s is lost", name)
			continue
		}
		if diff := cmp.Diff(same(was), same(is)); diff != "" {
			t.Errorf("%s: only its resourceVersion may change: -before, +after:\n%s", name, diff)
		}
		if was.GetResourceVersion() == is.GetResourceVersion() {
			t.Errorf("%s was not written", name)
		}
	}

	r = k.migrate(k.options())
	if r.Outcome != migration.Migrated || r.Rewritten != 0 || r.Unchanged != 4 || r.Passes != 1 {
		t.Errorf("Run(...) again: want one pass that writes nothing, got %+v", r)
	}
	if diff := cmp.Diff(versionsOf(after), versionsOf(k.listed())); diff != "" {
		t.Errorf("A second run must write nothing: -before, +after:\n%s", diff)
	}
}

// release removes the finalizer of an object in deletion.
func release(t *testing.T, k *kind, name string) {
	t.Helper()
	ctx := contextAfter(t)
	_, err := k.in("v2").Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Error(err)
	}
}

func versionsOf(objects map[string]*unstructured.Unstructured) map[string]string {
	out := map[string]string{}
	for name, o := range objects {
		out[name] = o.GetResourceVersion()
	}
	return out
}

// TestDryRun: a dry run writes nothing.
func TestDryRun(t *testing.T) {
	t.Parallel()
	k := install(t, kind{webhook: true})
	k.create("some", 250)
	k.mustApply(versions{storage: "v2"})
	before := versionsOf(k.listed())
	o := k.options()
	o.DryRun = true
	r := k.migrate(o)
	if r.Outcome != migration.WouldMigrate || r.Objects != 250 || r.Failed != 0 {
		t.Errorf("Run(...): want 250 objects that could be rewritten, got %+v", r)
	}
	if diff := cmp.Diff(before, versionsOf(k.listed())); diff != "" {
		t.Errorf("-before, +after:\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int{"v1": 250}, k.storedIn()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if stored, annotation := k.definition(); !slices.Equal(stored, []string{"v1", "v2"}) || annotation != "" {
		t.Errorf("want nothing written to the definition, got %v and %q", stored, annotation)
	}
}

// TestRemovableAfterwards: the API server rejects the removal of a version in which objects may be stored, and allows
// it after the migration.
func TestRemovableAfterwards(t *testing.T) {
	t.Parallel()
	k := install(t, kind{})
	k.create("some", 5)
	k.mustApply(versions{storage: "v2"})
	const want = "missing from spec.versions; v1 was previously a storage version, and must remain in spec.versions until a storage " +
		"migration ensures no data remains persisted in v1 and removes v1 from status.storedVersions"
	if err := k.apply(versions{storage: "v2", without: true}); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("Removing v1: want 422 with %q, got %v", want, err)
	}
	k.migrate(k.options())
	k.mustApply(versions{storage: "v2", without: true})
	if got := len(k.listed()); got != 5 {
		t.Errorf("want 5 objects in v2 without v1, got %d", got)
	}
}

// TestUnserved: a migration does not need the old version to be served.
func TestUnserved(t *testing.T) {
	t.Parallel()
	k := install(t, kind{webhook: true})
	k.create("some", 5)
	k.applied("v1", "applied", "one", map[string]any{"size": 3})
	k.mustApply(versions{storage: "v2", unservedA: true})
	before := k.listed()
	if r := k.migrate(k.options()); r.Outcome != migration.Migrated || r.Rewritten != 6 {
		t.Errorf("Run(...): want 6 objects rewritten, got %+v", r)
	}
	k.wantMigrated(6)
	for name, is := range k.listed() {
		if diff := cmp.Diff(same(before[name]), same(is)); diff != "" {
			t.Errorf("%s: -before, +after:\n%s", name, diff)
		}
	}
}
