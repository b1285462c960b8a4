// Package policies answers the API server of a hub that asks about a policy or a
// cluster which somebody writes: whether it is valid, and what it does to the
// fleet.
//
// What lint calls an error about the written object is refused, each at its
// field. Everything else that lint has to say of the write, and its blast radius,
// comes back as warnings, which kubectl prints; so that a dry run is a preview.
//
// What is asked of the object alone always has an answer. What is asked of the
// fleet has one within a time, or is left out with a warning that says so: neither
// a big fleet nor a mistake in this program keeps a valid policy from being
// written.
package policies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/manifest"
	"refract.dev/tree"
)

// Fleet knows what the hub holds.
type Fleet interface {
	// Objects returns all policies, clusters and reports on propagation, and the
	// objects with a propagation label, perhaps with the definitions of their kinds
	// as internal/hub returns them. Nobody modifies what is returned. If
	// nothing has changed, returning the same pointers saves work.
	Objects(ctx context.Context) ([]*unstructured.Unstructured, error)
}

// Options say what the answers are made from.
type Options struct {
	// Fleet is what the hub holds; nil for nothing that is known, so that objects are
	// looked at alone.
	Fleet Fleet
	// Namespaced knows kinds of the hub; may be nil.
	Namespaced func(schema.GroupKind) (namespaced, known bool)
	// Allowed decides whether somebody may read what a policy refers to. Required.
	Allowed Authorizer
	// Lenient has what fails only because of what the fleet holds at the moment come
	// back as a warning: an order of writes that passes through such a state is
	// possible then.
	Lenient bool
	// Patience is how long the answer about the fleet may take; 3 seconds if zero.
	Patience time.Duration
	// Log is told what goes wrong here.
	Log logr.Logger
}

// patience leaves the better part of the API server's time for the rest.
const patience = 3 * time.Second

// atOnce is how many answers about the fleet are worked out at the same time. Who
// finds no place within his time goes without.
const atOnce = 2

// New returns the handler.
func New(o Options) (http.Handler, error) {
	if o.Allowed == nil {
		return nil, errors.New("nobody decides on who may read what policies refer to")
	}
	if o.Patience == 0 {
		o.Patience = patience
	}
	v := &validator{Options: o, places: make(chan struct{}, atOnce)}
	return admission.StandaloneWebhook(&admission.Webhook{Handler: v}, admission.StandaloneOptions{Logger: o.Log, MetricsPath: "policies"})
}

type validator struct {
	Options

	known  known
	places chan struct{}
}

// write is what somebody asks the API server for.
type write struct {
	ref      tree.Policy // Of a cluster, too; without generation.
	id       manifest.Identity
	now, was *unstructured.Unstructured // was is nil for a new object.
}

// cluster reports whether it is one that is written.
func (w *write) cluster() bool { return w.ref.Kind == corev1alpha1.KindFederatedCluster }

func writeOf(req *admissionv1.AdmissionRequest) (*write, error) {
	now, err := decode(req.Object.Raw)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	w := &write{now: now}
	w.ref = tree.Policy{Kind: now.GetKind(), Namespace: now.GetNamespace(), Name: now.GetName()}
	w.id = manifest.Identity{GroupKind: now.GroupVersionKind().GroupKind(), Namespace: w.ref.Namespace, Name: w.ref.Name}
	if !manifest.Understands(now.GroupVersionKind()) || now.GroupVersionKind().GroupVersion() != corev1alpha1.GroupVersion {
		return nil, fmt.Errorf("%s is no policy and no cluster", now.GroupVersionKind())
	}
	if req.Operation == admissionv1.Update {
		if w.was, err = decode(req.OldObject.Raw); err != nil {
			return nil, fmt.Errorf("reading the object before: %w", err)
		}
	}
	return w, nil
}

func decode(raw []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(raw)
}

// saysNothingNew reports whether the write leaves alone what others act on. The
// labels of a policy mean nothing to anybody here.
func (w *write) saysNothingNew() bool {
	if w.was == nil || !equality.Semantic.DeepEqual(w.was.Object["spec"], w.now.Object["spec"]) {
		return false
	}
	return !w.cluster() || maps.Equal(w.was.GetLabels(), w.now.GetLabels())
}

// Handle answers one request.
func (v *validator) Handle(ctx context.Context, req admission.Request) admission.Response {
	switch req.Operation {
	case admissionv1.Create, admissionv1.Update:
	case admissionv1.Delete, admissionv1.Connect:
		return admission.Allowed("")
	default:
		return admission.Errored(http.StatusBadRequest, fmt.Errorf("operation %q is not known", req.Operation))
	}
	if req.SubResource != "" {
		return admission.Allowed("")
	}
	w, err := writeOf(&req.AdmissionRequest)
	if err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if w.saysNothingNew() {
		return admission.Allowed("")
	}
	alone, problems := manifest.FromObjects(place, []*unstructured.Unstructured{w.now}, v.Namespaced)
	if causes := causesOf(problems); len(causes) > 0 {
		return refuse(w, causes)
	}
	if refused := v.mayRefer(ctx, &req.UserInfo, w, referencesIn(w)); refused != nil {
		return *refused
	}
	answer := v.ask(ctx, w, alone)
	if causes := answer.causes; len(causes) > 0 {
		return refuse(w, causes)
	}
	if refused := v.mayRefer(ctx, &req.UserInfo, w, answer.references); refused != nil {
		return *refused
	}
	return admission.Allowed("").WithWarnings(short(answer.warnings)...)
}

// place stands for the name of a file where something was read from the hub.
const place = "hub"
