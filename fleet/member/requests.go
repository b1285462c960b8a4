package member

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

// objectsClient makes requests for objects of any type. O is the Go type of an object in an answer. L is the Go type of
// a list. All requests for objects use it, so that no error contains values of sealed objects.
type objectsClient[O metav1.Object, L runtime.Object] struct {
	rest rest.Interface
	// accept and acceptList are the media types of answers.
	accept, acceptList string
}

// metadataClient reads the metadata of objects. wholeClient reads whole objects.
type (
	metadataClient = objectsClient[*metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList]
	wholeClient    = objectsClient[*received, *receivedList]
)

// The second media type is for API servers that cannot reduce a type to its metadata. They may send whole objects.
const (
	acceptMetadata     = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
	acceptMetadataList = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
)

func newMetadataClient(cfg *rest.Config, web *http.Client) (*metadataClient, error) {
	by, err := restClient(cfg, web, decodeFunc(decodeMetadata))
	return &metadataClient{by, acceptMetadata, acceptMetadataList}, err
}

func newWholeClient(cfg *rest.Config, web *http.Client) (*wholeClient, error) {
	by, err := restClient(cfg, web, decodeFunc(decodeWhole))
	return &wholeClient{by, runtime.ContentTypeJSON, runtime.ContentTypeJSON}, err
}

func restClient(cfg *rest.Config, web *http.Client, decode runtime.Decoder) (*rest.RESTClient, error) {
	cfg = rest.CopyConfig(cfg)
	cfg.NegotiatedSerializer = codec{decode}
	cfg.ContentType, cfg.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	return rest.UnversionedRESTClientForConfigAndClient(cfg, web)
}

// at prepares a request for the objects of a type in one namespace. The namespace "" means all namespaces. The member
// chooses the names of its types, so a name that would change the path of the request is an error. client-go checks all
// other names.
func at(r *rest.Request, gvr schema.GroupVersionResource, namespace string) (*rest.Request, error) {
	if !isSegment(gvr.Group) || !isSegment(gvr.Version) || gvr.Version == "" {
		return nil, fmt.Errorf("want an API group and a version that are valid in a path, got %q", gvr.GroupVersion())
	}
	prefix := []string{"/api", gvr.Version}
	if gvr.Group != "" {
		prefix = []string{"/apis", gvr.Group, gvr.Version}
	}
	return r.AbsPath(prefix...).NamespaceIfScoped(namespace, namespace != "").Resource(gvr.Resource), nil
}

// isSegment reports whether a name is a plain segment of a path.
func isSegment(name string) bool { return len(content.IsPathSegmentName(name)) == 0 }

// options adds the options of a request to its query.
func options(r *rest.Request, o runtime.Object) *rest.Request {
	return r.SpecificallyVersionedParams(o, metav1.ParameterCodec, schema.GroupVersion{Version: "v1"})
}

// get reads an object.
func (c *objectsClient[O, L]) get(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName) (O, error) {
	return c.object(ctx, c.rest.Get(), gvr, name, nil)
}

// patch changes an object, or creates it if the patch is an apply.
func (c *objectsClient[O, L]) patch(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName, kind types.PatchType,
	body []byte, o metav1.PatchOptions,
) (O, error) {
	return c.object(ctx, options(c.rest.Patch(kind).Body(body), &o), gvr, name, body)
}

// object makes a request whose answer is an object.
func (c *objectsClient[O, L]) object(
	ctx context.Context, r *rest.Request, gvr schema.GroupVersionResource, name types.NamespacedName, sent []byte,
) (o O, err error) {
	if r, err = at(r, gvr, name.Namespace); err != nil {
		return o, err
	}
	answer, err := r.Name(name.Name).SetHeader("Accept", c.accept).Do(ctx).Get()
	if err != nil {
		return o, masked(gvr.GroupResource(), sent, err)
	}
	o, ok := answer.(O)
	if !ok || o.GetName() == "" {
		return o, masked(gvr.GroupResource(), nil, fmt.Errorf("want an object, got %s", answer.GetObjectKind().GroupVersionKind()))
	}
	return o, nil
}

// list reads one page of the objects of a type in one namespace. The namespace "" means all namespaces.
func (c *objectsClient[O, L]) list(ctx context.Context, gvr schema.GroupVersionResource, namespace string, o metav1.ListOptions) (page L, err error) {
	r, err := at(c.rest.Get(), gvr, namespace)
	if err != nil {
		return page, err
	}
	answer, err := options(r.SetHeader("Accept", c.acceptList), &o).Do(ctx).Get()
	if err != nil {
		return page, masked(gvr.GroupResource(), nil, err)
	}
	page, ok := answer.(L)
	if !ok {
		return page, masked(gvr.GroupResource(), nil, fmt.Errorf("want a list of objects, got %s", answer.GetObjectKind().GroupVersionKind()))
	}
	return page, nil
}

// watch watches the objects of a type in all namespaces.
func (c *objectsClient[O, L]) watch(ctx context.Context, gvr schema.GroupVersionResource, o metav1.ListOptions) (watch.Interface, error) {
	r, err := at(c.rest.Get(), gvr, "")
	if err != nil {
		return nil, err
	}
	o.Watch = true
	if o.TimeoutSeconds != nil {
		r.Timeout(time.Duration(*o.TimeoutSeconds) * time.Second)
	}
	events, err := options(r.SetHeader("Accept", c.accept), &o).Watch(ctx)
	if err != nil {
		return nil, masked(gvr.GroupResource(), nil, err)
	}
	return maskedWatch(gvr.GroupResource(), events), nil
}

// delete begins the deletion of the object that meets the preconditions.
func (c *objectsClient[O, L]) delete(ctx context.Context, gvr schema.GroupVersionResource, name types.NamespacedName, only metav1.Preconditions) error {
	r, err := at(c.rest.Delete(), gvr, name.Namespace)
	if err != nil {
		return err
	}
	body, err := json.Marshal(&metav1.DeleteOptions{
		TypeMeta:      metav1.TypeMeta{APIVersion: "v1", Kind: "DeleteOptions"},
		Preconditions: &only, PropagationPolicy: new(metav1.DeletePropagationBackground),
	})
	if err != nil {
		return err
	}
	return masked(gvr.GroupResource(), nil, r.Name(name.Name).SetHeader("Content-Type", runtime.ContentTypeJSON).Body(body).Do(ctx).Error())
}
