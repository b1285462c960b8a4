package status

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// WriteJSON writes [Objects] or [Clusters] as one JSON document.
func WriteJSON(w io.Writer, result any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(result)
}

// WriteYAML writes [Objects] or [Clusters] as one YAML document that begins with "---".
func WriteYAML(w io.Writer, result any) error {
	text, err := yaml.Marshal(result)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "---\n%s", text)
	return err
}
