package policy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/generate"
	"refract.dev/conversion/verify"
)

func TestComplete(t *testing.T) {
	t.Parallel()
	const (
		keyed = "{type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [name], " +
			"items: {type: object, required: [name], properties: {name: {type: string}%s}}}"
		loose = "{type: array, items: {type: object, properties: {name: {type: string}%s}}}"
		more  = ", only: {type: string}"
	)
	cases := map[string]struct {
		reason  string
		schemas string
		spokes  string
		want    []refractv1alpha1.KeptField
		refused bool
	}{
		"Nothing": {
			reason:  "A spec that compiles needs no further entries.",
			schemas: "v1: {a: {type: string}}\nv2: {a: {type: string}}",
			spokes:  "[{version: v1}]",
		},
		"BothSides": {
			reason:  "Both sides may have new fields.",
			schemas: "v1: {a: {type: string}}\nv2: {b: {type: object, properties: {c: {type: integer}}}}",
			spokes:  "[{version: v1}]",
			want:    []refractv1alpha1.KeptField{{Version: "v1", Spoke: "spec.a"}, {Version: "v1", Hub: "spec.b"}},
		},
		"Inside": {
			reason:  "If both versions have the object, only the new field inside is kept.",
			schemas: "v1: {b: {type: object, properties: {c: {type: integer}, \"d.e\": {type: string}}}}\nv2: {b: {type: object, properties: {c: {type: integer}}}}",
			spokes:  "[{version: v1}]",
			want:    []refractv1alpha1.KeptField{{Version: "v1", Spoke: `spec.b["d.e"]`}},
		},
		"TwoSpokes": {
			reason:  "A new field of the hub is kept for each spoke that lacks it.",
			schemas: "v1: {a: {type: string}}\nv2: {a: {type: string}, b: {type: string}}\nv3: {a: {type: string}, b: {type: string}}\nv4: {}",
			spokes:  "[{version: v1}, {version: v3}, {version: v4}]",
			want:    []refractv1alpha1.KeptField{{Version: "v1", Hub: "spec.b"}, {Version: "v4", Hub: "spec.a"}, {Version: "v4", Hub: "spec.b"}},
		},
		"Counterpart": {
			reason:  "A new field may have the name of another field in the other version.",
			schemas: "v1: {size: {type: integer}, capacity: {type: string}}\nv2: {capacity: {type: integer}}",
			spokes:  "[{version: v1, fields: [{hub: spec.capacity, spoke: spec.size}]}]",
			want:    []refractv1alpha1.KeptField{{Version: "v1", Spoke: "spec.capacity"}},
		},
		"Default": {
			reason:  "A new field with a default is kept, too.",
			schemas: "v1: {a: {type: string, default: x}}\nv2: {}",
			spokes:  "[{version: v1}]",
			want:    []refractv1alpha1.KeptField{{Version: "v1", Spoke: "spec.a"}},
		},
		"ListWithKeys": {
			reason:  "The keys identify the elements of a list, so their fields can be kept.",
			schemas: "v1: {l: " + fmt.Sprintf(keyed, more) + "}\nv2: {l: " + fmt.Sprintf(keyed, "") + "}",
			spokes:  "[{version: v1}]",
			want:    []refractv1alpha1.KeptField{{Version: "v1", Spoke: "spec.l[*].only"}},
		},
		"Table": {
			reason: "The keys identify the values of a table, so their fields can be kept.",
			schemas: "v1: {l: {type: object, additionalProperties: {type: object, properties: {only: {type: string}}}}}\n" +
				"v2: {l: {type: object, additionalProperties: {type: object}}}",
			spokes: "[{version: v1}]",
			want:   []refractv1alpha1.KeptField{{Version: "v1", Spoke: "spec.l[*].only"}},
		},
		"ListWithoutKeys": {
			reason:  "Without keys, a kept value could get to another element.",
			schemas: "v1: {l: " + fmt.Sprintf(loose, more) + "}\nv2: {l: " + fmt.Sprintf(loose, "") + "}",
			spokes:  "[{version: v1}]",
			refused: true,
		},
		"ListByPosition": {
			reason:  "The spec already identifies the elements of this list by position.",
			schemas: "v1: {l: " + fmt.Sprintf(loose, more+", a: {type: string}") + "}\nv2: {l: " + fmt.Sprintf(loose, ", b: {type: string}") + "}",
			spokes:  "[{version: v1, fields: [{hub: 'spec.l[*].b', spoke: 'spec.l[*].a'}]}]",
			want:    []refractv1alpha1.KeptField{{Version: "v1", Spoke: "spec.l[*].only"}},
		},
		"Required": {
			reason:  "A required field of the hub has no value in objects of the spoke.",
			schemas: "v1: {}\nv2: {properties: {a: {type: string}}, required: [a]}",
			spokes:  "[{version: v1}]",
			refused: true,
		},
		"PartOfAnEntry": {
			reason:  "A new field inside an object that another entry moves cannot have its own entry.",
			schemas: "v1: {a: {type: object, properties: {c: {type: integer}, only: {type: string}}}}\nv2: {b: {type: object, properties: {c: {type: integer}}}}",
			spokes:  "[{version: v1, fields: [{hub: spec.b, spoke: spec.a}]}]",
			refused: true,
		},
		"AnotherType": {
			reason:  "A field whose type differs between the versions is not one-sided.",
			schemas: "v1: {a: {type: string}, only: {type: string}}\nv2: {a: {type: integer}}",
			spokes:  "[{version: v1}]",
			refused: true,
		},
		"Gone": {
			reason:  "An entry names a field that does not exist.",
			schemas: "v1: {only: {type: string}}\nv2: {a: {type: string}}",
			spokes:  "[{version: v1, fields: [{hub: spec.a, spoke: spec.b}]}]",
			refused: true,
		},
		"Version": {
			reason:  "A missing version cannot be completed by entries for fields.",
			schemas: "v1: {only: {type: string}}\nv2: {}\nv3: {}",
			spokes:  "[{version: v1}]",
			refused: true,
		},
		"FieldsOfAnyName": {
			reason:  "Fields that no schema names have no place, so no entry can keep them.",
			schemas: "v1: {a: {type: object, x-kubernetes-preserve-unknown-fields: true}, only: {type: string}}\nv2: {a: {type: object}}",
			spokes:  "[{version: v1}]",
			refused: true,
		},
		"TooMany": {
			reason:  "A spoke can have at most 256 fields.",
			schemas: "v1: {}\nv2: {" + manyFields(mostFields+1) + "}",
			spokes:  "[{version: v1}]",
			refused: true,
		},
		"TooLong": {
			reason:  "A place can have at most 1,024 bytes.",
			schemas: "v1: {}\nv2: {" + strings.Repeat("a", mostPlaceBytes) + ": {type: string}}",
			spokes:  "[{version: v1}]",
			refused: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			def, err := define(tc.schemas)
			if err != nil {
				t.Fatal(err)
			}
			spec := &refractv1alpha1.ConversionPolicySpec{CRD: def.Name(), Hub: "v2"}
			if err := yaml.UnmarshalStrict([]byte("spokes: "+tc.spokes), spec); err != nil {
				t.Fatal(err)
			}
			before := spec.DeepCopy()
			got, kept, ok := Complete(spec, def)
			if diff := cmp.Diff(before, spec); diff != "" {
				t.Errorf("Complete() changed the policy: -before, +after:\n%s", diff)
			}
			if ok == tc.refused {
				t.Fatalf("%s\nComplete(): got %v, want %v", tc.reason, ok, !tc.refused)
			}
			if diff := cmp.Diff(tc.want, kept); diff != "" {
				t.Errorf("%s\nComplete(): -want, +got:\n%s", tc.reason, diff)
			}
			if !ok {
				return
			}
			if diff := cmp.Diff(before, Without(got, kept)); diff != "" {
				t.Errorf("%s\nWithout(): -want, +got:\n%s", tc.reason, diff)
			}
			obeys(t, got, def)
		})
	}
}

