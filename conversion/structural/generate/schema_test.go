package generate

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"refract.dev/conversion/structural"
)

// source returns numbers that depend only on a seed.
func source(seed uint64) Source { return rand.NewPCG(seed, 7) }

func yamlOf(t *testing.T, v any) string {
	t.Helper()
	out, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestCRDIsAccepted: Check, and so the API server, accepts every generated definition.
func TestCRDIsAccepted(t *testing.T) {
	seeds := uint64(500)
	if testing.Short() {
		seeds = 50
	}
	refused := 0
	for seed := range seeds {
		crd := CRD(source(seed), "things.example.org", SchemaOptions{})
		findings, err := structural.Check(crd)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		for _, f := range findings {
			if f.Severity == structural.Error {
				refused++
				t.Errorf("seed %d: %s\n%s", seed, f, yamlOf(t, crd))
				break
			}
		}
		if refused > 3 {
			t.Fatal("and so on")
		}
	}
}

func TestSchemaDependsOnTheSourceAlone(t *testing.T) {
	different := 0
	for seed := range uint64(100) {
		one, two := Schema(source(seed), SchemaOptions{}), Schema(source(seed), SchemaOptions{})
		if diff := cmp.Diff(one, two); diff != "" {
			t.Fatalf("seed %d twice: -first, +second:\n%s", seed, diff)
		}
		if diff := cmp.Diff(CRD(source(seed), "a.b", SchemaOptions{}), CRD(source(seed), "a.b", SchemaOptions{})); diff != "" {
			t.Fatalf("seed %d twice: -first, +second:\n%s", seed, diff)
		}
		if cmp.Diff(one, Schema(source(seed+1), SchemaOptions{})) != "" {
			different++
		}
	}
	if different < 95 {
		t.Errorf("only %d of 100 schemas differ from that of the next seed", different)
	}
}

func TestSchemaKeepsToItsSize(t *testing.T) {
	for seed := range uint64(200) {
		s := Schema(source(seed), SchemaOptions{Depth: 1, Width: 1})
		for name, property := range s.Properties {
			if name == "metadata" {
				continue
			}
			if len(property.Properties) > 1 {
				t.Errorf("seed %d: %s has %d properties, want 1 at most", seed, name, len(property.Properties))
			}
			for inner, within := range property.Properties {
				if len(within.Properties) > 0 || within.Items != nil && within.Items.Schema.Properties != nil {
					t.Errorf("seed %d: there is something beneath %s.%s", seed, name, inner)
				}
			}
		}
	}
}

// TestSchemaHasEverything: each feature of schemas occurs in some schema.
func TestSchemaHasEverything(t *testing.T) {
	seen := map[string]int{}
	for seed := range uint64(400) {
		raw, err := json.Marshal(CRD(source(seed), "things.example.org", SchemaOptions{}))
		if err != nil {
			t.Fatal(err)
		}
		for _, feature := range features() {
			if strings.Contains(string(raw), feature) {
				seen[feature]++
			}
		}
	}
	for _, feature := range features() {
		if seen[feature] == 0 {
			t.Errorf("no schema has %s", feature)
		}
	}
}

func features() []string {
	out := []string{
		`"default":{}`, `"default":[`, `"default":{"`, `"default":"`, `"default":false`, `"default":true`,
		`"nullable":true`, `"required":[`, `"minLength":`, `"maxLength":`, `"pattern":`, `"minimum":`, `"maximum":`,
		`"exclusiveMinimum":true`, `"exclusiveMaximum":true`, `"multipleOf":`, `"minItems":`, `"maxItems":`, `"minProperties":`, `"maxProperties":`,
		`"anyOf":[`, `"oneOf":[`, `"allOf":[`, `"not":{`, `"additionalProperties":true`, `"additionalProperties":{`, `"description":`, `"title":`, `"example":`,
		`"x-kubernetes-preserve-unknown-fields":true`, `"x-kubernetes-int-or-string":true`, `"x-kubernetes-embedded-resource":true`,
		`"x-kubernetes-list-type":"set"`, `"x-kubernetes-list-type":"map"`, `"x-kubernetes-list-type":"atomic"`, `"x-kubernetes-list-map-keys":[`,
		`"x-kubernetes-map-type":"atomic"`, `"x-kubernetes-map-type":"granular"`, `"x-kubernetes-validations":[`, `oldSelf`, `"optionalOldSelf":true`,
		`"messageExpression":`, `"message":`, `"reason":`, `"fieldPath":`, `"metadata":{"properties":`,
		`"scope":"Cluster"`, `"status":{}`, `"scale":{`, `"labelSelectorPath":`, `"v1beta1"`, `"additionalPrinterColumns":`,
		`"int32"`, `"int64"`, `"float"`, `"double"`,
	}
	for _, format := range formats {
		out = append(out, fmt.Sprintf(`"format":%q`, format))
	}
	return out
}
