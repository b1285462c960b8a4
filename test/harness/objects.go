package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Apply writes an object by server-side apply. It removes fields that an earlier Apply set and that are no longer in
// the object.
func Apply(ctx context.Context, c client.Client, object map[string]any) error {
	u := &unstructured.Unstructured{Object: object}
	err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("test"), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return nil
}

// ApplyAll applies the documents of a manifest, in order.
func ApplyAll(ctx context.Context, c client.Client, manifest string) error {
	docs := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		object := map[string]any{}
		err := docs.Decode(&object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if len(object) == 0 {
			continue
		}
		if err := Apply(ctx, c, object); err != nil {
			return err
		}
	}
}

// Establish waits until a CustomResourceDefinition has the condition Established, and then sets the time of this
// condition to a minute ago. An API server delays each creation of an object by two seconds while the condition is
// younger than two seconds.
func Establish(ctx context.Context, c client.Client, name string) error {
	return Await(ctx, func(ctx context.Context) error {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := c.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
			return err
		}
		for i := range crd.Status.Conditions {
			is := &crd.Status.Conditions[i]
			if is.Type == apiextensionsv1.Established && is.Status == apiextensionsv1.ConditionTrue {
				is.LastTransitionTime = metav1.NewTime(time.Now().Add(-time.Minute))
				return c.Status().Update(ctx, crd)
			}
		}
		return fmt.Errorf("%s is not established: %v", name, crd.Status.Conditions)
	})
}

// DeleteCRD deletes a CustomResourceDefinition, if it exists.
func DeleteCRD(ctx context.Context, c client.Client, name string) error {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return client.IgnoreNotFound(c.Delete(ctx, crd))
}

// reader reads objects whose types are named as for kubectl.
type reader struct {
	objects   dynamic.Interface
	discovery discovery.DiscoveryInterface // Not cached.
	known     *restmapper.DeferredDiscoveryRESTMapper
	types     meta.RESTMapper // With short names.
}

func (e *Env) reader(cluster string) (*reader, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.readers[cluster]; r != nil {
		return r, nil
	}
	cfg, err := e.Config(cluster)
	if err != nil {
		return nil, err
	}
	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, err
	}
	types, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(types)
	known := restmapper.NewDeferredDiscoveryRESTMapper(cached)
	r := &reader{objects: objects, discovery: types, known: known, types: restmapper.NewShortcutExpander(known, cached, nil)}
	e.readers[cluster] = r
	return r, nil
}

// Get returns an object of a cluster, or nil if the object does not exist. kind names the type as for kubectl:
// deployment, deploy or deployments.apps. The namespace is ignored for cluster-scoped types. A call costs a hundredth
// of the time of kubectl, so tests poll with Get.
func (e *Env) Get(ctx context.Context, cluster, kind, namespace, name string) (*unstructured.Unstructured, error) {
	of, err := e.resource(cluster, kind, namespace)
	if err != nil {
		return nil, err
	}
	u, err := of.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // As the comment says.
	}
	return u, err
}

// Patch changes an object or a subresource, such as its status. kind names the type as for Get. A JSON list is a JSON
// patch (RFC 6902); any other patch is a merge patch.
func (e *Env) Patch(ctx context.Context, cluster, kind, namespace, name, patch string, part ...string) error {
	of, err := e.resource(cluster, kind, namespace)
	if err != nil {
		return err
	}
	how := types.MergePatchType
	if strings.HasPrefix(strings.TrimSpace(patch), "[") {
		how = types.JSONPatchType
	}
	_, err = of.Patch(ctx, name, how, []byte(patch), metav1.PatchOptions{FieldManager: "test"}, part...)
	return err
}

// Delete requests the deletion of an object and does not wait for it. It returns no error if the object does not exist.
// kind names the type as for Get.
func (e *Env) Delete(ctx context.Context, cluster, kind, namespace, name string) error {
	of, err := e.resource(cluster, kind, namespace)
	if err != nil {
		return err
	}
	return client.IgnoreNotFound(of.Delete(ctx, name, metav1.DeleteOptions{}))
}

// resource returns a client for the objects of a type, in the namespace if the type is namespaced.
func (e *Env) resource(cluster, kind, namespace string) (dynamic.ResourceInterface, error) {
	r, err := e.reader(cluster)
	if err != nil {
		return nil, err
	}
	full, brief := schema.ParseResourceArg(strings.ToLower(kind))
	if full == nil {
		gvr := brief.WithVersion("")
		full = &gvr
	}
	find := func() (schema.GroupVersionResource, error) {
		gvr, err := r.types.ResourceFor(*full)
		if meta.IsNoMatchError(err) {
			gvr, err = r.types.ResourceFor(brief.WithVersion(""))
		}
		return gvr, err
	}
	gvr, err := find()
	if meta.IsNoMatchError(err) { // The type may be new.
		r.known.Reset()
		gvr, err = find()
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cluster, err)
	}
	gvk, err := r.types.KindFor(gvr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cluster, err)
	}
	mapping, err := r.types.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", cluster, err)
	}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return r.objects.Resource(gvr).Namespace(namespace), nil
	}
	return r.objects.Resource(gvr), nil
}
