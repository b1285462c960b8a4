package policies

import (
	"cmp"
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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/inject"
	"refract.dev/internal/render"
	"refract.dev/internal/rescue"
)

// resources are the kinds whose content somebody might get hold of by having pods
// get it.
var resources = map[string]string{"Secret": "secrets", "ConfigMap": "configmaps"}

// rootCA is in every namespace, and every pod has it.
const rootCA = "kube-root-ca.crt"

// ofService is the field of a policy by which it hands out what its Service names.
const ofService = "spec.service"

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
	return guarded(policy.References())
}

// guarded returns the references to what not everybody may read.
func guarded(refs []inject.Reference) []inject.Reference {
	return slices.DeleteFunc(refs, func(r inject.Reference) bool {
		return resources[r.Kind] == "" || r.Kind == "ConfigMap" && r.Name == rootCA
	})
}

// freshIn returns the part of a spec that hands out something otherwise than the
// spec before, so that nobody can put to another use what only others may read. If
// it is all the same, to which containers it goes and what else the pod makes of
// it, that is the items that were not there; else it is the whole spec.
func freshIn(was, now *refractv1beta1.ServiceInjectionPolicySpec) *refractv1beta1.ServiceInjectionPolicySpec {
	if goesElsewhere(was, now) {
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

// goesElsewhere reports whether all that a policy hands out goes to other pods or
// containers than before, or something else may be made of all of it there.
func goesElsewhere(was, now *refractv1beta1.ServiceInjectionPolicySpec) bool {
	sameItems := equality.Semantic.DeepEqual(was.Env, now.Env) && equality.Semantic.DeepEqual(was.VolumeMounts, now.VolumeMounts)
	return !equality.Semantic.DeepEqual(frame(was), frame(now)) || !sameItems && expandsVariables(now)
}

// handsOn returns the Secrets and ConfigMaps that the policy takes over from its
// Service, as that is now, and of which the write makes something else than was made
// of them before. Who changes the Service later is asked himself.
func (v *validator) handsOn(ctx context.Context, w *write) ([]inject.Reference, error) {
	now := &w.now.Spec
	if !now.Implicit || w.was != nil && w.was.Spec.Implicit && !goesElsewhere(&w.was.Spec, now) && !mountsOthers(&w.was.Spec, now) {
		return nil, nil
	}
	service := &corev1.Service{}
	switch err := v.Client.Get(ctx, client.ObjectKey{Namespace: w.now.Namespace, Name: now.Service}, service); {
	case apierrors.IsNotFound(err):
	case err != nil:
		return nil, fmt.Errorf("reading Service %s/%s: %w", w.now.Namespace, now.Service, err)
	}
	says, _ := inject.FromService(service) // What is wrong there is handed out by nobody.
	all := namedBy(w.now, says)
	if w.was != nil && w.was.Status.FromService != nil { // What counts for as long as the annotations are wrong.
		all = append(all, namedBy(w.now, w.was.Status.FromService)...)
	}
	slices.SortFunc(all, func(a, b inject.Reference) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
	})
	return slices.CompactFunc(all, func(a, b inject.Reference) bool { return a.Kind == b.Kind && a.Name == b.Name }), nil
}

// namedBy returns the Secrets and ConfigMaps that items of a Service name.
func namedBy(p *refractv1beta1.ServiceInjectionPolicy, items *refractv1beta1.InjectedItems) []inject.Reference {
	var out []inject.Reference
	name := func(one refractv1beta1.InjectedItems) {
		alone := stated(p)
		alone.Spec.Env, alone.Spec.EnvFrom, alone.Spec.Volumes, alone.Spec.VolumeMounts = nil, nil, nil, nil
		alone.Status.FromService = &one
		policy, errs := inject.Compile(alone)
		if len(errs) > 0 {
			return // Nor does any policy inject this.
		}
		for _, r := range guarded(policy.References()) {
			out = append(out, inject.Reference{Kind: r.Kind, Name: r.Name, Optional: true, Path: ofService})
		}
	}
	// One by one: what is too much all together may fit after a part was taken away.
	for i := range items.Env {
		name(refractv1beta1.InjectedItems{Env: items.Env[i : i+1]})
	}
	for i := range items.EnvFrom {
		name(refractv1beta1.InjectedItems{EnvFrom: items.EnvFrom[i : i+1]})
	}
	for i := range items.Volumes {
		name(refractv1beta1.InjectedItems{Volumes: items.Volumes[i : i+1]})
	}
	return out
}

// mountsOthers reports whether there are new mounts of volumes that the policy does
// not have itself: they may be those of the Service.
func mountsOthers(was, now *refractv1beta1.ServiceInjectionPolicySpec) bool {
	return slices.ContainsFunc(now.VolumeMounts, func(m corev1.VolumeMount) bool {
		own := slices.ContainsFunc(now.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		return !own && !isIn(was.VolumeMounts, m)
	})
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
			Message: fmt.Sprintf("hands out %d Secrets and ConfigMaps that it did not before, want at most %d in one write", len(refs), mostReferences),
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
