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

	"refract.dev/fleet/offline/render"
	"refract.dev/injection/inject"
	"refract.dev/internal/rescue"
)

// resources has the resource name of each kind whose content a pod could disclose to its users.
var resources = map[string]string{"Secret": "secrets", "ConfigMap": "configmaps"}

// ofService is the field of a policy that is reported for objects that the Service names.
const ofService = "spec.service"

// handsOut returns the Secrets and ConfigMaps that the write gives to pods for the first time or in a new way. The
// policy must be valid.
func (w *write) handsOut() []inject.Reference { return inject.HandsOut(w.was, w.now) }

// handsOn returns the Secrets and ConfigMaps that the policy takes over from its Service, if the write uses the Service
// in a new way. Only the present annotations of the Service count: the author of a later change of the Service needs
// the same permission.
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
	says, _ := inject.FromService(service) // Invalid items are not injected.
	all := inject.Named(w.now, says)
	if w.was != nil && w.was.Status.FromService != nil { // These items are injected while the annotations are invalid.
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
	// mostReferences is the maximum number of new references in one write.
	mostReferences = 200
	// asked is the maximum number of concurrent requests to the authorizer.
	asked = 8
	// askedFor is the time limit for all permission checks of one write together.
	askedFor = 5 * time.Second
)

// mayHandOut returns an error if the user may not read the objects of refs or the objects that the policy takes over
// from its Service. The error has the reason.
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
			Message: fmt.Sprintf("hands out %d additional Secrets and ConfigMaps, want at most %d in one write: split the policy",
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

// unknown returns the error for a write that is rejected because the permission of its author is unknown.
func unknown(err error) error {
	return status(&metav1.Status{
		Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
		Message: fmt.Sprintf("the policy was not stored, because your permission to hand out its references is not known: try again (%v)", err),
	})
}

// denied returns the references that the user may not read.
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

// forbid returns the error for a write with references that the user may not read.
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
			"have a user with such a role write the policy, or, for a user that writes reviewed policies, run refract with --trusted-authors=%s",
			render.Few(names), user.Username, w.now.Namespace, user.Username),
		Details: details(w, causes),
	})
}
