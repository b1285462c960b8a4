package structural_test

import (
	"fmt"
	"log"

	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"refract.dev/conversion/structural"
)

const shelves = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shelves.library.example}
spec:
  group: library.example
  names: {kind: Shelf, plural: shelves}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              boards: {type: integer, minimum: 1, default: 5}
              label: {type: string}
`

func ExampleCheck() {
	findings, err := structural.Check(object(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: shelves.library.example}
spec:
  group: library.example
  names: {kind: Shelf, plural: shelves}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          label: {maxLenght: 20}
`))
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range findings {
		fmt.Println(f.Severity, f.Rule)
		fmt.Println(f.Path)
		fmt.Println(f.Message)
	}
	// Output:
	// error UnknownField
	// spec.versions[0].schema.openAPIV3Schema.properties[label].maxLenght
	// unknown field "maxLenght"; did you mean maxLength?
	// error FieldValueRequired
	// spec.versions[0].schema.openAPIV3Schema.properties[label].type
	// Required value: must not be empty for specified object fields
}

func ExampleVersion_Decode() {
	definition, err := structural.New(object(shelves))
	if err != nil {
		log.Fatal(err)
	}
	shelf := object(`
apiVersion: library.example/v1
kind: Shelf
metadata: {name: a}
spec: {label: A, colour: red}
`)
	version, err := definition.VersionOf(shelf)
	if err != nil {
		log.Fatal(err)
	}
	result, err := version.Decode(shelf)
	if err != nil {
		log.Fatal(err)
	}
	for _, c := range result.Changes {
		fmt.Println(c.Op, c.Path)
	}
	for _, path := range result.Unknown {
		fmt.Printf("unknown field %q\n", path)
	}
	fmt.Println(result.Object["spec"])
	// Output:
	// add /spec/boards
	// remove /spec/colour
	// unknown field "spec.colour"
	// map[boards:5 label:A]
}

func ExampleVersion_Validate() {
	definition, err := structural.New(object(shelves))
	if err != nil {
		log.Fatal(err)
	}
	version, err := definition.Version("v1")
	if err != nil {
		log.Fatal(err)
	}
	for _, f := range version.Validate(object(`
apiVersion: library.example/v1
kind: Shelf
metadata: {name: a}
spec: {boards: 0}
`)) {
		fmt.Println(f)
	}
	// Output:
	// spec.boards: Invalid value: 0: spec.boards in body should be greater than or equal to 1
}

// object parses YAML with integers as int64.
func object(text string) map[string]any {
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		panic(err)
	}
	var obj map[string]any
	if err := json.Unmarshal(data, &obj); err != nil {
		panic(err)
	}
	return obj
}
