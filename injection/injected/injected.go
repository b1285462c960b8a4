// Package injected describes the results of ServiceInjectionPolicies. For a policy it describes the rollout to the
// policy's pods. For a pod it describes the additions of each policy and the reasons for skipped policies. It reads the
// stored results of the controllers. It computes all other results in the same way as the controllers do.
package injected

import (
	"encoding/json"
	"io"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// apiVersion is the API version of the documents.
var apiVersion = refractv1alpha1.GroupVersion.String()

// WriteJSON writes a [Rollout] or [Pod] as one JSON document.
func WriteJSON(w io.Writer, result any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(result)
}
