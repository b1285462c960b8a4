// Package policies answers the API server of a hub that asks about a policy or a
// cluster which somebody writes: whether it is valid, and what it does to the
// fleet. The deletion of a policy is never refused: warnings say what it does.
//
// What lint calls an error about the written object is refused, each at its
// field. Everything else that lint has to say of the write, and its blast radius,
// comes back as warnings, which kubectl prints; so that a dry run is a preview.
//
// What is asked of the object alone always has an answer. What is asked of the
// fleet has one within a time, or there is none. What is advice is left out then, with a
// warning that says so: neither a big fleet nor a mistake in this program keeps a valid
// policy from being written. What is a check, which nobody makes later, refuses the
// write: that is what objects refer to because of an override policy, which its
// author must be allowed to read.
//
// The namespaces whose policies are written take turns, so that one whose policies are
// much work does not keep others waiting; and that work ends when nobody waits for it.
package policies

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/fair"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/webhook/bounded"
	"refract.dev/tree"
	"refract.dev/webhook/admission"
)

// Fleet knows what the hub holds.
type Fleet interface {
	// Objects returns all policies, clusters and reports on propagation, the Namespaces that
	// name a rollout policy, and the objects with a propagation label, perhaps with the definitions of their kinds
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
	// Client reads Services, and writes into the status of policies what who wrote them
	// may have objects refer to; it must not be a cache. Nil: what no answer says is
	// not known to anybody.
	Client client.Client
	// Registered tells since when the API server asks about policies, the zero time if it
	// does not; nil if it always has. What was stored while it did not ask may be asked about
	// by anybody, so who wrote it has nothing written into its status.
	Registered func(context.Context) (time.Time, error)
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

// mostRead is how many values a policy may have, together with what it was before: two
// with as many items as there may be, of ten values each. To be read, compared and
// explained takes half a KB for each.
const mostRead = 100_000

// mostAdvice is how long advice for the policies of a namespace may take at once, before
// they are only checked: reviews of large policies, sent again and again, would keep the
// processors from everybody else.
const mostAdvice = 10 * time.Second

// New returns the handler.
func New(o Options) (http.Handler, error) {
	if o.Allowed == nil {
		return nil, errors.New("nobody decides on who may read what policies refer to")
	}
	if o.Patience == 0 {
		o.Patience = patience
	}
	return bounded.Handler(newValidator(o).handle), nil
}

type validator struct {
	Options

	known   *known
	reading *bounded.Reader // What is looked at alone.
	places  *fair.Places    // Of what the fleet is asked about, of which one namespace has one.
	advice  fair.Charges    // For what helps authors.
	marker  *marker         // Nil without a client.
}

func newValidator(o Options) *validator {
	turns := bounded.Turns()
	turns.Apart = turns.Places - 1
	v := &validator{Options: o, known: newKnown(), reading: bounded.NewReader(mostRead), places: fair.New(turns), advice: fair.Charges{Most: mostAdvice}}
	if o.Client != nil {
		v.marker = newMarker(&o)
	}
	return v
}

// write is what somebody asks the API server for.
type write struct {
	ref      tree.Policy // Of a cluster, too; without generation.
	id       manifest.Identity
	now, was *unstructured.Unstructured // was is nil for a new object, and now for one that is deleted.
	author   *authenticationv1.UserInfo
	weight   int // While it waits.
}

// cluster reports whether it is one that is written.
func (w *write) cluster() bool { return w.ref.Kind == corev1alpha1.KindFederatedCluster }

// overrides reports whether it is a policy that changes what clusters get.
func (w *write) overrides() bool {
	return w.ref.Kind == corev1alpha1.KindOverridePolicy || w.ref.Kind == corev1alpha1.KindClusterOverridePolicy
}

func writeOf(req *admission.Request) (*write, error) {
	now, err := decode(req.Object)
	if err != nil {
		return nil, fmt.Errorf("reading the object: %w", err)
	}
	w := &write{now: now, author: &req.UserInfo, weight: bounded.Weight(req)}
	w.ref = tree.Policy{Kind: now.GetKind(), Namespace: now.GetNamespace(), Name: now.GetName()}
	w.id = manifest.Identity{GroupKind: now.GroupVersionKind().GroupKind(), Namespace: w.ref.Namespace, Name: w.ref.Name}
	if !manifest.Understands(now.GroupVersionKind()) || now.GroupVersionKind().GroupVersion() != corev1alpha1.GroupVersion {
		return nil, fmt.Errorf("%s is no policy and no cluster", now.GroupVersionKind())
	}
	if req.Operation == admission.Update {
		if w.was, err = decode(req.OldObject); err != nil {
			return nil, fmt.Errorf("reading the object before: %w", err)
		}
		if was := w.was; was.GroupVersionKind() != now.GroupVersionKind() || was.GetNamespace() != w.ref.Namespace || was.GetName() != w.ref.Name {
			return nil, fmt.Errorf("the object before is %s %s/%s, want the same one", was.GetKind(), was.GetNamespace(), was.GetName())
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
	if w.was == nil || w.was.GetGeneration() != w.now.GetGeneration() || !equality.Semantic.DeepEqual(w.was.Object["spec"], w.now.Object["spec"]) {
		return false
	}
	return !w.approves() && (!w.cluster() || maps.Equal(w.was.GetLabels(), w.now.GetLabels()))
}

// approves reports whether the user wants to be asked about a policy as if he had
// written it.
func (w *write) approves() bool {
	value := w.now.GetAnnotations()[refractv1alpha1.ApproveReferencesAnnotation]
	return w.overrides() && value != "" && value != w.was.GetAnnotations()[refractv1alpha1.ApproveReferencesAnnotation]
}

// handle answers one request.
func (v *validator) handle(ctx context.Context, req *admission.Request) (*admission.Response, error) {
	switch req.Operation {
	case admission.Create, admission.Update:
	case admission.Delete:
		return &admission.Response{Warnings: short(v.deletion(ctx, req))}, nil
	case admission.Connect:
		return &admission.Response{}, nil
	default:
		return admission.Denied(fmt.Errorf("operation %q is not known", req.Operation)), nil
	}
	if req.SubResource != "" {
		return &admission.Response{}, nil
	}
	w, alone, err := v.read(ctx, req)
	if err != nil {
		return admission.Denied(err), nil
	}
	if alone == nil {
		return &admission.Response{}, nil
	}
	written := writtenIn(w)
	if err := v.mayRefer(ctx, &req.UserInfo, w, written); err != nil {
		return admission.Denied(err), nil
	}
	answer := v.ask(ctx, w, alone)
	if answer.unchecked != nil {
		return admission.Denied(unchecked(w, answer.unchecked)), nil //nolint:nilerr // It is the answer.
	}
	if causes := answer.causes; len(causes) > 0 {
		return admission.Denied(refuse(w, causes)), nil
	}
	brought := tidy(answer.references, written)
	if err := v.mayRefer(ctx, &req.UserInfo, w, brought); err != nil {
		return admission.Denied(err), nil
	}
	if w.overrides() && !req.DryRun && v.marker != nil {
		// Even if the policy brings in nothing: that is what it may.
		if err := v.marker.mark(ctx, w, tidy(slices.Concat(written, brought), nil)); err != nil {
			return admission.Denied(unchecked(w, err)), nil // The error is the answer.
		}
	}
	return &admission.Response{Warnings: short(answer.warnings)}, nil
}

// read reads what is written, and checks it by itself, when it is the turn of its
// namespace. It returns no set for what says nothing new, and an error for what is refused.
func (v *validator) read(ctx context.Context, req *admission.Request) (w *write, alone *manifest.Set, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, v.Patience, bounded.ErrTooLong)
	defer cancel()
	err = v.reading.Read(ctx, req, func() error {
		var err error
		if w, err = writeOf(req); err != nil || w.saysNothingNew() {
			return err
		}
		set, problems := manifest.FromObjects(place, []*unstructured.Unstructured{w.now}, v.Namespaced)
		if causes := causesOf(problems); len(causes) > 0 {
			return refuse(w, causes)
		}
		alone = set
		return nil
	})
	return w, alone, err
}

// place stands for the name of a file where something was read from the hub.
const place = "hub"
