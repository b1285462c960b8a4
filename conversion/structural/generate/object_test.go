package generate

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/conversion/structural"
)

// version returns the storage version of a generated definition.
func version(t *testing.T, seed uint64) (v *structural.Version, namespaced bool) {
	t.Helper()
	d, err := structural.New(CRD(source(seed), "things.example.org", SchemaOptions{}))
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	if v, err = d.Version(d.Storage()); err != nil {
		t.Fatal(err)
	}
	return v, d.Namespaced()
}

func TestObjectDependsOnTheSourceAlone(t *testing.T) {
	for seed := range uint64(50) {
		v, _ := version(t, seed)
		before := v.Structural().DeepCopy()
		for _, o := range []ObjectOptions{{}, {Valid: true, Namespace: "default"}} {
			if diff := cmp.Diff(Object(source(seed), v, o), Object(source(seed), v, o)); diff != "" {
				t.Fatalf("seed %d twice: -first, +second:\n%s", seed, diff)
			}
		}
		if diff := cmp.Diff(before, v.Structural()); diff != "" {
			t.Fatalf("seed %d: Object() changed the schema: -before, +after:\n%s", seed, diff)
		}
	}
}

// TestObjectWithValuesOfAnyType: a required field with a value of any type is never null, because a null would be
// pruned.
func TestObjectWithValuesOfAnyType(t *testing.T) {
	v := thing(t, `{"type":"object","required":["any"],"properties":{"any":{"x-kubernetes-preserve-unknown-fields":true}}}`)
	src := source(1)
	for range 300 {
		obj := Object(src, v, ObjectOptions{Valid: true, Namespace: "default"})
		r, err := v.Decode(obj)
		if err != nil {
			t.Fatal(err)
		}
		if wrong := v.Validate(r.Object); len(wrong) > 0 {
			t.Fatalf("%v: %v", obj, wrong)
		}
	}
}

// verdicts counts the generated objects by result.
type verdicts struct {
	objects, unreadable, accepted, one, unknown, defaulted int
	rules                                                  map[string]int
}

func judge(t *testing.T, o ObjectOptions) verdicts {
	t.Helper()
	out := verdicts{rules: map[string]int{}}
	for seed := range uint64(100) {
		v, namespaced := version(t, seed)
		src := source(seed)
		if o.Namespace = ""; namespaced {
			o.Namespace = "default"
		}
		for range 8 {
			out.objects++
			obj := Object(src, v, o)
			decoded, err := v.Decode(obj)
			if err != nil {
				out.unreadable++
				continue
			}
			if len(decoded.Unknown) > 0 {
				out.unknown++
			}
			if len(decoded.Changes) > 0 {
				out.defaulted++
			}
			findings := v.Validate(decoded.Object)
			switch len(findings) {
			case 0:
				out.accepted++
			case 1:
				out.one++
			}
			for _, f := range findings {
				out.rules[f.Rule]++
			}
		}
	}
	return out
}

func TestObjectIsNearlyValid(t *testing.T) {
	got := judge(t, ObjectOptions{})
	t.Logf("%+v", got)
	for what, share := range map[string]struct{ got, low, high int }{
		"accepted":        {got.accepted, 25, 75},
		"one cause":       {got.one, 8, 50},
		"unreadable":      {got.unreadable, 1, 15},
		"unknown fields":  {got.unknown, 5, 50},
		"another decoded": {got.defaulted, 20, 95},
	} {
		if percent := share.got * 100 / got.objects; percent < share.low || percent > share.high {
			t.Errorf("%d %% of the objects: %s, want %d to %d", percent, what, share.low, share.high)
		}
	}
	for _, rule := range []string{
		"FieldValueInvalid", "FieldValueRequired", "FieldValueNotSupported", "FieldValueDuplicate",
		"FieldValueTypeInvalid", "FieldValueTooLong", "FieldValueTooMany", "FieldValueForbidden",
	} {
		if got.rules[rule] == 0 {
			t.Errorf("no object was refused for %s", rule)
		}
	}
}

func TestValidObjectsAreAccepted(t *testing.T) {
	got := judge(t, ObjectOptions{Valid: true})
	t.Logf("%+v", got)
	if percent := got.accepted * 100 / got.objects; percent < 70 {
		t.Errorf("%d %% of the objects are accepted, want 70 or more", percent)
	}
	if got.unreadable > 0 || got.unknown > 0 {
		t.Errorf("%d objects cannot be decoded and %d have unknown fields, want none", got.unreadable, got.unknown)
	}
}

