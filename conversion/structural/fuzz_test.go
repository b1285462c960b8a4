package structural

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/json"

	"refract.dev/tree"
)

const anything = `
type: object
properties:
  spec:
    type: object
    default: {}
    properties:
      a: {type: integer, default: 1}
      b: {type: string, nullable: true, default: x}
      c: {type: array, items: {type: object, properties: {d: {type: number, default: 0.5}}}}
      e: {type: object, additionalProperties: {type: string, default: y}}
      f: {x-kubernetes-preserve-unknown-fields: true, type: object, properties: {g: {type: object, properties: {h: {type: string}}}}}
      i: {x-kubernetes-int-or-string: true}
      j: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
      k:
        type: array
        x-kubernetes-list-type: map
        x-kubernetes-list-map-keys: [l]
        items: {type: object, required: [l], properties: {l: {type: string}}}
      m: {type: array, x-kubernetes-list-type: set, items: {type: string}}
    x-kubernetes-validations: [{rule: "!has(self.a) || self.a < 100"}, {rule: "has(self.b) == has(oldSelf.b)"}]
`

// FuzzVersion checks three properties for any object: nothing panics or modifies the object, a second decoding changes
// nothing, and the reported changes turn the object into the result.
func FuzzVersion(f *testing.F) {
	for _, seed := range []string{
		`{}`,
		`{"metadata":{"name":"a","x":1},"spec":{"a":null,"b":null,"z":1}}`,
		`{"metadata":null,"spec":{"c":[{},null,{"d":null,"x":[]}],"e":{"q":null},"f":{"g":{"h":1,"i":2},"z":{}}}}`,
		`{"spec":{"i":"x","j":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","x":1}},"k":[{"l":"a"},{"l":"a"}],"m":["a","a"]}}`,
		`{"spec":[1],"status":9007199254740993,"metadata":{"labels":{"a":"b"},"annotations":{},"creationTimestamp":null}}`,
	} {
		f.Add([]byte(seed), []byte(`{}`))
	}
	d, err := New(thing(parse(f, anything)))
	if err != nil {
		f.Fatal(err)
	}
	v := d.Versions()[0]
	f.Fuzz(func(t *testing.T, data, before []byte) {
		obj, old := object(t, data), object(t, before)
		same := object(t, data)

		r, err := v.Decode(obj)
		v.Validate(obj)
		v.ValidateUpdate(obj, old)
		if diff := cmp.Diff(same, obj); diff != "" {
			t.Fatalf("the input was changed: -before, +after:\n%s", diff)
		}
		if err != nil {
			return // Malformed metadata.
		}
		if diff := cmp.Diff(r.Object, applied(t, obj, r.Changes)); diff != "" {
			t.Fatalf("the changes do not lead to the result: -want, +got:\n%s", diff)
		}
		again, err := v.Decode(r.Object)
		if err != nil {
			t.Fatal(err)
		}
		if len(again.Changes) > 0 || len(again.Unknown) > 0 {
			t.Fatalf("decoding again changed %v, unknown %v", again.Changes, again.Unknown)
		}
		for _, step := range []func(map[string]any) (*Result, error){v.Prune, v.Default} {
			once, err := step(obj)
			if err != nil {
				t.Fatal(err)
			}
			if twice, err := step(once.Object); err != nil || len(twice.Changes) > 0 {
				t.Fatalf("the same step again: %v, %v", twice, err)
			}
		}
	})
}

// object returns data as an object of kind Thing.
func object(t *testing.T, data []byte) map[string]any {
	t.Helper()
	var obj map[string]any
	if err := json.Unmarshal(data, &obj); err != nil || obj == nil {
		t.Skip("not an object")
	}
	obj["apiVersion"], obj["kind"] = "example.com/v1", "Thing"
	return obj
}

// applied returns obj after the changes. There is no change for a number whose value stays equal, so applied writes
// such numbers as in the result.
func applied(t *testing.T, obj map[string]any, changes []tree.Change) map[string]any {
	t.Helper()
	doc := tree.Edit(obj)
	for _, c := range changes {
		at, err := tree.Parse(c.Path)
		if err != nil {
			t.Fatal(err)
		}
		switch c.Op {
		case tree.OpAdd:
			_, err = doc.Add(at, c.After)
		case tree.OpReplace:
			_, err = doc.Replace(at, c.After)
		case tree.OpRemove:
			_, err = doc.Remove(at)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return doc.Root()
}

// FuzzCheck checks that no manifest makes Check or New panic. If Check returns no error of the API server, New must
// accept the manifest.
func FuzzCheck(f *testing.F) {
	for _, seed := range []string{
		`{"type":"object"}`,
		`{"properties":{"a":{"type":"array","items":[{"type":"string"}]}},"anyOf":[{"description":"x"}]}`,
		`{"type":"object","properties":{"a":{"type":"integer","default":"x"},"b":{"x-kubernetes-int-or-string":true,"type":"object"}}}`,
		`{"type":"object","properties":{"a":{"type":"string","x-kubernetes-validations":[{"rule":"self > 1"}]}},"required":["b"]}`,
		`{"type":"object","properties":{"a":{"x-kubernetes-embedded-object":true,"type":"array","x-kubernetes-list-type":"map"}}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var schema map[string]any
		if err := json.Unmarshal(data, &schema); err != nil {
			t.Skip("not an object")
		}
		crd := thing(schema)
		found, err := Check(crd)
		if err != nil {
			return
		}
		refused := false
		for _, f := range found {
			refused = refused || f.Severity == Error && f.Rule != ruleUnknown
		}
		if _, err := New(crd); (err != nil) != refused {
			t.Fatalf("Check() found %v, but New() returned %v", found, err)
		}
	})
}
