package conversion

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// apply applies a spec with server-side apply.
func (s *scene) apply(manager, version, name, spec string, force bool) error {
	u := s.object(version, name, spec)
	u.SetNamespace("")
	text, err := u.MarshalJSON()
	if err != nil {
		return err
	}
	how := []client.PatchOption{client.FieldOwner(manager)}
	if force {
		how = append(how, client.ForceOwnership)
	}
	return s.api.Patch(s.Context(), s.empty(version, name), client.RawPatch(types.ApplyPatchType, text), how...)
}

// TestApply: two managers apply their fields of one widget, each in a different version, with nested lists. The API
// server converts the partial objects for this. The test runs twice, with each of the two versions as the storage
// version.
func TestApply(t *testing.T) {
	t.Parallel()
	s := begin(t, "widget")
	s.serve(s.policy("widget"))
	for i, stored := range []string{alpha, v1} {
		if i > 0 {
			s.storeAs(stored)
		}
		t.Run(stored, func(t *testing.T) {
			sub := *s
			sub.T = t
			// The order of a list depends on the last manager that applied it.
			sub.order = cmp.Options{cmpopts.SortSlices(func(a, b any) bool { return fmt.Sprint(a) < fmt.Sprint(b) })}
			sub.applied("applied-"+stored, stored)
		})
	}
}

func (s *scene) applied(name, stored string) {
	s.must(s.apply("new", v1, name, `{size: Large, retries: 5, steps: [a, b], note: some, ports: [
		{name: http, number: 80, protocol: TCP, targets: [{zone: a, weight: 1}, {zone: b, weight: 2}]}]}`, false))
	s.must(s.apply("old", alpha, name, `{legacy: L, timeoutSeconds: 3, ports: [
		{name: dns, number: 53, color: red, targets: [{zone: c}]}, {name: http, color: blue, targets: [{zone: d}]}]}`, false))
	s.wantSpec("v1 has the fields of both managers.", v1, name, `{size: Large, retries: 5, steps: [a, b], note: some, timeoutMillis: 3000, ports: [
		{name: http, number: 80, protocol: TCP, targets: [{zone: a, weight: 1}, {zone: b, weight: 2}, {zone: d}]},
		{name: dns, number: 53, targets: [{zone: c}]}]}`)
	s.wantSpec("v1alpha1 has the fields of both managers.", alpha, name, `{size: large, script: "a,b", legacy: L, timeoutSeconds: 3, ports: [
		{name: http, number: 80, color: blue, targets: [{zone: a}, {zone: b}, {zone: d}]},
		{name: dns, number: 53, color: red, targets: [{zone: c}]}]}`)
	if diff := cmp.Diff(map[string]string{"new": v1, "old": alpha}, s.owners(name)); diff != "" {
		s.Errorf("managers and their versions: -want, +got:\n%s", diff)
	}

	err := s.apply("old", alpha, name, `{legacy: L, size: small, ports: [{name: http, number: 81, targets: [{zone: d}]}]}`, false)
	if !apierrors.IsConflict(err) {
		s.Errorf("A field of another manager is a conflict, in another version, too: %v", err)
	} else {
		for _, text := range []string{`conflicts with "new"`, ".spec.size", `.spec.ports[name="http"].number`} {
			if !strings.Contains(err.Error(), text) {
				s.Errorf("%q is not in the conflict: %v", text, err)
			}
		}
	}

	// In v1alpha1, the version of the other manager, an annotation keeps the fields that only v1 has. After an apply,
	// the API server removes fields that no manager owns any more. The annotation is a single field, so values in it
	// stay until a client removes them.
	s.must(s.apply("new", v1, name, `{size: Large, retries: 5, steps: [c], ports: [
		{name: ssh, number: 22}, {name: http, number: 80, protocol: TCP, targets: [{zone: b, weight: 3}]}]}`, false))
	s.wantSpec("Fields without a manager are removed.", alpha, name, `{size: large, script: c, legacy: L, timeoutSeconds: 3, ports: [
		{name: ssh, number: 22}, {name: http, number: 80, color: blue, targets: [{zone: b}, {zone: d}]},
		{name: dns, number: 53, color: red, targets: [{zone: c}]}]}`)
	s.wantSpec("Fields without a manager are removed.", v1, name, `{size: Large, retries: 5, steps: [c], note: some, timeoutMillis: 3000, ports: [
		{name: ssh, number: 22}, {name: http, number: 80, protocol: TCP, targets: [{zone: b, weight: 3}, {zone: d}]},
		{name: dns, number: 53, targets: [{zone: c}]}]}`)

	s.must(s.apply("old", alpha, name, `{size: small, ports: [{name: http, color: green}]}`, true))
	s.wantSpec("The manager old has taken over the size, and given up a port.", v1, name, `{size: Small, retries: 5, steps: [c], note: some, ports: [
		{name: ssh, number: 22}, {name: http, number: 80, protocol: TCP, targets: [{zone: b, weight: 3}]}]}`)
	s.wantSpec("The manager old has taken over the size, and given up a port.", alpha, name, `{size: small, script: c, legacy: L, ports: [
		{name: ssh, number: 22}, {name: http, number: 80, color: green, targets: [{zone: b}]}]}`)

	s.must(s.apply("new", v1, name, `{ports: [{name: http}]}`, false))
	s.wantSpec("The manager new applies only a port that the other applies, too.", alpha, name, `{size: small, legacy: L, ports: [{name: http, color: green}]}`)
	s.must(s.apply("old", alpha, name, `{}`, false))
	s.wantSpec("The manager old applies nothing any more.", v1, name, `{note: some, retries: 5, ports: [{name: http}]}`)
	s.must(s.patch(v1, name, `{"spec":{"note":null,"retries":null}}`))
	s.must(s.patch(alpha, name, `{"spec":{"legacy":null}}`))
	s.wantSpec("Fields without a manager can be removed.", v1, name, `{retries: 3, ports: [{name: http}]}`)
	if got := s.stored(name)["apiVersion"]; got != s.group+"/"+stored {
		s.Errorf("it is stored as %v", got)
	}
	if kept := s.get(alpha, name).GetAnnotations()[complement]; kept != "" {
		s.Errorf("No value is left for the annotation: %s", kept)
	}
}

