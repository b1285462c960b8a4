package migration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"refract.dev/conversion/migration"
	"refract.dev/test/harness"
)

// contextAfter returns a context for cleanups.
func contextAfter(t *testing.T) context.Context {
	t.Helper()
	return context.WithoutCancel(t.Context())
}

// TestUnreadable: if an object cannot be converted, the migration writes nothing, and its error names the object.
func TestUnreadable(t *testing.T) {
	t.Parallel()
	k := install(t, kind{webhook: true})
	k.create("good", 20)
	for _, name := range []string{"bad-1", "good-00007-bad"} {
		if _, err := k.in("v1").Create(t.Context(), k.object("v1", name, -1), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := k.apply(versions{storage: "v2"}); err != nil {
		t.Fatal(err)
	}
	for _, dry := range []bool{true, false} {
		o := k.options()
		o.DryRun = dry
		r := k.migrate(o)
		if r.Outcome != migration.Refused || r.Failed != 2 || len(r.Failures) != 2 {
			t.Fatalf("Run(...): want two objects that cannot be read, got %+v", r)
		}
		got := []string{r.Failures[0].Object, r.Failures[1].Object}
		if diff := cmp.Diff([]string{"default/bad-1", "default/good-00007-bad"}, got); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
		if want := "spec.size: -1 is negative"; !strings.Contains(r.Failures[0].Message, want) {
			t.Errorf("want the reason of the converter, %q, got %q", want, r.Failures[0].Message)
		}
	}
	if diff := cmp.Diff(map[string]int{"v1": 22}, k.storedIn()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if stored, annotation := k.definition(); !slices.Equal(stored, []string{"v1", "v2"}) || annotation != "" {
		t.Errorf("want nothing written to the definition, got %v and %q", stored, annotation)
	}

	k.mend()
	if r := k.migrate(k.options()); r.Outcome != migration.Migrated {
		t.Errorf("Run(...): want it migrated, got %+v", r)
	}
	k.wantMigrated(22)
}

// TestUnreadableInEveryVersion checks the report on an object that no version can read.
func TestUnreadableInEveryVersion(t *testing.T) {
	t.Parallel()
	k := install(t, kind{webhook: true})
	k.create("good", 3)
	if _, err := k.in("v1").Create(t.Context(), k.object("v1", "good-00001-bad", -1), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := k.apply(versions{storage: "v2", unservedA: true}); err != nil {
		t.Fatal(err)
	}
	r := k.migrate(k.options())
	if r.Outcome != migration.Refused || len(r.Failures) != 1 {
		t.Fatalf("Run(...): want a refusal, got %+v", r)
	}
	if diff := cmp.Diff("(the object after default/good-00001)", r.Failures[0].Object); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestTightened: a stricter schema does not prevent a migration, because the objects do not change.
func TestTightened(t *testing.T) {
	t.Parallel()
	k := install(t, kind{})
	k.create("some", 9)
	k.mustApply(versions{storage: "v2", rules: []string{"self.size < 2"}})
	if r := k.migrate(k.options()); r.Outcome != migration.Migrated || r.Rewritten != 9 {
		t.Errorf("Run(...): want 9 objects rewritten, got %+v", r)
	}
	k.wantMigrated(9)
}

// TestDenied: the error names the objects whose writes an admission policy rejects, and the definition keeps its
// versions.
func TestDenied(t *testing.T) {
	t.Parallel()
	k := install(t, kind{})
	k.create("some", 9) // Their sizes are 0 to 6, 0 and 1.
	k.mustApply(versions{storage: "v2"})
	deny(t, k, "object.spec.size < 5")

	for _, dry := range []bool{true, false} {
		o := k.options()
		o.DryRun = dry
		r := k.migrate(o)
		if r.Outcome != migration.Failed || r.Failed != 2 || len(r.Failures) != 2 {
			t.Fatalf("Run(...): want two objects that cannot be written, got %+v", r)
		}
		got := []string{r.Failures[0].Object, r.Failures[1].Object}
		if diff := cmp.Diff([]string{"default/some-00005", "default/some-00006"}, got); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
		want := map[string]int{"v1": 9}
		if !dry {
			want = map[string]int{"v1": 2, "v2": 7}
		}
		if diff := cmp.Diff(want, k.storedIn()); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
		if stored, annotation := k.definition(); !slices.Equal(stored, []string{"v1", "v2"}) || annotation != "" {
			t.Errorf("want unchanged storedVersions and no annotation, got %v and %q", stored, annotation)
		}
	}
}

// deny installs an admission policy for updates, and waits until it is in force.
func deny(t *testing.T, k *kind, unless string) {
	t.Helper()
	name := k.name()
	for _, o := range []map[string]any{
		{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": name},
			"spec": map[string]any{
				"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
					"apiGroups": []any{k.group}, "apiVersions": []any{"*"}, "resources": []any{"widgets"}, "operations": []any{"UPDATE"},
				}}},
				"validations": []any{map[string]any{"expression": unless, "message": "it is too large"}},
			},
		},
		{
			"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": name},
			"spec": map[string]any{"policyName": name, "validationActions": []any{"Deny"}},
		},
	} {
		resource := "validatingadmissionpolicies"
		if o["kind"] == "ValidatingAdmissionPolicyBinding" {
			resource = "validatingadmissionpolicybindings"
		}
		r := k.hub.objects.Resource(schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: resource})
		if _, err := r.Create(t.Context(), &unstructured.Unstructured{Object: o}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := r.Delete(contextAfter(t), name, metav1.DeleteOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	harness.Eventually(t, "the policy is in force", func(ctx context.Context) error {
		_, err := k.in("v2").Patch(ctx, "some-00005", types.MergePatchType, []byte(`{"spec":{"note":"x"}}`),
			metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errors.New("the policy allows the update")
		}
		if !strings.Contains(err.Error(), "it is too large") {
			return fmt.Errorf("want the denial of the policy, got %w", err)
		}
		return nil
	})
}

// TestNotStorage checks errors that the migration finds before it reads an object.
func TestNotStorage(t *testing.T) {
	t.Parallel()
	k := install(t, kind{})
	cases := map[string]struct {
		reason   string
		name, to string
		want     error
	}{
		"NotStorage":   {reason: "New objects would be stored in v1.", name: k.name(), to: "v2", want: migration.ErrNotStorage},
		"NoVersion":    {reason: "The definition does not have the version.", name: k.name(), to: "v3", want: migration.ErrNoVersion},
		"NoDefinition": {reason: "The definition does not exist.", name: "gadgets." + k.group, to: "v2", want: migration.ErrNoDefinition},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := migration.Options{Config: shared.config, Name: tc.name, To: tc.to}
			if _, err := migration.Run(t.Context(), o); !errors.Is(err, tc.want) {
				t.Errorf("\n%s\nRun(...): want %v, got %v", tc.reason, tc.want, err)
			}
		})
	}
}
