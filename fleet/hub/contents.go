package hub

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/policy/placement"
)

// Contents are the objects on a hub that Refract uses.
type Contents struct {
	// Objects has the policies, the clusters, the Propagations and the objects that request propagation. It also has
	// the CustomResourceDefinitions of these objects' kinds, and the Namespaces that name a rollout policy. It is
	// sorted by namespace, kind, group and name. Definitions and Namespaces that do not request propagation have the
	// annotation [manifest.LocalConfig].
	Objects    []*unstructured.Unstructured
	namespaced map[schema.GroupKind]bool
}

// Scope returns whether a kind is namespaced; known is false if the hub does not serve the kind.
func (c *Contents) Scope(kind schema.GroupKind) (namespaced, known bool) {
	namespaced, known = c.namespaced[kind]
	return namespaced, known
}

// parallel is the number of types that are listed at the same time.
const parallel = 8

// Read reads the contents of a hub. It fails if it cannot read all of them: an incomplete answer would be wrong, and
// the caller would not notice.
func Read(ctx context.Context, cfg *rest.Config) (*Contents, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	cfg.WarningHandler = rest.NoWarnings{} // Deprecated types are listed, too.
	disco, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	lists, err := discovery.ServerPreferredResources(disco)
	if err := incomplete(err); err != nil {
		return nil, fmt.Errorf("discovering the types of the hub: %w", err)
	}
	r := reader{client: dyn, contents: &Contents{namespaced: map[schema.GroupKind]bool{}}}
	if err := r.plan(lists); err != nil {
		return nil, err
	}
	if err := r.run(ctx); err != nil {
		return nil, err
	}
	return r.contents, nil
}

// request is a list to read.
type request struct {
	resource schema.GroupVersionResource
	selector string
	// about selects the objects of the list that are kept; nil keeps all.
	about func(*unstructured.Unstructured) bool
	// local is whether the objects only describe other objects and are not propagated.
	local bool
}

type reader struct {
	client   dynamic.Interface
	requests []request
	contents *Contents
}

var namespaceKind = schema.GroupKind{Kind: "Namespace"}

var crdKind = schema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// incomplete returns the error of a discovery, unless it is only about types that do not matter here: an aggregated API
// server may be down, for example the server of metrics.
func incomplete(err error) error {
	var partial *discovery.ErrGroupDiscoveryFailed
	if !errors.As(err, &partial) {
		return err
	}
	for gv := range partial.Groups {
		if placement.Travels(schema.GroupKind{Group: gv.Group}) || gv.Group == corev1alpha1.GroupVersion.Group ||
			gv.Group == refractv1alpha1.GroupVersion.Group {
			return err
		}
	}
	return nil
}

// plan determines the lists to read.
func (r *reader) plan(lists []*metav1.APIResourceList) error {
	ours := map[string]bool{}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return fmt.Errorf("discovering the types of the hub: %w", err)
		}
		for i := range list.APIResources {
			resource := &list.APIResources[i]
			if strings.Contains(resource.Name, "/") {
				continue
			}
			gvk := gv.WithKind(resource.Kind)
			r.contents.namespaced[gvk.GroupKind()] = resource.Namespaced
			gvr := gv.WithResource(resource.Name)
			switch {
			case manifest.Understands(gvk): // KubeAdmiral's API group has further kinds, which Refract does not use.
				ours[gv.Group] = true
				r.requests = append(r.requests, request{resource: gvr})
			case member.Propagates(gvk.GroupKind(), resource.Verbs):
				for _, label := range []string{corev1alpha1.PropagationPolicyLabel, corev1alpha1.ClusterPropagationPolicyLabel} {
					r.requests = append(r.requests, request{resource: gvr, selector: label})
				}
			}
			if gvk.GroupKind() == namespaceKind {
				r.requests = append(r.requests, request{resource: gvr, selector: refractv1alpha1.ClusterRolloutPolicyLabel, local: true})
			}
		}
	}
	if !ours[corev1alpha1.GroupVersion.Group] {
		return fmt.Errorf("the API server does not serve %s: it is no hub, or its CustomResourceDefinitions are not installed", corev1alpha1.GroupVersion)
	}
	return nil
}

