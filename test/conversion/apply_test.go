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

// apply applies a spec on the server's side.
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

// TestApply has two managers apply their parts of one widget, each in its version, with
// lists in lists. What the API server has converted for that are partial objects. It is
// told twice: stored as the version of one, and of the other.
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
			// Who applies a list last has its elements in his order.
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
	s.wantSpec("Both have applied.", v1, name, `{size: Large, retries: 5, steps: [a, b], note: some, timeoutMillis: 3000, ports: [
		{name: http, number: 80, protocol: TCP, targets: [{zone: a, weight: 1}, {zone: b, weight: 2}, {zone: d}]},
		{name: dns, number: 53, targets: [{zone: c}]}]}`)
	s.wantSpec("Both have applied.", alpha, name, `{size: large, script: "a,b", legacy: L, timeoutSeconds: 3, ports: [
		{name: http, number: 80, color: blue, targets: [{zone: a}, {zone: b}, {zone: d}]},
		{name: dns, number: 53, color: red, targets: [{zone: c}]}]}`)
	if diff := cmp.Diff(map[string]string{"new": v1, "old": alpha}, s.owners(name)); diff != "" {
		s.Errorf("managers and their versions: -want, +got:\n%s", diff)
	}

	err := s.apply("old", alpha, name, `{legacy: L, size: small, ports: [{name: http, number: 81, targets: [{zone: d}]}]}`, false)
	if !apierrors.IsConflict(err) {
		s.Errorf("Who applies what is another's has a conflict, in another version, too: %v", err)
	} else {
		for _, text := range []string{`conflicts with "new"`, ".spec.size", `.spec.ports[name="http"].number`} {
			if !strings.Contains(err.Error(), text) {
				s.Errorf("%q is not in the conflict: %v", text, err)
			}
		}
	}

	// What only v1 has lies in the annotation for v1alpha1, in which the other manager has
	// applied. The API server takes what nobody applies any more away from there by its place,
	// and the annotation is one: what it holds stays until somebody takes it away himself.
	s.must(s.apply("new", v1, name, `{size: Large, retries: 5, steps: [c], ports: [
		{name: ssh, number: 22}, {name: http, number: 80, protocol: TCP, targets: [{zone: b, weight: 3}]}]}`, false))
	s.wantSpec("What one applies no more goes, the other's stays.", alpha, name, `{size: large, script: c, legacy: L, timeoutSeconds: 3, ports: [
		{name: ssh, number: 22}, {name: http, number: 80, color: blue, targets: [{zone: b}, {zone: d}]},
		{name: dns, number: 53, color: red, targets: [{zone: c}]}]}`)
	s.wantSpec("What one applies no more goes, the other's stays.", v1, name, `{size: Large, retries: 5, steps: [c], note: some, timeoutMillis: 3000, ports: [
		{name: ssh, number: 22}, {name: http, number: 80, protocol: TCP, targets: [{zone: b, weight: 3}, {zone: d}]},
		{name: dns, number: 53, targets: [{zone: c}]}]}`)

	s.must(s.apply("old", alpha, name, `{size: small, ports: [{name: http, color: green}]}`, true))
	s.wantSpec("One has taken the size over, and let a port go.", v1, name, `{size: Small, retries: 5, steps: [c], note: some, ports: [
		{name: ssh, number: 22}, {name: http, number: 80, protocol: TCP, targets: [{zone: b, weight: 3}]}]}`)
	s.wantSpec("One has taken the size over, and let a port go.", alpha, name, `{size: small, script: c, legacy: L, ports: [
		{name: ssh, number: 22}, {name: http, number: 80, color: green, targets: [{zone: b}]}]}`)

	s.must(s.apply("new", v1, name, `{ports: [{name: http}]}`, false))
	s.wantSpec("The one has only what the other applies.", alpha, name, `{size: small, legacy: L, ports: [{name: http, color: green}]}`)
	s.must(s.apply("old", alpha, name, `{}`, false))
	s.wantSpec("And then not even that.", v1, name, `{note: some, retries: 5, ports: [{name: http}]}`)
	s.must(s.patch(v1, name, `{"spec":{"note":null,"retries":null}}`))
	s.must(s.patch(alpha, name, `{"spec":{"legacy":null}}`))
	s.wantSpec("Who takes it away takes it away.", v1, name, `{retries: 3, ports: [{name: http}]}`)
	if got := s.stored(name)["apiVersion"]; got != s.group+"/"+stored {
		s.Errorf("it is stored as %v", got)
	}
	if kept := s.get(alpha, name).GetAnnotations()[complement]; kept != "" {
		s.Errorf("Nothing is left that would have to be kept: %s", kept)
	}
}

// owners returns the version in which each manager of an object has applied it.
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

// TestApplyAtomic has two managers apply a list that is one value: who comes last and
// insists has all of it, in either version.
func TestApplyAtomic(t *testing.T) {
	t.Parallel()
	s := begin(t, "crate")
	s.serve(s.policy("crate"))
	s.must(s.apply("new", v1, "c", `{bottles: [{name: beer, quantity: 2}, {name: wine}]}`, false))
	s.wantSpec("applied in v1", alpha, "c", `{bottles: [beer, beer, wine]}`)
	err := s.apply("old", alpha, "c", `{bottles: [rum]}`, false)
	if !apierrors.IsConflict(err) || !strings.Contains(err.Error(), `conflict with "new": .spec.bottles`) {
		s.Errorf("The list is another's: %v", err)
	}
	s.must(s.apply("old", alpha, "c", `{bottles: [rum, gin, rum]}`, true))
	s.wantSpec("taken over in v1alpha1", v1, "c", `{bottles: [{name: rum, quantity: 2}, {name: gin, quantity: 1}]}`)
	s.must(s.apply("new", v1, "c", `{}`, false))
	s.wantSpec("given up in v1", v1, "c", `{bottles: [{name: rum, quantity: 2}, {name: gin, quantity: 1}]}`)
	if names := bottles(s.get(alpha, "c")); !slices.Equal(names, []string{"rum", "rum", "gin"}) {
		s.Errorf("they are %v", names)
	}
}

// bottles returns those of a crate in v1alpha1.
func bottles(u *unstructured.Unstructured) []string {
	list, _, _ := unstructured.NestedSlice(u.Object, "spec", "bottles")
	var out []string
	for _, b := range list {
		out = append(out, fmt.Sprint(b))
	}
	return out
}
