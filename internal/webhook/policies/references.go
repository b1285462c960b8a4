package policies

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/inject"
	"refract.dev/internal/manifest"
	"refract.dev/internal/render"
	"refract.dev/podtemplate"
	"refract.dev/tree"
)

// Authorizer decides whether a user may do something on the hub.
type Authorizer func(ctx context.Context, user *authenticationv1.UserInfo, what *authorizationv1.ResourceAttributes) (allowed bool, err error)

// Review returns the authorizer that asks the hub's own.
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

// reference is a Secret or a ConfigMap that a policy has pods refer to, so that it
// travels with them, or is given to them on the clusters. In an empty namespace it is that of every namespace.
type reference struct {
	kind, resource  string
	namespace, name string
}

func (r *reference) String() string {
	o := render.Object{Kind: r.kind, Namespace: r.namespace, Name: r.name}
	return o.String()
}

// resources are the kinds whose content somebody might get hold of by having it
// travel.
var resources = map[string]string{"Secret": "secrets", "ConfigMap": "configmaps"}

// referencesIn returns what the rules that the write brings may have pods refer
// to, be there objects that name the policy or not: they may come later. A rule
// that was there before in another place is not new.
//
// For a ClusterOverridePolicy these are the objects of the name in all namespaces.
func referencesIn(w *write) []reference {
	if !w.overrides() {
		return nil
	}
	before := rulesOf(w.was)
	found := references{}
	for _, rule := range rulesOf(w.now) {
		if !slices.ContainsFunc(before, func(b any) bool { return equality.Semantic.DeepEqual(b, rule) }) {
			found.walk(w.ref.Namespace, nil, rule)
			found.walkPatches(w.ref.Namespace, rule)
		}
	}
	return found.sorted()
}

func rulesOf(policy *unstructured.Unstructured) []any {
	if policy == nil {
		return nil
	}
	rules, _, _ := unstructured.NestedFieldNoCopy(policy.Object, "spec", "overrideRules")
	list, _ := rules.([]any)
	return list
}

type references map[reference]bool

func (found references) add(kind, namespace, name string) {
	if name != "" {
		found[reference{kind: kind, resource: resources[kind], namespace: namespace, name: name}] = true
	}
}

func (found references) sorted() []reference {
	return slices.SortedFunc(maps.Keys(found), func(a, b reference) int {
		return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.namespace, b.namespace), strings.Compare(a.name, b.name))
	})
}

// walkPatches looks at what JSON patches put where.
func (found references) walkPatches(namespace string, rule any) {
	root, _ := rule.(map[string]any)
	patches, _, _ := unstructured.NestedFieldNoCopy(root, "overriders", "jsonpatch")
	list, _ := patches.([]any)
	for _, p := range list {
		patch, _ := p.(map[string]any)
		path, _ := patch["path"].(string)
		if parsed, err := tree.Parse(path); err == nil {
			found.walk(namespace, withoutIndexes(parsed.Keys()), patch["value"])
		}
	}
}

// withoutIndexes leaves out where in a list something is.
func withoutIndexes(keys []string) []string {
	return slices.DeleteFunc(slices.Clone(keys), func(key string) bool {
		_, err := strconv.Atoi(key)
		return err == nil || key == "-"
	})
}

// walk looks for names of Secrets and ConfigMaps in a value at a place, of which
// the keys are given from the root.
func (found references) walk(namespace string, keys []string, value any) {
	switch v := value.(type) {
	case map[string]any:
		for key, member := range v {
			found.walk(namespace, append(slices.Clip(keys), key), member)
		}
	case []any:
		for _, element := range v {
			found.walk(namespace, keys, element)
		}
	case string:
		if kind := kindAt(keys); kind != "" {
			found.add(kind, namespace, v)
		}
		if len(keys) > 0 {
			for _, ref := range handedOutBy(map[string]string{keys[len(keys)-1]: v}) {
				found.add(ref.Kind, namespace, ref.Name)
			}
		}
	}
}

// handedOutBy returns what the annotations of a Service have injected into pods: an
// injection policy on the clusters hands it out to them, and nobody is asked there.
func handedOutBy(annotations map[string]string) []podtemplate.Reference {
	items, _ := inject.FromService(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		refractv1beta1.EnvFromAnnotation: annotations[refractv1beta1.EnvFromAnnotation],
		refractv1beta1.MountAnnotation:   annotations[refractv1beta1.MountAnnotation],
	}}}) // What is wrong there names nothing.
	var out []podtemplate.Reference
	for _, e := range items.EnvFrom {
		if e.SecretRef != nil {
			out = append(out, podtemplate.Reference{Kind: "Secret", Name: e.SecretRef.Name})
		}
		if e.ConfigMapRef != nil {
			out = append(out, podtemplate.Reference{Kind: "ConfigMap", Name: e.ConfigMapRef.Name})
		}
	}
	for _, v := range items.Volumes {
		if v.Secret != nil {
			out = append(out, podtemplate.Reference{Kind: "Secret", Name: v.Secret.SecretName})
		}
		if v.ConfigMap != nil {
			out = append(out, podtemplate.Reference{Kind: "ConfigMap", Name: v.ConfigMap.Name})
		}
	}
	return out
}