// run reads all lists, several at the same time, and collects the objects.
func (r *reader) run(ctx context.Context) error {
	answers := make([][]*unstructured.Unstructured, len(r.requests))
	failures := make([]error, len(r.requests))
	var group errgroup.Group
	group.SetLimit(parallel)
	for i := range r.requests {
		group.Go(func() error {
			answers[i], failures[i] = r.list(ctx, &r.requests[i])
			return nil
		})
	}
	if err := errors.Join(group.Wait(), errors.Join(failures...)); err != nil {
		return err
	}
	objects := distinct(answers)
	definitions, err := r.definitions(ctx, objects)
	if err != nil {
		return err
	}
	r.contents.Objects = distinct([][]*unstructured.Unstructured{objects, definitions})
	return nil
}

// definitions returns the CustomResourceDefinitions of the objects' kinds.
func (r *reader) definitions(ctx context.Context, objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	kinds := map[schema.GroupKind]bool{}
	for _, o := range objects {
		gk := o.GroupVersionKind().GroupKind()
		if strings.Contains(gk.Group, ".") && gk.Group != corev1alpha1.GroupVersion.Group && gk.Group != refractv1alpha1.GroupVersion.Group {
			kinds[gk] = true
		}
	}
	if len(kinds) == 0 {
		return nil, nil
	}
	return r.list(ctx, &request{
		local:    true,
		resource: schema.GroupVersionResource{Group: crdKind.Group, Version: "v1", Resource: "customresourcedefinitions"},
		about: func(crd *unstructured.Unstructured) bool {
			group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
			return kinds[schema.GroupKind{Group: group, Kind: kind}]
		},
	})
}

// Conversions reads the ConversionPolicies of a hub and their CustomResourceDefinitions. It returns nothing if the hub
// does not serve the type.
func Conversions(ctx context.Context, cfg *rest.Config) ([]*unstructured.Unstructured, error) {
	dyn, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	r := reader{client: dyn}
	policies, err := r.list(ctx, &request{resource: refractv1alpha1.GroupVersion.WithResource("conversionpolicies")})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	if len(policies) == 0 {
		return nil, nil
	}
	named := map[string]bool{}
	for _, p := range policies {
		name, _, _ := unstructured.NestedString(p.Object, "spec", "crd")
		named[name] = true
	}
	definitions, err := r.list(ctx, &request{
		resource: schema.GroupVersionResource{Group: crdKind.Group, Version: "v1", Resource: "customresourcedefinitions"},
		about:    func(crd *unstructured.Unstructured) bool { return named[crd.GetName()] },
	})
	if err != nil {
		return nil, err
	}
	return append(definitions, policies...), nil
}

// list reads a list page by page.
func (r *reader) list(ctx context.Context, q *request) ([]*unstructured.Unstructured, error) {
	var found []*unstructured.Unstructured
	pages := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return r.client.Resource(q.resource).List(ctx, opts)
	})
	err := pages.EachListItem(ctx, metav1.ListOptions{LabelSelector: q.selector}, func(obj runtime.Object) error {
		u, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("got a %T", obj)
		}
		if q.about == nil || q.about(u) {
			if q.local {
				keepLocal(u)
			}
			found = append(found, u)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing %s on the hub: %w", q.resource.GroupResource(), err)
	}
	return found, nil
}

func keepLocal(u *unstructured.Unstructured) {
	annotations := u.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[manifest.LocalConfig] = "true"
	u.SetAnnotations(annotations)
}

// distinct returns each object once, sorted. Of several objects with one identity it returns the first.
func distinct(lists [][]*unstructured.Unstructured) []*unstructured.Unstructured {
	type name struct {
		kind            schema.GroupKind
		namespace, name string
	}
	seen := map[name]bool{}
	var all []*unstructured.Unstructured
	for _, o := range slices.Concat(lists...) {
		n := name{o.GroupVersionKind().GroupKind(), o.GetNamespace(), o.GetName()}
		if !seen[n] {
			seen[n] = true
			all = append(all, o)
		}
	}
	slices.SortFunc(all, func(a, b *unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(folderOf(a), folderOf(b)), cmp.Compare(fileOf(a), fileOf(b)))
	})
	return all
}

// folderOf and fileOf sort objects like the files of a snapshot, so that answers from the hub and from its snapshot
// have the same order.
func folderOf(u *unstructured.Unstructured) string { return cmp.Or(u.GetNamespace(), "_cluster") }

func fileOf(u *unstructured.Unstructured) string {
	gk := u.GroupVersionKind().GroupKind()
	return strings.ToLower(gk.Kind) + "." + gk.Group + "-" + u.GetName()
}
