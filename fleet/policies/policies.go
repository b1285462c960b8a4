// Package policies answers the AdmissionReviews of a hub's API server about policies and clusters. It decides whether a
// written object is valid, and warns of the effects on the fleet. It never rejects the deletion of a policy, but warns
// of its effects.
//
// If lint reports an error of the written object, the answer rejects the write, with the field of each error. All other
// findings of lint about the write, and its blast radius, are warnings, which kubectl prints. So a dry run is a
// preview.
//
// Checks that need only the object always have a result. Evaluations of the fleet have a time limit, and may have no
// result. If the advice is missing, a warning says so: neither a large fleet nor an error of this program blocks a
// valid policy. If the required check has no result, the write is rejected, because no later step makes this check. It
// concerns the Secrets and ConfigMaps that objects refer to because of an override policy: the author of the policy
// must be allowed to read them.
//
// Namespaces take turns, so that expensive policies of one namespace do not delay the policies of others. The work for
// a review ends when the API server no longer waits for the answer.
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
	"refract.dev/fleet/offline/manifest"
	"refract.dev/internal/fair"
	"refract.dev/internal/webhook/bounded"
	"refract.dev/kit/webhook/admission"
	"refract.dev/tree"
)

// Fleet returns the objects of the hub.
type Fleet interface {
	// Objects returns all policies, clusters and Propagations, the Namespaces that name a rollout policy, and the
	// objects with a propagation label, optionally with the definitions of their kinds as fleet/hub returns them.
	// The result must not be modified. If nothing has changed, returning the same pointers saves work.
	Objects(ctx context.Context) ([]*unstructured.Unstructured, error)
}

// Options configure the handler of [New].
type Options struct {
	// Fleet returns the objects of the hub. If nil, the fleet is unknown, and only the written object is checked.
	Fleet Fleet
	// Namespaced knows kinds of the hub; may be nil.
	Namespaced func(schema.GroupKind) (namespaced, known bool)
	// Allowed decides whether a user may read the objects that a policy refers to. Required.
	Allowed Authorizer
	// Client reads Services, and writes the allowed references of policies into their statuses. It must not be a cache.
	// If nil, these are not recorded anywhere, and policies that refer to Services cannot be checked.
	Client client.Client
	// Registered returns the time since which the API server has called the webhook for policies; zero if it does not
	// call the webhook. A nil Registered means that it always has. While the webhook is not registered, any client can
	// forge the first review of a policy, so policies written in that time get no marks.
	Registered func(context.Context) (time.Time, error)
	// Lenient turns errors that depend on the current state of the fleet into warnings. This allows a sequence of
	// writes with an invalid intermediate state.
	Lenient bool
	// Patience is the time limit of an evaluation of the fleet; zero means 3 seconds.
	Patience time.Duration
	// Log gets messages about internal errors.
	Log logr.Logger
}

// patience is a small part of the API server's timeout, which leaves the rest for other work.
const patience = 3 * time.Second

// mostAdvice is the budget of computing time for advice in one namespace. When it is used up, the policies are only
// checked. Otherwise many reviews of large policies would take the CPU from all other work.
const mostAdvice = 10 * time.Second

// New returns the handler.
func New(o Options) (http.Handler, error) {
	if o.Allowed == nil {
		return nil, errors.New("want an authorizer for the references of policies, got none")
	}
	if o.Patience == 0 {
		o.Patience = patience
	}
	return bounded.Handler(newValidator(o).handle), nil
}

type validator struct {
	Options

	known   *known
	reading *bounded.Reader // Turns for decoding and checking single objects.
	places  *fair.Places    // Turns for evaluations of the fleet, at most one for each namespace.
	advice  fair.Charges    // Time spent on advice for authors.
	marker  *marker         // Nil if there is no client.
}

func newValidator(o Options) *validator {
	turns := bounded.Turns()
	turns.Apart = turns.Places - 1
	v := &validator{
		Options: o, known: newKnown(), reading: bounded.NewReader(bounded.MaxValues), places: fair.New(turns), advice: fair.Charges{Most: mostAdvice},
	}
	if o.Client != nil {
		v.marker = newMarker(&o)
	}
	return v
}

// write is the write or deletion that a review is about.
type write struct {
	ref      tree.Policy // The written policy or cluster, without generation.
	id       manifest.Identity
	now, was *unstructured.Unstructured // For a new object, was is nil. For a deletion, now is nil.
	author   *authenticationv1.UserInfo
	weight   int // The weight while it waits for its turn.
}

// cluster reports whether the object is a cluster.
func (w *write) cluster() bool { return w.ref.Kind == corev1alpha1.KindFederatedCluster }

// overrides reports whether the object is an override policy.
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
			return nil, fmt.Errorf("reading the old object: %w", err)
		}
		if was := w.was; was.GroupVersionKind() != now.GroupVersionKind() || was.GetNamespace() != w.ref.Namespace || was.GetName() != w.ref.Name {
			return nil, fmt.Errorf("the old object is %s %s/%s, want the same one", was.GetKind(), was.GetNamespace(), was.GetName())
		}
	}
	return w, nil
}

func decode(raw []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	return u, u.UnmarshalJSON(raw)
}

// saysNothingNew reports whether the write changes no field that controllers use. Controllers do not use the labels of
// a policy.
func (w *write) saysNothingNew() bool {
	if w.was == nil || w.was.GetGeneration() != w.now.GetGeneration() || !equality.Semantic.DeepEqual(w.was.Object["spec"], w.now.Object["spec"]) {
		return false
	}
	return !w.approves() && (!w.cluster() || maps.Equal(w.was.GetLabels(), w.now.GetLabels()))
}

// approves reports whether the user approves the references of a policy. An approval is checked like a write of the
// policy.
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
		return admission.Denied(unchecked(w, answer.unchecked)), nil //nolint:nilerr // The answer contains the error.
	}
	if causes := answer.causes; len(causes) > 0 {
		return admission.Denied(refuse(w, causes)), nil
	}
	brought := tidy(answer.references, written)
	if err := v.mayRefer(ctx, &req.UserInfo, w, brought); err != nil {
		return admission.Denied(err), nil
	}
	if w.overrides() && !req.DryRun && v.marker != nil {
		// The call is also needed without references: an empty mark records that the policy may not refer to any
		// objects.
		if err := v.marker.mark(ctx, w, tidy(slices.Concat(written, brought), nil)); err != nil {
			return admission.Denied(unchecked(w, err)), nil // The answer contains the error.
		}
	}
	return &admission.Response{Warnings: short(answer.warnings)}, nil
}

// read decodes and checks the written object when its namespace has its turn. It returns a nil set for a write that
// changes nothing, and an error for a write that is rejected.
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

// place replaces the file name for objects from the hub.
const place = "hub"
