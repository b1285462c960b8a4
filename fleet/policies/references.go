package policies

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/reference"
	"refract.dev/fleet/variant"
	"refract.dev/internal/rescue"
	"refract.dev/tree"
)

// Authorizer decides whether a user may perform an action on the hub.
type Authorizer func(ctx context.Context, user *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) (allowed bool, err error)

// Review returns an authorizer that calls the hub's own authorizer.
func Review(c client.Client) Authorizer {
	return func(ctx context.Context, user *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: user.Username, Groups: user.Groups, UID: user.UID, Extra: map[string]authorizationv1.ExtraValue{}, ResourceAttributes: what,
		}}
		for key, values := range user.Extra {
			review.Spec.Extra[key] = authorizationv1.ExtraValue(values)
		}
		if err := c.Create(ctx, review); err != nil {
			return false, err
		}
		return review.Status.Allowed, nil
	}
}

// referent is an object that other objects refer to because of a policy. It is propagated with these objects, or
// injected into pods on the clusters. An empty namespace means the object of this name in every namespace.
type referent struct {
	reference.Reference

	namespace string
}

func (r *referent) String() string {
	o := render.Object{Kind: r.Kind, Namespace: r.namespace, Name: r.Name}
	return o.String()
}

// resources are the kinds whose content a user could read by propagating it.
var resources = map[string]string{reference.Secret: "secrets", reference.ConfigMap: "configmaps"}

// tidy returns the referents sorted, without duplicates and without those in the second argument.
func tidy(all, without []referent) []referent {
	all = slices.DeleteFunc(all, func(r referent) bool { return slices.Contains(without, r) })
	slices.SortFunc(all, func(a, b referent) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.namespace, b.namespace), strings.Compare(a.Name, b.Name))
	})
	return slices.Compact(all)
}

// writtenIn returns the references in the policy itself, even if no objects name the policy. The author's rights to
// these references are checked when the policy is written. So they need no further check when its objects are created.
// Further references depend on existing objects, see [broughtIn].
//
// For a ClusterOverridePolicy the result has the objects of these names in all namespaces.
func writtenIn(w *write) []referent {
	if !w.overrides() {
		return nil
	}
	var found []referent
	add := func(keys []string, value any) {
		for _, ref := range reference.Written(keys, value) {
			found = append(found, referent{ref, w.ref.Namespace})
		}
	}
	rules, _, _ := unstructured.NestedFieldNoCopy(w.now.Object, "spec", "overrideRules")
	list, _ := rules.([]any)
	for _, r := range list {
		rule, _ := r.(map[string]any)
		add(nil, rule["overriders"])
		patches, _, _ := unstructured.NestedFieldNoCopy(rule, "overriders", "jsonpatch")
		items, _ := patches.([]any)
		for _, p := range items {
			patch, _ := p.(map[string]any)
			path, _ := patch["path"].(string)
			if parsed, err := tree.Parse(path); err == nil {
				add(parsed.Keys(), patch["value"])
			}
		}
	}
	return tidy(found, nil)
}

// broughtIn returns the references that objects get from the policy that they name. It includes all clusters, even
// those on which the objects are not placed. It renders each object, and compares the result with the object. It holds
// the copies of only one object at a time, which have their own bounds. When ctx ends, it soon returns the cause.
func broughtIn(ctx context.Context, w *write, set *manifest.Set) ([]referent, error) {
	if !w.overrides() {
		return nil, nil
	}
	policies := map[tree.Policy]*override.Policy{}
	for i := range set.OverridePolicies {
		policies[unversioned(set.OverridePolicies[i].Compiled.Ref)] = set.OverridePolicies[i].Compiled
	}
	for i := range set.ClusterOverridePolicies {
		policies[unversioned(set.ClusterOverridePolicies[i].Compiled.Ref)] = set.ClusterOverridePolicies[i].Compiled
	}
	clusters := make([]match.Cluster, len(set.Clusters))
	for i := range set.Clusters {
		clusters[i] = match.Cluster{Name: set.Clusters[i].Cluster.Name, Labels: set.Clusters[i].Cluster.Labels}
	}
	var found []referent
	for i := range set.Objects {
		obj := set.Objects[i].Content
		refs, _, err := override.Named(obj.GetLabels(), obj.GetNamespace())
		if err != nil || !slices.Contains(refs, w.ref) {
			continue
		}
		var by []*override.Policy
		for _, ref := range refs {
			if p := policies[ref]; p != nil {
				by = append(by, p)
			}
		}
		variants := override.Render(obj, clusters, by...)
		for j := range variants {
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			v := &variants[j]
			for _, b := range variant.BroughtIn(obj, v, clusters[v.Clusters[0]], by) {
				if unversioned(by[b.Policy].Ref) == w.ref {
					found = append(found, referent{b.Reference, obj.GetNamespace()})
				}
			}
		}
	}
	return tidy(found, nil), nil
}

