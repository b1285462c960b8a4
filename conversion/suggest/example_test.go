package suggest_test

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/suggest"
)

// The versions of this definition use different units. One of them has an additional field.
func ExamplePolicy() {
	var crd map[string]any
	err := yaml.Unmarshal([]byte(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ovens.example.com}
spec:
  group: example.com
  names: {kind: Oven, listKind: OvenList, plural: ovens, singular: oven}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {bakeMinutes: {type: integer}}}}}}
  - name: v2
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {bakeSeconds: {type: integer}, fuel: {type: string}}}}}}
`), &crd)
	if err != nil {
		panic(err)
	}
	definition, err := structural.New(crd)
	if err != nil {
		panic(err)
	}
	policy, notes, err := suggest.Policy(definition, "")
	if err != nil {
		panic(err)
	}
	text, err := yaml.Marshal(policy.Spec)
	if err != nil {
		panic(err)
	}
	fmt.Print(string(text))
	fmt.Println(notes[1])
	fmt.Println(notes[2])
	// Output:
	// crd: ovens.example.com
	// hub: v2
	// spokes:
	// - fields:
	//   - hub: spec.bakeSeconds
	//     scale:
	//       hub: 60
	//       spoke: 1
	//     spoke: spec.bakeMinutes
	//   - added: {}
	//     hub: spec.fuel
	//   version: v1
	// spec.spokes[0].fields[0]: decide whether the hub counts in seconds and the spoke in minutes: a guess, by their names
	// spec.spokes[0].fields[1]: only v2 has spec.fuel: objects in v1 keep it in an annotation
}