// kindAt returns of what kind the object is that a pod spec names at a place;
// empty if it names none there. It knows the places of [podtemplate.References].
func kindAt(keys []string) string {
	last, parent := "", ""
	if len(keys) > 0 {
		last = keys[len(keys)-1]
	}
	if len(keys) > 1 {
		parent = keys[len(keys)-2]
	}
	volumes := slices.Contains(keys, "volumes")
	switch {
	case volumes && last == "secretName":
		return "Secret"
	case last != "name":
		return ""
	case parent == "secretKeyRef", parent == "secretRef", parent == "imagePullSecrets":
		return "Secret"
	case parent == "configMapKeyRef", parent == "configMapRef":
		return "ConfigMap"
	case volumes && (parent == "secret" || parent == "nodePublishSecretRef"):
		return "Secret"
	case volumes && parent == "configMap":
		return "ConfigMap"
	default:
		return ""
	}
}

// broughtIn returns what copies refer to after the write that did not before, on
// the same cluster, and that their objects do not refer to themselves: an earlier
// rule may be what brings it in. Its error is that of each.
func broughtIn(w *write, before, after *manifest.Set, each func(*render.Outcome) error) ([]reference, error) {
	if !w.overrides() {
		return nil, nil
	}
	was, err := render.Evaluate(before, render.Options{Each: each})
	if errors.Is(err, render.ErrNoClusters) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	is, err := render.Evaluate(after, render.Options{Before: was, Each: each})
	if err != nil {
		return nil, err
	}
	found := references{}
	for i := range is.Outcomes {
		o := &is.Outcomes[i]
		there := referredTo(was.Find(o.ID))
		own := map[podtemplate.Reference]bool{}
		for _, ref := range refersTo(o.Object.Content) {
			own[ref] = true
		}
		for at := range referredTo(o) {
			if !there[at] && !own[at.Reference] && resources[at.Kind] != "" {
				found.add(at.Kind, o.ID.Namespace, at.Name)
			}
		}
	}
	return found.sorted(), nil
}

// refersTo returns what pods refer to by an object: its own, or the consumers of a
// Service.
func refersTo(o *unstructured.Unstructured) []podtemplate.Reference {
	if o.GroupVersionKind().GroupKind() == (schema.GroupKind{Kind: "Service"}) {
		return handedOutBy(o.GetAnnotations())
	}
	return podtemplate.References(o)
}

// referredOn is a reference of the copy on a cluster.
type referredOn struct {
	podtemplate.Reference

	cluster string
}

func referredTo(o *render.Outcome) map[referredOn]bool {
	if o == nil {
		return nil
	}
	all := map[referredOn]bool{}
	for i := range o.Variants {
		v := &o.Variants[i]
		if v.Err != nil {
			continue
		}
		for _, ref := range refersTo(v.Object) {
			for _, c := range v.Clusters {
				all[referredOn{ref, o.Clusters[c].Name}] = true
			}
		}
	}
	return all
}

const (
	// mostReferences is how many things a write may newly refer to.
	mostReferences = 100
	// asked is how many of them the authorizer is asked about at a time.
	asked = 8
)

// mayRefer returns why the user may not have pods refer to these; nil if he may.
func (v *validator) mayRefer(ctx context.Context, user *authenticationv1.UserInfo, w *write, refs []reference) error {
	if len(refs) > mostReferences {
		return refuse(w, []metav1.StatusCause{cause("spec.overrideRules",
			fmt.Sprintf("bring in %d Secrets and ConfigMaps, want at most %d in one write", len(refs), mostReferences))})
	}
	denied, err := v.denied(ctx, user, refs)
	switch {
	case err != nil:
		return status(&metav1.Status{Code: http.StatusInternalServerError, Message: err.Error()})
	case len(denied) > 0:
		return forbid(w, denied)
	default:
		return nil
	}
}

// denied returns those of the references that the user may not read.
func (v *validator) denied(ctx context.Context, user *authenticationv1.UserInfo, refs []reference) ([]reference, error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(asked)
	denied := make([]bool, len(refs))
	for i := range refs {
		group.Go(func() error {
			ref := &refs[i]
			allowed, err := v.Allowed(ctx, user, &authorizationv1.ResourceAttributes{
				Verb: "get", Version: "v1", Resource: ref.resource, Namespace: ref.namespace, Name: ref.name,
			})
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
	var out []reference
	for i := range refs {
		if denied[i] {
			out = append(out, refs[i])
		}
	}
	return out, nil
}

// forbid says what the user may not have travel.
func forbid(w *write, denied []reference) error {
	names := make([]string, len(denied))
	for i := range denied {
		names[i] = denied[i].String()
		if denied[i].namespace == "" {
			names[i] += " of every namespace"
		}
	}
	return status(&metav1.Status{
		Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: fmt.Sprintf("the policy has pods refer to %s, which then travels to the clusters with them, or is given to them there, "+
			"and you may not read it; ask for the permission to get it, or have the policy written by somebody who may", render.Few(names)),
		Details: &metav1.StatusDetails{Group: corev1alpha1.GroupVersion.Group, Kind: w.ref.Kind, Name: w.ref.Name},
	})
}