const (
	// mostReferences limits the references that objects can get from one policy.
	mostReferences = 1000
	// mostNamed limits the references of one kind and namespace that the authorizer checks by name. More references
	// require the right to all objects of the kind.
	mostNamed = 100
	// fewNamed is the largest number of references that are all checked by name. If there are more, the right to all
	// objects of the kind is checked first.
	fewNamed = 16
	// asked is the number of concurrent calls of the authorizer.
	asked = 8
)

// mayRefer returns nil if the user may let objects refer to all of refs, otherwise the reason why not.
func (v *validator) mayRefer(ctx context.Context, user *authenticationv1.UserInfo, w *write, refs []referent) error {
	if len(refs) > mostReferences {
		return refuse(w, []metav1.StatusCause{cause("spec.overrideRules",
			fmt.Sprintf("bring in %d Secrets and ConfigMaps, want at most %d in one policy: make several policies of it", len(refs), mostReferences))})
	}
	refs, err := v.expanded(ctx, refs)
	var denied []referent
	if err == nil {
		denied, err = v.denied(ctx, user, refs)
	}
	switch {
	case err != nil:
		return status(&metav1.Status{Code: http.StatusInternalServerError, Message: err.Error()})
	case len(denied) > 0:
		return forbid(w, denied)
	default:
		return nil
	}
}

// expanded replaces Services by the objects that their current annotations name.
func (v *validator) expanded(ctx context.Context, refs []referent) ([]referent, error) {
	var out []referent
	for _, r := range refs {
		if r.Kind != reference.Service {
			out = append(out, r)
			continue
		}
		service := &unstructured.Unstructured{}
		service.SetGroupVersionKind(schema.GroupVersionKind{Version: "v1", Kind: "Service"})
		if v.Client == nil {
			return nil, fmt.Errorf("%s cannot be read", &r)
		}
		if err := v.Client.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: r.Name}, service); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading %s: %w", &r, err)
		}
		for _, named := range reference.Of(service) {
			out = append(out, referent{named, r.namespace})
		}
	}
	return tidy(out, nil), nil
}

// denied returns the referents that the user may not read.
func (v *validator) denied(ctx context.Context, user *authenticationv1.UserInfo, refs []referent) ([]referent, error) {
	type some struct{ resource, namespace string }
	of := func(r *referent) some { return some{resources[r.Kind], r.namespace} }
	counts := map[some]int{}
	for i := range refs {
		counts[of(&refs[i])]++
	}
	all := map[some]bool{}
	for s, n := range counts {
		if n <= fewNamed {
			continue
		}
		var err error
		if all[s], err = v.mayGet(ctx, user, s.resource, s.namespace, ""); err != nil {
			return nil, fmt.Errorf("asking whether user %q may read all %s of namespace %q: %w", user.Username, s.resource, s.namespace, err)
		}
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(asked)
	denied := make([]bool, len(refs))
	for i := range refs {
		ref := &refs[i]
		s := of(ref)
		if all[s] {
			continue
		}
		if counts[s] > mostNamed {
			denied[i] = true
			continue
		}
		group.Go(func() (err error) {
			defer rescue.To(&err, v.Log, "asking what a user may read")
			allowed, err := v.mayGet(ctx, user, s.resource, s.namespace, ref.Name)
			if err != nil {
				return fmt.Errorf("asking whether user %q may read %s: %w", user.Username, ref, err)
			}
			denied[i] = !allowed
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var out []referent
	for i := range refs {
		if denied[i] {
			out = append(out, refs[i])
		}
	}
	return out, nil
}

func (v *validator) mayGet(ctx context.Context, user *authenticationv1.UserInfo, resource, namespace, name string) (bool, error) {
	return v.Allowed(ctx, user, &authorizationv1.ResourceAttributes{
		Verb: "get", Version: "v1", Resource: resource, Namespace: namespace, Name: name,
	})
}

// forbid returns the error for references that the user may not read.
func forbid(w *write, denied []referent) error {
	names := make([]string, len(denied))
	for i := range denied {
		names[i] = denied[i].String()
		if denied[i].namespace == "" {
			names[i] += " of every namespace"
		}
	}
	return status(&metav1.Status{
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf("the policy makes objects refer to %s, which would be propagated with them, or injected into pods there, "+
			"and you may not read it; the author of the policy needs the permission to get it", render.Few(names)),
		Details: &metav1.StatusDetails{Group: corev1alpha1.GroupVersion.Group, Kind: w.ref.Kind, Name: w.ref.Name},
	})
}