// TestObjectHasEverything: each edge case occurs in some object.
func TestObjectHasEverything(t *testing.T) {
	edges := []string{
		`null`, `""`, `{}`, `[]`, `9007199254740993`, `9007199254740991`, `9223372036854775807`, `-9223372036854775808`, `1e+300`, `0.5`, `größe`, `日本`,
		`"someGarbage":`, `"metadata":{"name":"an-object","unknown":"field"`, `"labels":{"app":1}`, `"Not_A_Name"`, `"first"`, `"last"`, `"2026-02-30"`, `[null`,
	}
	seen := map[string]int{}
	for seed := range uint64(100) {
		v, _ := version(t, seed)
		src := source(seed)
		for range 8 {
			raw, err := json.Marshal(Object(src, v, ObjectOptions{}))
			if err != nil {
				t.Fatal(err)
			}
			for _, edge := range edges {
				if strings.Contains(string(raw), edge) {
					seen[edge]++
				}
			}
		}
	}
	for _, edge := range edges {
		if seen[edge] == 0 {
			t.Errorf("no object has %s", edge)
		}
	}
}

// bytesSource is a source that returns the bytes of a fuzzer, and then the values of a counter.
type bytesSource struct {
	left []byte
	next uint64
}

func (b *bytesSource) Uint64() uint64 {
	b.next++
	if len(b.left) == 0 {
		return b.next
	}
	n := uint64(b.left[0])
	b.left = b.left[1:]
	return n
}

// FuzzObject: for any random numbers, the definition is valid, and decoding, pruning and validation of the object do
// not panic.
func FuzzObject(f *testing.F) {
	for seed := range uint64(20) {
		f.Add([]byte(strings.Repeat(fmt.Sprint(seed*seed), int(seed))))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		src := &bytesSource{left: raw}
		crd := CRD(src, "things.example.org", SchemaOptions{})
		findings, err := structural.Check(crd)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(findings, func(f structural.Finding) bool { return f.Severity == structural.Error }) {
			t.Fatalf("%v\n%s", findings, yamlOf(t, crd))
		}
		d, err := structural.New(crd)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range d.Versions() {
			obj := Object(src, v, ObjectOptions{})
			if _, err := d.VersionOf(obj); err != nil {
				t.Error(err)
			}
			if decoded, err := v.Decode(obj); err == nil {
				v.Validate(decoded.Object)
			}
		}
	})
}

// TestObjectRoom: without room, objects are small even if the schema allows large ones. With room, a few lists and
// texts are long.
func TestObjectRoom(t *testing.T) {
	d, err := structural.New(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": map[string]any{"name": "things.example.org"},
		"spec": map[string]any{
			"group": "example.org", "scope": "Namespaced", "names": map[string]any{"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
			"versions": []any{map[string]any{"name": "v1", "served": true, "storage": true, "schema": map[string]any{"openAPIV3Schema": map[string]any{
				"type": "object", "properties": map[string]any{"spec": map[string]any{"type": "object", "properties": map[string]any{
					"list": map[string]any{"type": "array", "maxItems": int64(100000), "items": map[string]any{"type": "array", "maxItems": int64(100000), "items": map[string]any{"type": "boolean"}}},
					"text": map[string]any{"type": "string", "maxLength": int64(1000000)},
				}}},
			}}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	v := d.Versions()[0]
	cases := map[string]struct {
		reason          string
		room, low, high int
	}{
		"None": {"Without room, lists have few elements, and texts have at most 256 letters.", -1, 256, 1500},
		"Some": {"The room is divided among all lists and texts.", 5000, 5000, 200000},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			most := 0
			for seed := range uint64(50) {
				raw, err := json.Marshal(Object(source(seed), v, ObjectOptions{Valid: true, Room: tc.room}))
				if err != nil {
					t.Fatal(err)
				}
				most = max(most, len(raw))
			}
			if most < tc.low || most > tc.high {
				t.Errorf("%s\nthe largest object has %d bytes, want %d to %d", tc.reason, most, tc.low, tc.high)
			}
		})
	}
}
