package injectionpolicies

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/inject"
	"refract.dev/internal/offline/render"
	"refract.dev/internal/rescue"
)

// resources are the kinds whose content somebody might get hold of by having pods
// get it.
var resources = map[string]string{"Secret": "secrets", "ConfigMap": "configmaps"}

// ofService is the field of a policy by which it hands out what its Service names.
const ofService = "spec.service"

// handsOut returns the Secrets and ConfigMaps that the write newly hands out, or
// otherwise than before. The policy must be valid.
func (w *write) handsOut() []inject.Reference { return inject.HandsOut(w.was, w.now) }

// handsOn returns the Secrets and ConfigMaps that the policy takes over from its
// Service, as that is now, and of which the write makes something else than was made
// of them before. Who changes the Service later is asked himself.
func (v *validator) handsOn(ctx context.Context, w *write) ([]inject.Reference, error) {
	if !inject.TakesOver(w.was, w.now) {
		return nil, nil
	}
	now := &w.now.Spec
	service := &corev1.Service{}
	switch err := v.Client.Get(ctx, client.ObjectKey{Namespace: w.now.Namespace, Name: now.Service}, service); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, fmt.Errorf("reading Service %s/%s: %w", w.now.Namespace, now.Service, err)
	}
	says, _ := inject.FromService(service) // What is wrong there is handed out by nobody.
	all := inject.Named(w.now, says)
	if w.was != nil && w.was.Status.FromService != nil { // What counts for as long as the annotations are wrong.
		all = append(all, inject.Named(w.now, w.was.Status.FromService)...)
	}
	for i := range all {
		all[i].Path = ofService
	}
	slices.SortFunc(all, func(a, b inject.Reference) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return slices.CompactFunc(all, func(a, b inject.Reference) bool { return a.Kind == b.Kind && a.Name == b.Name }), nil
}

const (
	// mostReferences is how many things a write may newly hand out.
	mostReferences = 200
	// asked is how many of them the authorizer is asked about at a time.
	asked = 8
	// askedFor is how long it may take to answer about all of them.
	askedFor = 5 * time.Second
)

// mayHandOut returns why the user may not hand these out, and what the Service names;
// nil if he may.
func (v *validator) mayHandOut(ctx context.Context, user *authenticationv1.UserInfo, w *write, refs []inject.Reference) error {
	ctx, cancel := context.WithTimeout(ctx, askedFor)
	defer cancel()
	byService, err := v.handsOn(ctx, w)
	if err != nil {
		return unknown(err)
	}
	refs = slices.Concat(refs, byService)
	if len(refs) > mostReferences {
		return refuse(w, []metav1.StatusCause{{
			Type: metav1.CauseTypeFieldValueInvalid, Field: "spec",
			Message: fmt.Sprintf("hands out %d Secrets and ConfigMaps that it did not before, want at most %d in one write: make several policies of it",
				len(refs), mostReferences),
		}})
	}
	denied, err := v.denied(ctx, user, w.now.Namespace, refs)
	switch {
	case err != nil:
		return unknown(err)
	case len(denied) > 0:
		return forbid(w, user, denied)
	default:
		return nil
	}
}

// unknown says that nobody knows whether a user may write a policy.
func unknown(err error) error {
	return status(&metav1.Status{
		Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
		Message: fmt.Sprintf("nothing was stored, as it is not known whether you may hand out what the policy names: try again (%v)", err),
	})
}

// denied returns those of the references that the user may not read.
func (v *validator) denied(
	ctx context.Context, user *authenticationv1.UserInfo, namespace string, refs []inject.Reference,
) ([]inject.Reference, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(asked)
	allowed := make([]bool, len(refs))
	for i := range refs {
		group.Go(func() (err error) {
			defer rescue.To(&err, v.Log, "asking what a user may read")
			ref := &refs[i]
			allowed[i], err = v.Allowed(ctx, user, &authorizationv1.ResourceAttributes{
				Verb: "get", Version: "v1", Resource: resources[ref.Kind], Namespace: namespace, Name: ref.Name,
			})
			if err != nil {
				return fmt.Errorf("asking whether user %q may get %s %s/%s: %w", user.Username, ref.Kind, namespace, ref.Name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var out []inject.Reference
	for i := range refs {
		if !allowed[i] {
			out = append(out, refs[i])
		}
	}
	return out, nil
}

// forbid says what the user may not hand out.
func forbid(w *write, user *authenticationv1.UserInfo, denied []inject.Reference) error {
	names := make([]string, len(denied))
	causes := make([]metav1.StatusCause, len(denied))
	for i := range denied {
		names[i] = denied[i].Kind + " " + denied[i].Name
		causes[i] = metav1.StatusCause{
			Type: metav1.CauseTypeForbidden, Field: denied[i].Path, Message: fmt.Sprintf("user %q may not get %s", user.Username, names[i]),
		}
		if denied[i].Path == ofService {
			names[i] += fmt.Sprintf(" (named by Service %s)", w.now.Spec.Service)
		}
	}
	return status(&metav1.Status{
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf("the policy gives pods %s, which user %q may not get in namespace %s; ask for a role with the verb get on it there, "+
			"have somebody write the policy who may, or, for a user who writes what others have checked, run refract with --trusted-authors=%s",
			render.Few(names), user.Username, w.now.Namespace, user.Username),
		Details: details(w, causes),
	})
}
