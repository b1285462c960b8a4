package injectionpolicies

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/webhook/bounded"
	"refract.dev/kit/webhook/admission"
)

// Mutate returns the handler that turns whole numbers in the variables of a policy into strings, so that the stored
// value is the value that containers get. It changes nothing else.
//
// Some numbers cannot be turned into a string: they are not whole, or may have lost digits. Mutate does not reject such
// a policy, because validation rejects it later. Mutate adds a warning, because the schema rejects the policy without a
// reason.
//
// A policy with too many values is rejected. If the namespace of a policy does not get its turn in time, the response
// is an error.
func Mutate(reading *bounded.Reader, log logr.Logger) http.Handler {
	return bounded.Handler(func(ctx context.Context, req *admission.Request) (*admission.Response, error) {
		ctx, cancel := context.WithTimeoutCause(ctx, readFor, bounded.ErrTooLong)
		defer cancel()
		var out *admission.Response
		err := reading.Read(ctx, req, func() error {
			numbers, err := numbersIn(req.Object)
			if err != nil {
				log.Error(err, "A policy was left unchanged", "namespace", req.Namespace, "policy", req.Name)
			}
			out = quoted(numbers)
			return nil
		})
		switch {
		case apierrors.IsServiceUnavailable(err):
			return nil, err
		case err != nil:
			return admission.Denied(err), nil
		default:
			return out, nil
		}
	})
}

// number is a number in the value of a variable.
type number struct {
	index int
	value refractv1beta1.EnvValue
	err   error // The reason why it cannot become a string.
}

// numbersIn returns the numbers in the variables of a policy.
func numbersIn(policy []byte) ([]number, error) {
	if len(policy) == 0 { // A deletion has no object.
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
	var out []number
	for i, e := range read.Spec.Env {
		if isNumber(e.Value) {
			n := number{index: i}
			n.err = n.value.UnmarshalJSON(e.Value)
			out = append(out, n)
		}
	}
	return out, nil
}

func isNumber(value []byte) bool {
	return len(value) > 0 && (value[0] == '-' || value[0] >= '0' && value[0] <= '9')
}

// replacement is an operation of a JSON patch.
type replacement struct {
	Op    string                  `json:"op"`
	Path  string                  `json:"path"`
	Value refractv1beta1.EnvValue `json:"value"`
}

// quoted returns the response with a patch that turns the numbers into strings.
func quoted(numbers []number) *admission.Response {
	out := &admission.Response{}
	var operations []replacement
	for _, n := range numbers {
		if n.err != nil {
			out.Warnings = append(out.Warnings, fmt.Sprintf("%s: %v", n.field(), n.err))
			continue
		}
		operations = append(operations, replacement{Op: "replace", Path: fmt.Sprintf("/spec/env/%d/value", n.index), Value: n.value})
	}
	out.Warnings = short(out.Warnings)
	if operations == nil {
		return out
	}
	patch, err := json.Marshal(operations)
	if err != nil { // This cannot happen: strings can always be encoded.
		return out
	}
	out.Patch = patch
	return out
}

// field returns the field of the number in the policy.
func (n *number) field() string { return fmt.Sprintf("spec.env[%d].value", n.index) }
