package member

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// objectsClient makes requests for objects of any type: O is what it gets of one, and L of a list.
type objectsClient[O metav1.Object, L runtime.Object] struct {
	rest rest.Interface
	// accept and acceptList are the media types of answers.
	accept, acceptList string
}

// metadataClient gets the metadata of objects, wholeClient all of them.
type (
	metadataClient = objectsClient[*metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList]
	wholeClient    = objectsClient[*received, *receivedList]
)

// Where a type cannot be reduced to its metadata all of it may come.
const (
	acceptMetadata     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	acceptMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

func newMetadataClient(cfg *rest.Config, web *http.Client) (*metadataClient, error) {
	by, err := restClient(cfg, web, decodeMetadata)
	return &metadataClient{by, acceptMetadata, acceptMetadataList}, err
}

func newWholeClient(cfg *rest.Config, web *http.Client) (*wholeClient, error) {
	by, err := restClient(cfg, web, decodeWhole)
	return &wholeClient{by, runtime.ContentTypeJSON, runtime.ContentTypeJSON}, err
}

func restClient(cfg *rest.Config, web *http.Client, decode decodeFunc) (*rest.RESTClient, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.NegotiatedSerializer = codec{decode}
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return rest.UnversionedRESTClientForConfigAndClient(cfg, web)
}

// path returns that of the objects of a type, in one namespace or in all, or of the one with this name.
func path(gvr schema.GroupVersionResource, namespace, name string) []string {
	p := []string{"api"}
	if gvr.Group != "" {
		p = []string{"apis", gvr.Group}
	}
	p = append(p, gvr.Version)
	if namespace != "" {
		p = append(p, "namespaces", namespace)
	}
	p = append(p, gvr.Resource)
	if name != "" {
		p = append(p, name)
	}
	return p
}

// options adds the options of a request to its query.
func options(r *rest.Request, o runtime.Object) *rest.Request {
	return r.SpecificallyVersionedParams(o, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
}

// get reads an object.
func (c *objectsClient[O, L]) get(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName) (O, error) {
	r := c.rest.Get().AbsPath(path(gvr, name.Namespace, name.Name)...).SetHeader("Accept", c.accept)
	return c.object(ctx, r)
}

// patch changes an object, or makes it if it is applied.
func (c *objectsClient[O, L]) patch(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName, kind types.PatchType,
	body []byte, o metav1.PatchOptions,
) (O, error) {
	r := c.rest.Patch(kind).AbsPath(path(gvr, name.Namespace, name.Name)...).SetHeader("Accept", c.accept).Body(body)
	return c.object(ctx, options(r, &o))
}

// object makes a request that is answered with an object.
func (c *objectsClient[O, L]) object(ctx context.Context, r *rest.Request) (o O, err error) {
	answer, err := r.Do(ctx).Get()
	if err != nil {
		return o, err
	}
	o, ok := answer.(O)
	if !ok || o.GetName() == "" {
		return o, fmt.Errorf("want an object, got %s", answer.GetObjectKind().GroupVersionKind())
	}
	return o, nil
}

// list reads a page of the objects of a type, in one namespace or, if it is "", in all.
func (c *objectsClient[O, L]) list(ctx context.Context, gvr schema.GroupVersionResource, namespace string, o metav1.ListOptions) (page L, err error) {
	answer, err := options(c.rest.Get().AbsPath(path(gvr, namespace, "")...).SetHeader("Accept", c.acceptList), &o).Do(ctx).Get()
	if err != nil {
		return page, err
	}
	page, ok := answer.(L)
	if !ok {
		return page, fmt.Errorf("want a list of objects, got %s", answer.GetObjectKind().GroupVersionKind())
	}
	return page, nil
}

// watch watches the objects of a type in all namespaces.
func (c *objectsClient[O, L]) watch(ctx context.Context, gvr schema.GroupVersionResource, o metav1.ListOptions) (watch.Interface, error) {
	r := c.rest.Get().AbsPath(path(gvr, "", "")...).SetHeader("Accept", c.accept)
	o.Watch = true
	if o.TimeoutSeconds != nil {
		r.Timeout(time.Duration(*o.TimeoutSeconds) * time.Second)
	}
	return options(r, &o).Watch(ctx)
}

// delete begins the deletion of an object.
func (c *objectsClient[O, L]) delete(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName, o metav1.DeleteOptions) error {
	o.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"}
	body, err := json.Marshal(&o)
	if err != nil {
		return err
	}
	return c.rest.Delete().AbsPath(path(gvr, name.Namespace, name.Name)...).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error()
}
