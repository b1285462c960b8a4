package generate

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/conversion/structural"
)

// thing returns a version of the kind Thing with a schema of the spec.
func thing(t *testing.T, spec string) *structural.Version {
	t.Helper()
	d, err := structural.New(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "things.example.org"},
		"spec": map[string]any{
			"group": "example.org", "scope": "Namespaced",
			"names": map[string]any{"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{
				"openAPIV3Schema": map[string]any{"type": "object", "required": []any{"spec"}, "properties": map[string]any{"spec": parse(t, spec)}},
			}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	v, err := d.Version("v1")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestSmall(t *testing.T) {
	cases := map[string]struct {
		reason        string
		spec          string
		leaves, limit int
		want          []string
		upTo          int
	}{
		"NoLeaf": {
			reason: "Without leaves, an object has only the plainest values of its required fields.",
			spec:   `{"type":"object","required":["a"],"properties":{"a":{"type":"integer"},"b":{"type":"string"}}}`,
			limit:  10,
			want:   []string{`{"a":1}`},
		},
		"OneLeaf": {
			reason: "A required value other than the plainest is a leaf, and so is an optional value.",
			spec:   `{"type":"object","required":["a"],"properties":{"a":{"type":"integer","minimum":0,"maximum":3},"b":{"type":"boolean"}}}`,
			leaves: 1, limit: 10,
			want: []string{`{"a":1}`, `{"a":1,"b":false}`, `{"a":1,"b":true}`, `{"a":0}`, `{"a":2}`, `{"a":3}`},
			upTo: 1,
		},
		"Lists": {
			reason: "An empty list is a leaf. In other lists, each element is a leaf.",
			spec:   `{"type":"object","properties":{"l":{"type":"array","items":{"type":"string","enum":["x","y"]}}}}`,
			leaves: 2, limit: 20,
			want: []string{
				`{}`, `{"l":[]}`, `{"l":["x"]}`, `{"l":["y"]}`,
				`{"l":["x","x"]}`, `{"l":["x","y"]}`, `{"l":["y","x"]}`, `{"l":["y","y"]}`,
			},
			upTo: 2,
		},
		"ListsThatMustHaveElements": {
			reason: "A required list and its required elements do not count as leaves.",
			spec:   `{"type":"object","required":["l"],"properties":{"l":{"type":"array","minItems":2,"items":{"type":"boolean"}}}}`,
			limit:  20,
			want:   []string{`{"l":[false,false]}`},
		},
		"Tables": {
			reason: "Tables have a few keys.",
			spec:   `{"type":"object","properties":{"t":{"type":"object","additionalProperties":{"type":"boolean","enum":[true]}}}}`,
			leaves: 1, limit: 20,
			want: []string{`{}`, `{"t":{}}`, `{"t":{"größe":true}}`, `{"t":{"b-1":true}}`, `{"t":{"a":true}}`},
			upTo: 1,
		},
		"Null": {
			reason: "Null is a value if the schema allows it.",
			spec:   `{"type":"object","properties":{"o":{"type":"object","nullable":true,"properties":{"x":{"type":"boolean","enum":[true]}}}}}`,
			leaves: 1, limit: 20,
			want: []string{`{}`, `{"o":null}`, `{"o":{}}`, `{"o":{"x":true}}`},
			upTo: 1,
		},
		"LeastMembers": {
			reason: "Objects with too few members are omitted.",
			spec:   `{"type":"object","minProperties":1,"properties":{"a":{"type":"boolean","enum":[true]},"b":{"type":"boolean","enum":[false]}}}`,
			leaves: 2, limit: 20,
			want: []string{`{"b":false}`, `{"a":true}`, `{"a":true,"b":false}`},
			upTo: 2,
		},
		"TooMany": {
			reason: "With more objects than the limit, the number of leaves is not completely covered.",
			spec:   `{"type":"object","properties":{"a":{"type":"boolean"},"b":{"type":"boolean"}}}`,
			leaves: 2, limit: 4,
			want: []string{`{}`, `{"b":false}`, `{"b":true}`, `{"a":false}`},
			upTo: 0,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := thing(t, tc.spec)
			objects, upTo := Small(v, ObjectOptions{Namespace: "default"}, tc.leaves, tc.limit)
			var got []string
			for _, obj := range objects {
				text, err := json.Marshal(obj["spec"])
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, string(text))
				if wrong := v.Validate(obj); len(wrong) > 0 {
					t.Errorf("%v: %v", obj, wrong)
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" || upTo != tc.upTo {
				t.Errorf("%s\nSmall() up to %d leaves, want %d: -want, +got:\n%s", tc.reason, upTo, tc.upTo, diff)
			}
		})
	}
}

// TestSmallOfAnySchema: for any schema, the enumeration ends soon, is deterministic, and has no duplicates.
func TestSmallOfAnySchema(t *testing.T) {
	objects := 0
	for seed := range uint64(100) {
		v, _ := version(t, seed)
		got, upTo := Small(v, ObjectOptions{}, 3, 50)
		again, _ := Small(v, ObjectOptions{}, 3, 50)
		if diff := cmp.Diff(got, again); diff != "" {
			t.Fatalf("seed %d twice: -first, +second:\n%s", seed, diff)
		}
		if len(got) > 50 || upTo < -1 || upTo > 3 {
			t.Fatalf("seed %d: %d objects up to %d leaves", seed, len(got), upTo)
		}
		seen := map[string]bool{}
		for _, obj := range got {
			text, err := json.Marshal(obj)
			if err != nil {
				t.Fatal(err)
			}
			if seen[string(text)] {
				t.Errorf("seed %d: %s twice", seed, text)
			}
			seen[string(text)] = true
		}
		objects += len(got)
	}
	if objects < 2000 {
		t.Errorf("%d objects for 100 schemas", objects)
	}
}