func manyFields(n int) string {
	var out strings.Builder
	for i := range n {
		fmt.Fprintf(&out, "f%d: {type: string}, ", i)
	}
	return out.String()
}

// obeys compiles and verifies a policy. The test fails if the policy does not compile or violates a law.
func obeys(t *testing.T, spec *refractv1alpha1.ConversionPolicySpec, def *structural.Definition) {
	t.Helper()
	p, findings := Compile(spec, def)
	if p == nil {
		t.Fatal(findings)
	}
	e, err := convert.New(p.Resource())
	if err != nil {
		t.Fatal(err)
	}
	report, err := verify.Run(t.Context(), verify.Engine(e), verify.Options{
		Definition: def, Hub: p.Hub(), Versions: p.Versions(), Knowledge: p, Objects: 10, Leaves: 1, Seed: 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range report.Violations() {
		t.Errorf("%s from %s to %s, at %q by %q: %s\n%s", v.Law, v.From, v.To, v.Path, v.Rule, v.Message, jsonText(v.Object))
	}
}

// TestCompleteLosesNothing completes policies for versions whose schemas differ in one random place. Objects of both
// versions must come back from the other version, although that version drops unknown fields.
func TestCompleteLosesNothing(t *testing.T) {
	t.Parallel()
	completed := 0
	for seed := range uint64(150) {
		src := generate.Seeded(seed)
		def := differing(t, src)
		if def == nil {
			continue
		}
		spec := &refractv1alpha1.ConversionPolicySpec{CRD: def.Name(), Hub: "v2", Spokes: []refractv1alpha1.ConversionSpoke{{Version: "v1"}}}
		out, kept, ok := Complete(spec, def)
		if !ok || len(kept) == 0 {
			continue
		}
		completed++
		p, findings := Compile(out, def)
		if p == nil {
			t.Fatalf("seed %d: %v", seed, findings)
		}
		e, err := convert.New(p.Resource())
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			comesBack(t, seed, src, def, e)
		}
	}
	if completed < 5 {
		t.Errorf("%d policies were completed: want some", completed)
	}
}

// comesBack converts an object of v1 to v2, which drops unknown fields, and back. The object must be unchanged.
func comesBack(t *testing.T, seed uint64, src generate.Source, def *structural.Definition, e *convert.Engine) {
	t.Helper()
	v1, err := def.Version("v1")
	if err != nil {
		t.Fatal(err)
	}
	v2, err := def.Version("v2")
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range [][2]*structural.Version{{v1, v2}, {v2, v1}} {
		obj := generate.Object(src, pair[0], generate.ObjectOptions{Valid: true, Name: "a"})
		decoded, err := pair[0].Decode(obj)
		if err != nil || len(pair[0].Validate(decoded.Object)) > 0 {
			continue
		}
		there, err := e.Convert([]byte(jsonText(decoded.Object)), pair[1].APIVersion())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		pruned, err := pair[1].Prune(parse(t, there))
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		back, err := e.Convert([]byte(jsonText(pruned.Object)), pair[0].APIVersion())
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if diff := cmp.Diff(parse(t, []byte(jsonText(decoded.Object))), parse(t, back)); diff != "" {
			t.Errorf("seed %d, from %s to %s and back: -want, +got:\n%s", seed, pair[0].Name(), pair[1].Name(), diff)
		}
	}
}

// TestKeptComesBack first converts with a completed policy, and then back with a policy that has an entry for the
// place. The second policy must restore the values that the first one has kept.
func TestKeptComesBack(t *testing.T) {
	t.Parallel()
	const v1 = "v1: {only: {type: string}, a: {type: string}}\n"
	def, err := define(v1 + "v2: {a: {type: string}}")
	if err != nil {
		t.Fatal(err)
	}
	spec := &refractv1alpha1.ConversionPolicySpec{CRD: def.Name(), Hub: "v2", Spokes: []refractv1alpha1.ConversionSpoke{{Version: "v1"}}}
	completed, _, ok := Complete(spec, def)
	if !ok {
		t.Fatal("it is not completed")
	}
	const object = `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"},"spec":{"a":"b","only":"x"}}`
	there, err := engineOf(t, completed, def).Convert([]byte(object), "example.com/v2")
	if err != nil {
		t.Fatal(err)
	}
	spec.Spokes[0].Fields = []refractv1alpha1.FieldConversion{{Spoke: "spec.only", Removed: &refractv1alpha1.OneSided{}}}
	back, err := engineOf(t, spec, def).Convert(there, "example.com/v1")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(parse(t, []byte(object)), parse(t, back)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func engineOf(t *testing.T, spec *refractv1alpha1.ConversionPolicySpec, def *structural.Definition) *convert.Engine {
	t.Helper()
	p, findings := Compile(spec, def)
	if p == nil {
		t.Fatal(findings)
	}
	e, err := convert.New(p.Resource())
	if err != nil {
		t.Fatal(err)
	}
	return e
}
