package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// inventory lists and removes the objects of a cluster, except those that its control plane maintains for itself.
type inventory struct {
	core    kubernetes.Interface
	whole   dynamic.Interface
	objects metadata.Interface
	hurried time.Time // The last time when hurry made the API server continue the removal of types.
}

func newInventory(kubeconfig string) (*inventory, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS, cfg.WarningHandler = -1, rest.NoWarnings{}
	in := &inventory{}
	if in.core, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, err
	}
	if in.whole, err = dynamic.NewForConfig(cfg); err != nil {
		return nil, err
	}
	in.objects, err = metadata.NewForConfig(cfg)
	return in, err
}

// item is an object of a cluster.
type item struct {
	gvr schema.GroupVersionResource
	metav1.PartialObjectMetadata
}

func (i item) String() string {
	return fmt.Sprintf("%s %s", i.gvr.GroupResource(), strings.TrimPrefix(i.Namespace+"/"+i.Name, "/"))
}

// uids returns the UIDs of all objects.
func (in *inventory) uids(ctx context.Context) ([]string, error) {
	all, err := in.list(ctx)
	if err != nil {
		return nil, err
	}
	var uids []string
	for i := range all {
		uids = append(uids, string(all[i].UID))
	}
	return uids, nil
}

// list returns all objects. With an error, it returns the objects that could be read.
func (in *inventory) list(ctx context.Context) ([]item, error) {
	of, err := in.types()
	if err != nil {
		return nil, err
	}
	return in.listOf(ctx, of)
}

// types returns the listed types in a fixed order.
func (in *inventory) types() ([]schema.GroupVersionResource, error) {
	lists, err := in.core.Discovery().ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return nil, err
	}
	of, err := discovery.GroupVersionResources(discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list", "delete"}}, lists))
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(of, func(gvr schema.GroupVersionResource, _ struct{}) bool { return kept(gvr.GroupResource()) })
	return slices.SortedFunc(maps.Keys(of), func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) }), nil
}

// listOf is like list, for some types.
func (in *inventory) listOf(ctx context.Context, of []schema.GroupVersionResource) ([]item, error) {
	var mu sync.Mutex
	var all []item
	var errs []error
	var some errgroup.Group
	some.SetLimit(8)
	for _, gvr := range of {
		some.Go(func() error {
			list, err := in.objects.Resource(gvr).List(ctx, metav1.ListOptions{})
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				if !apierrors.IsNotFound(err) && !apierrors.IsMethodNotSupported(err) {
					errs = append(errs, fmt.Errorf("listing %s: %w", gvr.GroupResource(), err))
				}
				return nil
			}
			for i := range list.Items {
				if it := (item{gvr, list.Items[i]}); !it.kept() {
					all = append(all, it)
				}
			}
			return nil
		})
	}
	err := some.Wait()
	return all, errors.Join(append(errs, err)...)
}

// kept reports whether all objects of a type belong to the control plane.
func kept(of schema.GroupResource) bool {
	switch of.Group {
	case "flowcontrol.apiserver.k8s.io", "events.k8s.io", "internal.apiserver.k8s.io":
		return true
	}
	return slices.Contains([]string{"servicecidrs", "ipaddresses", "clustertrustbundles"}, of.Resource)
}

// kept reports whether an object belongs to the control plane. The control plane may create such objects later than others.
func (i item) kept() bool {
	switch i.gvr.Resource {
	case "namespaces":
		return i.Name == metav1.NamespaceDefault || system(i.Name)
	case "apiservices": // APIServices of types that the API server itself serves.
		return i.Labels["kube-aggregator.kubernetes.io/automanaged"] != ""
	case "serviceaccounts":
		return system(i.Namespace) || i.Namespace == metav1.NamespaceDefault && i.Name == "default"
	case "leases", "events":
		return system(i.Namespace)
	case "configmaps":
		return i.Name == "kube-root-ca.crt" && (system(i.Namespace) || i.Namespace == metav1.NamespaceDefault) ||
			i.Namespace == metav1.NamespaceSystem && i.Name == "extension-apiserver-authentication" ||
			i.Namespace == metav1.NamespaceSystem && i.Name == "kube-apiserver-legacy-service-account-token-tracking"
	case "services":
		return i.Namespace == metav1.NamespaceDefault && i.Name == "kubernetes"
	case "roles", "rolebindings":
		return system(i.Namespace) && strings.HasPrefix(i.Name, "system:")
	}
	return false
}

// system reports whether a namespace belongs to the control plane.
func system(namespace string) bool {
	return slices.Contains([]string{metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}, namespace)
}

