package verify_test

import (
	"flag"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"refract.dev/conversion/convert"
	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/generate"
	"refract.dev/conversion/verify"
)

// objects is the number of generated objects for each version and seed. More objects take longer and find more
// violations.
var objects = flag.Int("objects", 50, "objects per version for which right conversions have no violation")

const seeds = 3

// TestRightConversions: correct conversions have no violation, for this number of objects and any seed.
func TestRightConversions(t *testing.T) {
	same := func(s string) (string, error) { return s, nil }
	upper := func(s string) (string, error) { return strings.ToUpper(s), nil }
	lower := func(s string) (string, error) { return strings.ToLower(s), nil }
	cases := map[string]struct {
		reason     string
		definition *structural.Definition
		subject    verify.Subject
		knowledge  verify.Knowledge
		versions   []string
	}{
		"Identity": {
			reason:     "Versions with the same fields need no conversion.",
			definition: definition(t, "v2: {type: object, properties: {a: {type: string, nullable: true}, b: {x-kubernetes-int-or-string: true}}}", "v1: {type: object, properties: {a: {type: string, nullable: true}, b: {x-kubernetes-int-or-string: true}}}"),
			subject:    verify.Engine(engine(t, convert.Spoke{Version: "v1"})),
		},
		"Rename": {
			reason:     "A field may have another name in the other version.",
			definition: definition(t, "v1: {type: object, required: [size], properties: {size: {type: string}, rest: {type: array, items: {type: object, properties: {x: {type: number}}}}}}", "v2: {type: object, required: [length], properties: {length: {type: string}, rest: {type: array, items: {type: object, properties: {x: {type: number}}}}}}"),
			subject: verify.Engine(engine(t, convert.Spoke{Version: "v1", Conversions: []convert.Conversion{
				convert.Field("spec.size", "spec.length", same, same),
			}})),
		},
		"IntoAnother": {
			reason:     "If a field moves into an object, the object is created and removed with it.",
			definition: definition(t, "v1: {type: object, properties: {min: {type: integer}, limits: {type: object, properties: {max: {type: integer}}}}}", "v2: {type: object, properties: {limits: {type: object, properties: {min: {type: integer}, max: {type: integer}}}}}"),
			subject: verify.Engine(engine(t, convert.Spoke{Version: "v1", Conversions: []convert.Conversion{
				convert.Move("spec.min", "spec.limits.min"),
			}})),
		},
		"Lossy": {
			reason:     "Kept values come back. Without metadata they are lost, and the knowledge declares this loss.",
			definition: definition(t, "v1: {type: object, properties: {mode: {type: string}, x: {type: integer}}}", "v2: {type: object, properties: {mode: {type: string}, x: {type: integer}}}"),
			subject: verify.Engine(engine(t, convert.Spoke{Version: "v1", Conversions: []convert.Conversion{
				convert.Field("spec.mode", "spec.mode", upper, lower),
			}})),
			knowledge: known{mayLose: map[string][]string{"v1": {"spec.mode"}, "v2": {"spec.mode"}}},
		},
		"Pizza": {
			reason:     "Counted toppings lose their order, and the knowledge declares that the order does not matter.",
			definition: definition(t, pizzaV1, pizzaV2),
			subject:    verify.Engine(engine(t, pizzaSpoke(sameToppings))),
			knowledge:  knownPizza,
		},
		"PizzaKept": {
			reason:     "The order of toppings can also be kept.",
			definition: definition(t, pizzaV1, pizzaV2),
			subject:    verify.Engine(engine(t, pizzaSpoke())),
			knowledge:  known{mayLose: map[string][]string{"v1": {"spec.toppings"}, "v2": {"spec.toppings"}}},
		},
		"ThreeVersions": {
			reason:     "Objects are converted between two spokes through the hub.",
			definition: definition(t, pizzaV1, pizzaV2, "v3: {type: object, properties: {pizza: {type: object, properties: {crust: {type: string}}}, "+pizzaV3),
			versions:   []string{"v3", "v1", "v2"},
			subject: verify.Engine(engine(t, pizzaSpoke(sameToppings), convert.Spoke{Version: "v3", Conversions: []convert.Conversion{
				convert.Field("spec.pizza.crust", "spec.crust", same, same),
			}})),
			knowledge: knownPizza,
		},
		"Merged": {
			reason:     "An edit of a value that consists of two fields changes both.",
			definition: definition(t, mergedV1, mergedV2),
			subject:    merged(true),
			knowledge:  knownMerged,
		},
		"OneSided": {
			reason:     "Fields of a single version are kept. Without metadata they are lost, and the knowledge declares this loss.",
			definition: definition(t, "v1: {type: object, properties: {both: {type: string}, inner: {type: object, properties: {old: {type: string}, x: {type: integer}}}}}", "v2: {type: object, required: [fresh], properties: {both: {type: string}, fresh: {type: string, default: none}, inner: {type: object, properties: {x: {type: integer}}}}}"),
			subject: verify.Engine(engine(t, convert.Spoke{Version: "v1", Conversions: []convert.Conversion{
				convert.SpokeOnly("spec.inner.old"), convert.HubOnly("spec.fresh", convert.Default([]byte(`"none"`))),
			}})),
			knowledge: known{mayLose: map[string][]string{"v1": {"spec.inner.old"}, "v2": {"spec.fresh"}}},
		},
		"Items": {
			reason:     "The keys identify the elements of a list.",
			definition: definition(t, "v1: {type: object, properties: {list: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [id], items: {type: object, required: [id], properties: {id: {type: string}, old: {type: string}, a: {type: integer}}}}}}", "v2: {type: object, properties: {list: {type: array, x-kubernetes-list-type: map, x-kubernetes-list-map-keys: [id], items: {type: object, required: [id], properties: {id: {type: string}, b: {type: integer}}}}}}"),
			subject: verify.Engine(engine(t, convert.Spoke{Version: "v1", Conversions: []convert.Conversion{
				convert.Items("spec.list", "spec.list", []convert.Conversion{convert.Move("a", "b"), convert.SpokeOnly("old")}, convert.Keys([]string{"id"}, []string{"id"})),
			}})),
			knowledge: known{mayLose: map[string][]string{"v1": {"spec.list[*].old"}}},
		},
		"Values": {
			reason:     "The keys identify the values of a table.",
			definition: definition(t, "v1: {type: object, properties: {table: {type: object, additionalProperties: {type: object, properties: {old: {type: string}, a: {type: integer}}}}}}", "v2: {type: object, properties: {table: {type: object, additionalProperties: {type: object, properties: {b: {type: integer}}}}}}"),
			subject: verify.Engine(engine(t, convert.Spoke{Version: "v1", Conversions: []convert.Conversion{
				convert.Values("spec.table", "spec.table", []convert.Conversion{convert.Move("a", "b"), convert.SpokeOnly("old")}),
			}})),
			knowledge: known{mayLose: map[string][]string{"v1": {"spec.table[*].old"}}},
		},
		"Defaults": {
			reason:     "Only one of the versions may have a default.",
			definition: definition(t, "v1: {type: object, properties: {a: {type: string}}}", "v2: {type: object, default: {}, properties: {a: {type: string, default: x}}}"),
			subject:    verify.Engine(engine(t, convert.Spoke{Version: "v1"})),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			versions := tc.versions
			if versions == nil {
				versions = []string{"v1", "v2"}
			}
			for seed := range uint64(seeds) {
				r, err := verify.Run(t.Context(), tc.subject, verify.Options{
					Definition: tc.definition, Hub: "v2", Versions: versions, Knowledge: tc.knowledge, Seed: seed, Objects: *objects,
				})
				if err != nil {
					t.Fatal(err)
				}
				for _, v := range r.Violations() {
					t.Errorf("%s\nseed %d: %s from %s to %s: %s\n%v", tc.reason, seed, v.Law, v.From, v.To, v.Message, v.Object)
				}
				if !r.Complete || r.Objects != *objects*len(versions) {
					t.Errorf("seed %d: Run() = %s", seed, text(t, r))
				}
				for _, l := range r.Laws {
					if l.Checks == 0 && (l.Law != verify.Triangle || len(versions) > 2) {
						t.Errorf("%s was never checked", l.Law)
					}
				}
			}
		})
	}
}

