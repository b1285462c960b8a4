// Package injectionpolicies responds to the AdmissionReviews of an API server about ServiceInjectionPolicies. It turns
// numbers in variables into strings, and rejects invalid policies, with the field of each error.
//
// A policy gives pods access to Secrets and ConfigMaps: those that it names, and those that its Service names. The API
// server's own authorizer decides whether the author of the policy may read them. If this check fails with an error,
// the write is rejected. If another check fails with an error, only its warning is missing.
package injectionpolicies

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
	"refract.dev/internal/webhook/bounded"
	"refract.dev/kit/webhook/admission"
)

// Paths of the handlers.
const (
	ValidatePath = "/validate/injection-policies"
	MutatePath   = "/mutate/injection-policies"
)

// readFor is the longest time that a policy waits for the turn of its namespace.
const readFor = time.Second

// Options configure the handler of [Validate].
type Options struct {
	// Reading limits the number of policies that are decoded at the same time, and lets the namespaces take turns.
	// Required.
	Reading *bounded.Reader
	// Client reads from the API server, and creates pods in dry runs. It must not read from a cache.
	Client client.Client
	// Trusted are users who may write policies with Secrets and ConfigMaps that they may not read themselves. The names
	// are those of the API server; the name of a service account is system:serviceaccount:NAMESPACE:NAME. Names of
	// groups have no effect.
	Trusted []string
	// Allowed decides whether a user may perform an action. Required.
	Allowed func(ctx context.Context, user *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) (bool, error)
	// Others returns the policies of a namespace, for warnings about policies that contradict the written one. It may
	// return nil if they are unknown.
	Others func(namespace string) []*inject.Policy
	// Probe is true if the handler creates a pod with the items of the policy in a dry run.
	Probe bool
	// Exempt are the namespaces without injection.
	Exempt []string
	// Log gets messages about errors in this package.
	Log logr.Logger
}

// Validate returns the handler that decides whether a policy is stored, and warns its author of problems. It rejects a
// policy that it cannot check. So no policy can be written while the handler is unavailable.
//
// A write that does not change the spec is allowed without any check. A response takes at most about 8 seconds.
func Validate(o Options) http.Handler {
	return bounded.Handler((&validator{o}).handle)
}

type validator struct{ Options }

// write is the write of a policy that is under review.
type write struct {
	now, was *refractv1beta1.ServiceInjectionPolicy // was is nil for a new policy.
}

// writeOf decodes a request. After an error, the result has the parts that could be decoded.
func writeOf(req *admission.Request) (*write, error) {
	w := &write{now: &refractv1beta1.ServiceInjectionPolicy{}}
	if err := json.Unmarshal(req.Object, w.now); err != nil {
		return w, fmt.Errorf("reading the policy: %w", err)
	}
	if w.now.Namespace == "" {
		w.now.Namespace = req.Namespace
	}
	if req.Operation != admission.Update {
		return w, nil
	}
	w.was = &refractv1beta1.ServiceInjectionPolicy{}
	if err := json.Unmarshal(req.OldObject, w.was); err != nil {
		// The stored policy is invalid. An update that repairs it counts as a new policy.
		w.was = nil
	}
	return w, nil
}

// saysNothingNew reports whether the write leaves the spec unchanged. A policy in deletion is reviewed like any other,
// because it has effect while a finalizer keeps it.
func (w *write) saysNothingNew() bool {
	return w.was != nil && equality.Semantic.DeepEqual(w.was.Spec, w.now.Spec)
}

func (w *write) name() string {
	if w.now.Name == "" {
		return w.now.GenerateName
	}
	return w.now.Name
}

// handle answers one request.
func (v *validator) handle(ctx context.Context, req *admission.Request) (*admission.Response, error) {
	switch req.Operation {
	case admission.Create, admission.Update:
	case admission.Delete, admission.Connect:
		return &admission.Response{}, nil
	default:
		return admission.Denied(fmt.Errorf("operation %q is not known", req.Operation)), nil
	}
	if req.SubResource != "" {
		return &admission.Response{}, nil
	}
	warnings, err := v.judge(ctx, req)
	return &admission.Response{Err: err, Warnings: short(warnings)}, nil
}

// judge returns the error that rejects a policy, or else warnings for its author.
func (v *validator) judge(ctx context.Context, req *admission.Request) (warnings []string, err error) {
	w, refs, err := v.read(ctx, req)
	if err != nil || w == nil {
		return nil, err
	}
	if !slices.Contains(v.Trusted, req.UserInfo.Username) {
		if err := v.mayHandOut(ctx, &req.UserInfo, w, refs); err != nil {
			return nil, err
		}
	}
	causes, warnings := v.advise(ctx, w, refs)
	if len(causes) > 0 {
		return nil, refuse(w, causes)
	}
	return warnings, nil
}

// read decodes and checks a policy, when it is the turn of the policy's namespace. It returns the references that the
// write uses for the first time or in a new way. If the write changes nothing, w is nil.
func (v *validator) read(ctx context.Context, req *admission.Request) (w *write, refs []inject.Reference, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readFor, bounded.ErrTooLong)
	defer cancel()
	err = v.Reading.Read(ctx, req, func() error {
		is, err := writeOf(req)
		if err != nil {
			return unreadable(is, req.Object, err)
		}
		if is.saysNothingNew() {
			return nil
		}
		if errs := inject.Bounded(is.now); len(errs) > 0 { // Before any part is copied.
			return refuse(is, causesOf(errs))
		}
		if _, errs := inject.Compile(inject.Stated(is.now)); len(errs) > 0 {
			return refuse(is, causesOf(errs))
		}
		w, refs = is, is.handsOut()
		return nil
	})
	return w, refs, err
}

// unreadable returns the error for a policy that cannot be decoded. If the reason is a number that cannot become a
// string, the error has the field of the number.
func unreadable(w *write, policy []byte, why error) error {
	numbers, err := numbersIn(policy)
	if err != nil {
		return why
	}
	var causes []metav1.StatusCause
	for _, n := range numbers {
		if n.err != nil {
			causes = append(causes, metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: n.field(), Message: n.err.Error()})
		}
	}
	if causes == nil {
		return why
	}
	return refuse(w, causes)
}

func causesOf(errs field.ErrorList) []metav1.StatusCause {
	causes := make([]metav1.StatusCause, len(errs))
	for i, err := range errs {
		causes[i] = metav1.StatusCause{Type: metav1.CauseType(err.Type), Field: err.Field, Message: err.ErrorBody()}
	}
	return causes
}