// empty removes all objects except those with one of the UIDs, regardless of finalizers and webhooks.
func (in *inventory) empty(ctx context.Context, but []string) error {
	initial := map[types.UID]bool{}
	for _, uid := range but {
		initial[types.UID(uid)] = true
	}
	policies := false
	err := Await(ctx, func(ctx context.Context) error {
		of, err := in.types()
		if err != nil {
			return err
		}
		left := func(of []schema.GroupVersionResource) ([]item, error) {
			all, err := in.listOf(ctx, of)
			return slices.DeleteFunc(all, func(i item) bool { return initial[i.UID] }), err
		}
		sayers, err := left(slices.DeleteFunc(slices.Clone(of), func(gvr schema.GroupVersionResource) bool { return !hasSay(gvr) }))
		policies = policies || slices.ContainsFunc(sayers, item.policy)
		if err := errors.Join(err, in.each(ctx, sayers, in.removeOne), in.unhook(ctx, initial)); err != nil {
			return err
		}
		rest, err := left(slices.DeleteFunc(of, hasSay))
		if len(rest) == 0 && len(sayers) == 0 {
			return err
		}
		both := slices.Concat(sayers, rest)
		some := fmt.Errorf("%d objects are left, such as %s", len(both), &both[len(both)-1])
		return errors.Join(some, err, in.remove(ctx, rest, err == nil), in.hurry(ctx, rest))
	})
	if err != nil || !policies {
		return err
	}
	// An API server reloads admission policies once a second, without an event.
	select {
	case <-time.After(1500 * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// policy reports whether an item is an admission policy or its binding.
func (i item) policy() bool {
	return i.gvr.Group == "admissionregistration.k8s.io" && strings.Contains(i.gvr.Resource, "admissionpolic")
}

// hasSay reports whether objects of the type affect requests for other objects, as webhook configurations do.
func hasSay(gvr schema.GroupVersionResource) bool {
	return gvr.Group == "admissionregistration.k8s.io" || gvr.Resource == "apiservices"
}

// remove removes objects of types for which hasSay is false. Definitions and namespaces come last, and only if all is
// true: an object in a terminating namespace can no longer be changed, so the lists of the other objects must be
// complete.
func (in *inventory) remove(ctx context.Context, some []item, all bool) error {
	around := func(i item) bool {
		return i.gvr.Resource == "customresourcedefinitions" || i.gvr.Resource == "namespaces"
	}
	if err := in.each(ctx, slices.DeleteFunc(slices.Clone(some), around), in.removeOne); err != nil || !all {
		return err
	}
	return in.each(ctx, slices.DeleteFunc(some, func(i item) bool { return !around(i) }), in.removeOne)
}

// each calls the function do for all items, several at a time.
func (in *inventory) each(ctx context.Context, all []item, do func(context.Context, *item) error) error {
	var some errgroup.Group
	some.SetLimit(8)
	for i := range all {
		some.Go(func() error { return do(ctx, &all[i]) })
	}
	return some.Wait()
}

// unhook disables the conversion webhooks of definitions that are to be removed. Such a webhook may no longer run; then
// the API server delays each list of the type for a minute.
func (in *inventory) unhook(ctx context.Context, but map[types.UID]bool) error {
	crds := in.whole.Resource(apiextensionsv1.SchemeGroupVersion.WithResource("customresourcedefinitions"))
	list, err := crds.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	const patch = `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`
	for i := range list.Items {
		crd := &list.Items[i]
		strategy, _, _ := unstructured.NestedString(crd.Object, "spec", "conversion", "strategy")
		if but[crd.GetUID()] || strategy != string(apiextensionsv1.WebhookConverter) {
			continue
		}
		if _, err := crds.Patch(ctx, crd.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); ignoreGone(err) != nil {
			return fmt.Errorf("preparing the removal of CustomResourceDefinition %s: %w", crd.GetName(), err)
		}
	}
	return nil
}

// hurry makes an API server continue the removal of types. The API server doubles its waiting time after each failure,
// but a change of the definition makes it continue at once. hurry makes such a change at most once a second, so that
// the API server can complete the removal in between.
func (in *inventory) hurry(ctx context.Context, all []item) error {
	if time.Since(in.hurried) < time.Second {
		return nil
	}
	in.hurried = time.Now()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"refract.dev/test":"go on at %s"}}}`, in.hurried.Format(time.RFC3339))
	var errs []error
	for _, i := range all {
		if i.gvr.Resource != "customresourcedefinitions" || i.DeletionTimestamp == nil || time.Since(i.DeletionTimestamp.Time) < 2*time.Second {
			continue
		}
		if _, err := in.objects.Resource(i.gvr).Patch(ctx, i.Name, types.MergePatchType, patch, metav1.PatchOptions{}); ignoreGone(err) != nil {
			errs = append(errs, fmt.Errorf("hurrying the removal of %s: %w", i, err))
		}
	}
	return errors.Join(errs...)
}

func (in *inventory) removeOne(ctx context.Context, i *item) error {
	from := in.objects.Resource(i.gvr).Namespace(i.Namespace)
	// The API server needs its own finalizer to remove the objects of the type.
	ours := func(f string) bool { return f != apiextensionsv1.CustomResourceCleanupFinalizer }
	if slices.ContainsFunc(i.Finalizers, ours) {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"finalizers": slices.DeleteFunc(slices.Clone(i.Finalizers), ours)}})
		if err != nil {
			return err
		}
		if _, err := from.Patch(ctx, i.Name, types.MergePatchType, patch, metav1.PatchOptions{}); ignoreGone(err) != nil {
			return fmt.Errorf("preparing the removal of %s: %w", i, err)
		}
	}
	if i.DeletionTimestamp == nil {
		now := int64(0)
		if err := from.Delete(ctx, i.Name, metav1.DeleteOptions{GracePeriodSeconds: &now}); ignoreGone(err) != nil {
			return fmt.Errorf("removing %s: %w", i, err)
		}
	}
	if i.gvr.Resource != "namespaces" {
		return nil
	}
	// A member has no namespace controller, so the test removes the namespace's finalizer. The objects of the namespace
	// are removed already.
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: i.Name}}
	if _, err := in.core.CoreV1().Namespaces().Finalize(ctx, ns, metav1.UpdateOptions{}); ignoreGone(err) != nil {
		return fmt.Errorf("removing %s: %w", i, err)
	}
	return nil
}

// ignoreGone returns nil if the object does not exist or the request conflicts with its removal, otherwise err.
func ignoreGone(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
