package generate

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
)

func TestApply(t *testing.T) {
	const obj = `{"a":{"l":[1,2,3]},"b":"x"}`
	cases := map[string]struct {
		reason string
		edits  []Edit
		want   string // Empty if an edit is impossible.
	}{
		"None":         {"Without edits, the object is unchanged.", nil, obj},
		"Set":          {"A member is set.", []Edit{{Path: []any{"b"}, Value: "y"}}, `{"a":{"l":[1,2,3]},"b":"y"}`},
		"Add":          {"A member is added.", []Edit{{Path: []any{"a", "m"}, Value: true}}, `{"a":{"l":[1,2,3],"m":true},"b":"x"}`},
		"Remove":       {"A member is removed.", []Edit{{Path: []any{"a"}, Removed: true}}, `{"b":"x"}`},
		"Element":      {"An element is set.", []Edit{{Path: []any{"a", "l", 1}, Value: int64(7)}}, `{"a":{"l":[1,7,3]},"b":"x"}`},
		"Append":       {"An element is appended.", []Edit{{Path: []any{"a", "l", 3}, Value: int64(4)}}, `{"a":{"l":[1,2,3,4]},"b":"x"}`},
		"RemoveSome":   {"The second edit applies to the result of the first.", []Edit{{Path: []any{"a", "l", 0}, Removed: true}, {Path: []any{"a", "l", 0}, Removed: true}}, `{"a":{"l":[3]},"b":"x"}`},
		"NotThere":     {"A missing member cannot be removed.", []Edit{{Path: []any{"c"}, Removed: true}}, ""},
		"NoParent":     {"A missing parent is not created.", []Edit{{Path: []any{"c", "d"}, Value: true}}, ""},
		"OutOfRange":   {"A list cannot get gaps.", []Edit{{Path: []any{"a", "l", 4}, Value: true}}, ""},
		"BehindTheEnd": {"A missing element cannot be removed.", []Edit{{Path: []any{"a", "l", 3}, Removed: true}}, ""},
		"NoObject":     {"A string has no members.", []Edit{{Path: []any{"b", "c"}, Value: true}}, ""},
		"NoList":       {"An object has no indexes.", []Edit{{Path: []any{"a", 0}, Value: true}}, ""},
		"Root":         {"The whole object cannot be replaced.", []Edit{{Value: true}}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := parse(t, obj)
			got, ok := Apply(in, tc.edits)
			if ok != (tc.want != "") {
				t.Fatalf("%s\nApply() = %v, %v", tc.reason, got, ok)
			}
			if ok {
				if diff := cmp.Diff(parse(t, tc.want), got); diff != "" {
					t.Errorf("%s\nApply(): -want, +got:\n%s", tc.reason, diff)
				}
			}
			if diff := cmp.Diff(parse(t, obj), in); diff != "" {
				t.Errorf("Apply() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}

// TestEditsAndPartsOfAnySchema: edits and removals of parts can be applied to any object. Only the random source
// determines them. They return a changed copy with the apiVersion, kind and metadata of the original object. Many edited
// objects are valid.
func TestEditsAndPartsOfAnySchema(t *testing.T) {
	edited, accepted, removals := 0, 0, 0
	for seed := range uint64(100) {
		v, namespaced := version(t, seed)
		o := ObjectOptions{Valid: true}
		if namespaced {
			o.Namespace = "default"
		}
		for n := range uint64(4) {
			obj := Object(Seeded(seed+1000*n), v, o)
			before := runtime.DeepCopyJSON(obj)
			edits, parts := Edits(Seeded(n), v, obj, 3), Parts(Seeded(n), v, obj)
			if diff := cmp.Diff(edits, Edits(Seeded(n), v, obj, 3)) + cmp.Diff(parts, Parts(Seeded(n), v, obj)); diff != "" {
				t.Fatalf("seed %d twice: -first, +second:\n%s", seed, diff)
			}
			for _, list := range [][]Edit{edits, parts} {
				got, ok := Apply(obj, list)
				if !ok {
					t.Fatalf("seed %d: cannot apply %v to %v", seed, list, obj)
				}
				for _, key := range []string{"apiVersion", "kind", "metadata"} {
					if diff := cmp.Diff(before[key], got[key]); diff != "" {
						t.Errorf("seed %d: %s: -before, +after:\n%s", seed, key, diff)
					}
				}
			}
			for _, e := range parts {
				removals++
				if !e.Removed {
					t.Errorf("seed %d: Parts() = %v", seed, parts)
				}
			}
			if got, _ := Apply(obj, edits); len(edits) > 0 && len(v.Validate(obj)) == 0 {
				edited++
				if len(v.ValidateUpdate(got, obj)) == 0 {
					accepted++
				}
			}
			if diff := cmp.Diff(before, obj); diff != "" {
				t.Fatalf("seed %d: the object was changed: -before, +after:\n%s", seed, diff)
			}
		}
	}
	if edited < 200 || accepted*2 < edited || removals < 200 {
		t.Errorf("%d of %d edited objects are accepted, and %d values go", accepted, edited, removals)
	}
}

func TestParts(t *testing.T) {
	v := thing(t, `{"type":"object","properties":{
		"atomic":{"type":"array","items":{"type":"object","properties":{"x":{"type":"string"}}}},
		"whole":{"type":"object","x-kubernetes-map-type":"atomic","properties":{"x":{"type":"string"}}},
		"set":{"type":"array","x-kubernetes-list-type":"set","items":{"type":"string"}},
		"map":{"type":"array","x-kubernetes-list-type":"map","x-kubernetes-list-map-keys":["id"],
			"items":{"type":"object","required":["id"],"properties":{"id":{"type":"string"},"x":{"type":"string"}}}}}}`)
	obj := parse(t, `{"apiVersion":"example.org/v1","kind":"Thing","metadata":{"name":"a"},"spec":{
		"atomic":[{"x":"1"},{"x":"2"}],"whole":{"x":"1"},"set":["1","2"],"map":[{"id":"1","x":"1"},{"id":"2","x":"2"}]}}`)
	seen := map[string]bool{}
	for seed := range uint64(200) {
		for _, e := range Parts(Seeded(seed), v, obj) {
			var path strings.Builder
			for _, step := range e.Path {
				if key, ok := step.(string); ok {
					path.WriteString("/" + key)
				} else {
					path.WriteString("/*")
				}
			}
			seen[path.String()] = true
		}
	}
	want := map[string]bool{
		"/spec": true, "/spec/atomic": true, "/spec/whole": true, "/spec/set": true, "/spec/set/*": true,
		"/spec/map": true, "/spec/map/*": true, "/spec/map/*/x": true,
	}
	if diff := cmp.Diff(want, seen); diff != "" {
		t.Errorf("what goes: -want, +got:\n%s", diff)
	}
}

func TestTexts(t *testing.T) {
	v := thing(t, `{"type":"object","required":["a","b"],"properties":{"a":{"type":"string"},"b":{"type":"string","maxLength":3}}}`)
	src := Seeded(1)
	found := map[string]int{}
	for range 200 {
		spec, _ := Object(src, v, ObjectOptions{Valid: true, Texts: []string{"Recreate"}})["spec"].(map[string]any)
		for key, value := range spec {
			if value == "Recreate" {
				found[key]++
			}
		}
	}
	if found["a"] < 20 || found["b"] > 0 {
		t.Errorf("of 200 objects so many have the text: %v", found)
	}
}
