package policy_test

import (
	"fmt"

	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/conversion/policy"
	"refract.dev/conversion/structural"
)

const exampleDefinition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: doors.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: doors, kind: Door}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {open: {type: boolean}, width: {type: integer}, color: {type: string}}}
  - name: v2
    served: true
    storage: false
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {state: {type: string, enum: [Open, Closed]}, millimeters: {type: integer}}}
`

const exampleFields = `
- {hub: spec.state, spoke: spec.open, map: [{hub: Open, spoke: true}, {hub: Closed, spoke: false}]}
- {hub: spec.millimeters, spoke: spec.width, scale: {hub: 10, spoke: 1}}
`

// A policy that forgets a field does not compile. The error contains the missing entry. With this entry, objects are
// converted without loss.
func ExampleCompile() {
	var crd map[string]any
	var fields []refractv1alpha1.FieldConversion
	for text, into := range map[string]any{exampleDefinition: &crd, exampleFields: &fields} {
		if err := yaml.Unmarshal([]byte(text), into); err != nil {
			fmt.Println(err)
			return
		}
	}
	doors, err := structural.New(crd)
	if err != nil {
		fmt.Println(err)
		return
	}
	spec := &refractv1alpha1.ConversionPolicySpec{
		CRD: "doors.example.com", Hub: "v2",
		Spokes: []refractv1alpha1.ConversionSpoke{{Version: "v1", Fields: fields}},
	}
	_, findings := policy.Compile(spec, doors)
	fmt.Println(findings)

	spoke := &spec.Spokes[0]
	spoke.Fields = append(spoke.Fields, refractv1alpha1.FieldConversion{Spoke: "spec.color", Removed: &refractv1alpha1.OneSided{}})
	p, findings := policy.Compile(spec, doors)
	fmt.Println(findings)
	engine, err := convert.New(p.Resource())
	if err != nil {
		fmt.Println(err)
		return
	}
	door := []byte(`{"apiVersion":"example.com/v1","kind":"Door","metadata":{"name":"front"},"spec":{"open":true,"width":90}}`)
	door, err = engine.Convert(door, "example.com/v2")
	fmt.Println(string(door), err)
	// Output:
	// [spec.spokes[0]: v1 has spec.color (string), v2 does not: add {spoke: spec.color, removed: {}} or name its counterpart]
	// []
	// {"apiVersion":"example.com/v2","kind":"Door","metadata":{"name":"front"},"spec":{"state":"Open","millimeters":900}} <nil>
}
