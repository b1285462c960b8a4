package policies

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// Mutate returns the handler that makes text of whole numbers among the values of
// a policy's variables, so that what is stored says what containers get. It
// changes nothing else, and refuses nothing: a number that stays one does no harm.
func Mutate(log logr.Logger) http.Handler {
	return &admission.Webhook{
		Handler: admission.HandlerFunc(func(_ context.Context, req admission.Request) admission.Response {
			patch, err := quoted(req.Object.Raw)
			if err != nil {
				log.Error(err, "A policy was left as it is", "namespace", req.Namespace, "policy", req.Name)
				return admission.Allowed("")
			}
			return patched(patch)
		}),
		LogConstructor: func(logr.Logger, *admission.Request) logr.Logger { return log },
		// To recover would be to refuse. The server answers with an error instead, which
		// the API server passes over.
		RecoverPanic: new(false),
	}
}

func patched(patch []byte) admission.Response {
	out := admission.Allowed("")
	if patch != nil {
		out.Patch, out.PatchType = patch, new(admissionv1.PatchTypeJSONPatch)
	}
	return out
}

// replacement is an operation of a JSON patch.
type replacement struct {
	Op    string                  `json:"op"`
	Path  string                  `json:"path"`
	Value refractv1beta1.EnvValue `json:"value"`
}

// quoted returns the JSON patch that makes text of the numbers of a policy; nil if
// there are none.
func quoted(policy []byte) ([]byte, error) {
	if len(policy) == 0 { // It is being deleted.
		return nil, nil
	}
	var read struct {
		Spec struct {
			Env []struct {
				Value json.RawMessage `json:"value"`
			} `json:"env"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(policy, &read); err != nil {
		return nil, fmt.Errorf("reading the policy: %w", err)
	}
	var patch []replacement
	for i, e := range read.Spec.Env {
		var value refractv1beta1.EnvValue
		if !isNumber(e.Value) || value.UnmarshalJSON(e.Value) != nil {
			continue // What is neither text nor a whole number is refused by its schema.
		}
		patch = append(patch, replacement{Op: "replace", Path: fmt.Sprintf("/spec/env/%d/value", i), Value: value})
	}
	if patch == nil {
		return nil, nil
	}
	return json.Marshal(patch)
}

func isNumber(value []byte) bool {
	return len(value) > 0 && (value[0] == '-' || value[0] >= '0' && value[0] <= '9')
}