// owners returns the version in which each manager has applied an object.
func (s *scene) owners(name string) map[string]string {
	s.Helper()
	out := map[string]string{}
	for _, f := range s.get(v1, name).GetManagedFields() {
		out[f.Manager] = strings.TrimPrefix(f.APIVersion, s.group+"/")
		if strings.Contains(string(f.FieldsV1.GetRawBytes()), complement) {
			s.Errorf("%s owns the annotation: %s", f.Manager, f.FieldsV1.GetRawBytes())
		}
	}
	return out
}

// TestApplyAtomic: two managers apply an atomic list. The last one to force its apply owns the whole list, in either
// version.
func TestApplyAtomic(t *testing.T) {
	t.Parallel()
	s := begin(t, "crate")
	s.serve(s.policy("crate"))
	s.must(s.apply("new", v1, "c", `{bottles: [{name: beer, quantity: 2}, {name: wine}]}`, false))
	s.wantSpec("applied in v1", alpha, "c", `{bottles: [beer, beer, wine]}`)
	err := s.apply("old", alpha, "c", `{bottles: [rum]}`, false)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "new": .spec.bottles`) {
		s.Errorf("The other manager owns the list: %v", err)
	}
	s.must(s.apply("old", alpha, "c", `{bottles: [rum, gin, rum]}`, true))
	s.wantSpec("taken over in v1alpha1", v1, "c", `{bottles: [{name: rum, quantity: 2}, {name: gin, quantity: 1}]}`)
	s.must(s.apply("new", v1, "c", `{}`, false))
	s.wantSpec("given up in v1", v1, "c", `{bottles: [{name: rum, quantity: 2}, {name: gin, quantity: 1}]}`)
	if names := bottles(s.get(alpha, "c")); !slices.Equal(names, []string{"rum", "rum", "gin"}) {
		s.Errorf("the bottles are %v", names)
	}
}

// bottles returns the bottles of a crate in v1alpha1.
func bottles(u *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedSlice(u.Object, "spec", "bottles")
	var out []string
	for _, b := range list {
		out = append(out, fmt.Sprint(b))
	}
	return out
}
