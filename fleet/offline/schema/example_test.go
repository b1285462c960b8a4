package schema_test

import (
	"fmt"

	"refract.dev/fleet/offline/schema"
)

func ExampleSchemas_Check() {
	schemas, _ := schema.New(nil)
	found := schemas.Check(map[string]any{
		"apiVersion": "v1",
		"kind":       "Service",
		"spec": map[string]any{
			"tipe":  "LoadBalancer",
			"ports": []any{map[string]any{"port": "80"}},
		},
	})
	for _, m := range found {
		fmt.Printf("%s %s: %s\n", m.Path, m.Message, m.Hint)
	}
	// Output:
	// /spec/ports/0/port is "80" (a string), want an integer: write it without quotes
	// /spec/tipe there is no such field: did you mean type?
}
