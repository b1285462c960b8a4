package pipeline_test

import (
	"fmt"
	"log"

	"sigs.k8s.io/yaml"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/pipeline"
)

// ovens is a kind with one version. Its schema has no color.
const ovens = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: ovens.example.com}
spec:
  group: example.com
  names: {kind: Oven, listKind: OvenList, plural: ovens, singular: oven}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {fuel: {type: string, default: wood}}}
`

func ExampleRun() {
	var crd map[string]any
	if err := yaml.Unmarshal([]byte(ovens), &crd); err != nil {
		log.Fatal(err)
	}
	definition, err := structural.New(crd)
	if err != nil {
		log.Fatal(err)
	}
	oven := map[string]any{
		"apiVersion": "example.com/v1", "kind": "Oven",
		"metadata": map[string]any{"name": "old"},
		"spec":     map[string]any{"color": "red"},
	}
	trace, err := pipeline.Run(definition, oven, "v1", pipeline.Hooks{})
	if err != nil {
		log.Fatal(err)
	}
	for _, step := range trace.Steps {
		fmt.Println(step.Phase, step.Name, step.Version)
		for _, change := range step.Changes {
			fmt.Println(" ", change.Op, change.Path)
		}
	}

	// Output:
	// write decode v1
	//   remove /spec/color
	// write default v1
	//   add /spec/fuel
	// write validate v1
	// write store v1
	// read load v1
	// read default v1
	// read answer v1
}
