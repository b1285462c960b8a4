package schema

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

// TestCheckChanged changes one place of an object after the other, and shares the rest. It verifies that CheckChanged
// finds the mismatches that only the changed object has.
func TestCheckChanged(t *testing.T) {
	s := newSchemas(t, widgets)
	for name, text := range right {
		t.Run(name, func(t *testing.T) {
			before := parse(t, text)
			for changed := range everyChange(before) {
				object, _ := changed.(map[string]any)
				got := s.CheckChanged(object, before)
				if diff := cmp.Diff(s.Check(runtime.DeepCopyJSON(object)), got); diff != "" {
					t.Errorf("CheckChanged(%v): -of the whole, +got:\n%s", object, diff)
				}
			}
		})
	}
}

// TestCheckChangedSkips verifies that a shared mistake is not reported again, unless the object has another type now.
func TestCheckChangedSkips(t *testing.T) {
	s := newSchemas(t)
	before := parse(t, `{apiVersion: apps/v1, kind: Deployment, spec: {replicas: "3", selector: {}, template: {}}}`)
	object := maps.Clone(before)
	object["metadata"] = map[string]any{"name": "web"}
	if got := s.CheckChanged(object, before); len(got) > 0 {
		t.Errorf("CheckChanged() of a shared spec: got %v, want nothing", got)
	}
	object["apiVersion"] = "apps/v1beta9"
	if got := s.CheckChanged(object, before); len(got) == 0 {
		t.Error("CheckChanged() of another type: got nothing, want a mismatch")
	}
}

// everyChange yields copies of a value with one place changed or removed. The copies share the rest.
func everyChange(value any) func(yield func(any) bool) {
	return func(yield func(any) bool) {
		switch v := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				if key == "apiVersion" || key == "kind" {
					continue
				}
				less := maps.Clone(v)
				delete(less, key)
				if !yield(less) {
					return
				}
				for inside := range everyChange(v[key]) {
					other := maps.Clone(v)
					other[key] = inside
					if !yield(other) {
						return
					}
				}
			}
		case []any:
			for i := range v {
				for inside := range everyChange(v[i]) {
					other := slices.Clone(v)
					other[i] = inside
					if !yield(other) {
						return
					}
				}
			}
			if len(v) > 0 && !yield(append(slices.Clone(v), v[0], nil)) {
				return
			}
		}
		for _, other := range []any{nil, "text", int64(-7), true, map[string]any{"no such": nil}, []any{"a", nil}} {
			if !yield(other) {
				return
			}
		}
	}
}
