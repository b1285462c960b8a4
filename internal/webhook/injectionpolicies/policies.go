// Package injectionpolicies answers the API server that asks about a
// ServiceInjectionPolicy which somebody writes: numbers in its variables become
// text, and what is wrong with it is refused, each at its field.
//
// A policy hands Secrets and ConfigMaps out to pods, those that it names and those
// that its Service does. Who writes one must be allowed to read them; the API server's
// own authorizer is asked. What cannot be found out about that refuses the write;
// anything else that cannot be found out leaves out a warning.
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
	"refract.dev/inject"
	"refract.dev/internal/webhook/bounded"
	"refract.dev/webhook/admission"
)

// Where the API server finds the handlers.
const (
	ValidatePath = "/validate/injection-policies"
	MutatePath   = "/mutate/injection-policies"
)

// readFor is how long it may take until it is the turn of a policy to be read.
const readFor = time.Second

// Options say what the answers are made from.
type Options struct {
	// Reading has policies be read. Required.
	Reading *bounded.Reader
	// Client reads what is there now, and tries pods out. It must not be a cache.
	Client client.Client
	// Trusted are the users who may have policies hand out what they may not read
	// themselves, each by the name that the API server knows him by: that of a service
	// account is system:serviceaccount:NAMESPACE:NAME. Names of groups mean nothing.
	Trusted []string
	// Allowed decides whether a user may do something. Required.
	Allowed func(ctx context.Context, user *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) (bool, error)
	// Others returns the policies of a namespace, to tell of those that contradict what
	// is written; nil if they are not known.
	Others func(namespace string) []*inject.Policy
	// Probe has a pod tried out with what the policy injects, by a dry run.
	Probe bool
	// Exempt are the namespaces into whose pods nothing is injected.
	Exempt []string
	// Log is told what goes wrong here.
	Log logr.Logger
}

// Validate returns the handler that decides whether a policy is stored, and warns
// of what its author should know. It refuses what it cannot decide on: while it is
// away no policy can be written.
//
// What leaves the spec as it is, is allowed as it is. It takes some 8 seconds at most.
func Validate(o Options) http.Handler {
	return bounded.Handler((&validator{o}).handle)
}

type validator struct{ Options }

// write is what somebody asks the API server for.
type write struct {
	now, was *refractv1beta1.ServiceInjectionPolicy // was is nil for a new one.
}

// writeOf reads a request; with an error, as much of it as can be read.
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
		// One that was forced into storage: who puts it right begins anew.
		w.was = nil
	}
	return w, nil
}

// saysNothingNew reports whether the write leaves alone what is injected. That the
// policy is being deleted does not: held by a finalizer it still is in effect.
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

// judge returns why a policy is refused, or what its author should know.
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

// read reads a policy and checks it by itself, when it is the turn of its namespace, and
// returns what it newly hands out. It returns no write for one that says nothing new.
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
		if errs := inject.Bounded(is.now); len(errs) > 0 { // Before anything is copied.
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

// unreadable says why a policy cannot be read: numbers that are none any more stand at
// their fields.
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
