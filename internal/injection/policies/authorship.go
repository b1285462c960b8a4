package policies

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/inject"
	"refract.dev/internal/render"
)

// resources are the kinds whose content somebody might get hold of by having pods
// get it.
var resources = map[string]string{"Secret": "secrets", "ConfigMap": "configmaps"}

// rootCA is in every namespace, and every pod has it.
const rootCA = "kube-root-ca.crt"

// handsOut returns the Secrets and ConfigMaps that the write newly hands out, or
// otherwise than before. The policy must be valid.
func (w *write) handsOut() []inject.Reference {
	fresh := stated(w.now)
	if w.was != nil {
		fresh.Spec = *freshIn(&w.was.Spec, &w.now.Spec)
	}
	if s := &fresh.Spec; len(s.Env)+len(s.EnvFrom)+len(s.Volumes) == 0 {
		return nil // Mounts alone name nothing.
	}
	policy, errs := inject.Compile(fresh)
	if len(errs) > 0 { // A part of a valid policy is valid; if not, all of it is asked for.
		policy, _ = inject.Compile(stated(w.now))
	}
	return slices.DeleteFunc(policy.References(), func(r inject.Reference) bool {
		return resources[r.Kind] == "" || r.Kind == "ConfigMap" && r.Name == rootCA
	})
}

// freshIn returns the part of a spec that hands out something otherwise than the
// spec before, so that nobody can put to another use what only others may read. If
// it is all the same, to which containers it goes and what else the pod makes of
// it, that is the items that were not there; else it is the whole spec.
func freshIn(was, now *refractv1beta1.ServiceInjectionPolicySpec) *refractv1beta1.ServiceInjectionPolicySpec {
	sameItems := equality.Semantic.DeepEqual(was.Env, now.Env) && equality.Semantic.DeepEqual(was.VolumeMounts, now.VolumeMounts)
	if !equality.Semantic.DeepEqual(frame(was), frame(now)) || !sameItems && expandsVariables(now) {
		return now
	}
	out := now.DeepCopy()
	out.Env = slices.DeleteFunc(out.Env, func(e refractv1beta1.EnvVar) bool { return isIn(was.Env, e) })
	out.EnvFrom = slices.DeleteFunc(out.EnvFrom, func(e corev1.EnvFromSource) bool { return isIn(was.EnvFrom, e) })
	out.Volumes = slices.DeleteFunc(out.Volumes, func(v corev1.Volume) bool {
		return isIn(was.Volumes, v) && equality.Semantic.DeepEqual(mountsOf(was, v.Name), mountsOf(now, v.Name))
	})
	return out
}

// frame returns the spec without its items, and without what does not change where
// they go.
func frame(s *refractv1beta1.ServiceInjectionPolicySpec) *refractv1beta1.ServiceInjectionPolicySpec {
	out := *s
	out.Env, out.EnvFrom, out.Volumes, out.VolumeMounts = nil, nil, nil, nil
	out.OnConflict, out.Rollout, out.Implicit = "", nil, false
	return &out
}

// expandsVariables reports whether something in the spec may take up the value of
// a variable, as $(NAME).
func expandsVariables(s *refractv1beta1.ServiceInjectionPolicySpec) bool {
	const reference = "$("
	return slices.ContainsFunc(s.Env, func(e refractv1beta1.EnvVar) bool { return strings.Contains(string(e.Value), reference) }) ||
		slices.ContainsFunc(s.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.Contains(m.SubPathExpr, reference) })
}

func mountsOf(s *refractv1beta1.ServiceInjectionPolicySpec, volume string) []corev1.VolumeMount {
	return slices.DeleteFunc(slices.Clone(s.VolumeMounts), func(m corev1.VolumeMount) bool { return m.Name != volume })
}

func isIn[T any](list []T, item T) bool {
	return slices.ContainsFunc(list, func(e T) bool { return equality.Semantic.DeepEqual(e, item) })
}

const (
	// mostReferences is how many things a write may newly hand out.
	mostReferences = 200
	// asked is how many of them the authorizer is asked about at a time.
	asked = 8
	// askedFor is how long it may take to answer about all of them.
	askedFor = 5 * time.Second
)

// mayHandOut returns why the user may not hand these out; nil if he may.
func (v *validator) mayHandOut(ctx context.Context, user *authenticationv1.UserInfo, w *write, refs []inject.Reference) *admission.Response {
	var no admission.Response
	if len(refs) > mostReferences {
		no = refuse(w, []metav1.StatusCause{{
			Type: metav1.CauseTypeFieldValueInvalid, Field: "spec",
			Message: fmt.Sprintf("hands out %d Secrets and ConfigMaps that it did not before, want at most %d in one write", len(refs), mostReferences),
		}})
		return &no
	}
	denied, err := v.denied(ctx, user, w.now.Namespace, refs)
	switch {
	case err != nil:
		no = status(&metav1.Status{
			Code: http.StatusInternalServerError, Reason: metav1.StatusReasonInternalError,
			Message: fmt.Sprintf("nothing was stored, as it is not known whether you may hand out what the policy names: try again (%v)", err),
		})
	case len(denied) > 0:
		no = forbid(w, user, denied)
	default:
		return nil
	}
	return &no
}

// denied returns those of the references that the user may not read.
func (v *validator) denied(
	ctx context.Context, user *authenticationv1.UserInfo, namespace string, refs []inject.Reference,
) ([]inject.Reference, error) {
	ctx, cancel := context.WithTimeout(ctx, askedFor)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(asked)
	allowed := make([]bool, len(refs))
	for i := range refs {
		group.Go(func() (err error) {
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
func forbid(w *write, user *authenticationv1.UserInfo, denied []inject.Reference) admission.Response {
	names := make([]string, len(denied))
	causes := make([]metav1.StatusCause, len(denied))
	for i := range denied {
		names[i] = denied[i].Kind + " " + denied[i].Name
		causes[i] = metav1.StatusCause{
			Type: metav1.CauseTypeForbidden, Field: denied[i].Path, Message: fmt.Sprintf("user %q may not get %s", user.Username, names[i]),
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
