// Package injected shows the status of pods for the ServiceInjectionPolicies of their
// namespace: of a policy, how far its pods have come to have what it injects; of a
// pod, which policy put what there, and why another did not. It reads what the
// controllers wrote down, and works out the rest as they do.
package injected

import (
	"encoding/json"
	"io"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// apiVersion is that of the documents.
var apiVersion = refractv1alpha1.GroupVersion.String()

// WriteJSON writes a [Rollout] or [Pod] as one JSON document.
func WriteJSON(w io.Writer, result any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(result)
}