// TestAnySchema: if all versions of a kind have the same schema, no conversion is needed, for any schema.
func TestAnySchema(t *testing.T) {
	for seed := range uint64(40) {
		crd := generate.CRD(generate.Seeded(seed), "things."+group, generate.SchemaOptions{})
		s, _ := crd["spec"].(map[string]any)
		list, _ := s["versions"].([]any)
		v1, _ := runtime.DeepCopyJSONValue(list[0]).(map[string]any)
		v2, _ := runtime.DeepCopyJSONValue(list[0]).(map[string]any)
		v1["name"], v2["name"], v2["storage"] = "v1", "v2", false
		s["versions"] = []any{v1, v2}
		d, err := structural.New(crd)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		e, err := convert.New(convert.Resource{Group: group, Kind: d.Kind(), Hub: "v2", Spokes: []convert.Spoke{{Version: "v1"}}})
		if err != nil {
			t.Fatal(err)
		}
		r, err := verify.Run(t.Context(), verify.Engine(e), verify.Options{Definition: d, Hub: "v2", Versions: []string{"v1", "v2"}, Seed: seed, Objects: 10})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, v := range r.Violations() {
			t.Errorf("seed %d: %s from %s to %s: %s\n%v", seed, v.Law, v.From, v.To, v.Message, v.Object)
		}
	}
}
