package simulation

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// form is the requested format of a response.
type form struct {
	info runtime.SerializerInfo
	// metadata is true if the client requests only the metadata.
	metadata bool
}

// codecs encodes the types of meta.k8s.io in all formats.
var codecs = func() serializer.CodecFactory {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		panic(err) // The types of the library are valid.
	}
	return serializer.NewCodecFactory(scheme)
}()

// accepted returns the first format in the Accept header that the server supports: metadata as protobuf or JSON, whole
// objects as JSON.
func accepted(header string) (form, error) {
	if header == "" {
		header = runtime.ContentTypeJSON
	}
	for one := range strings.SplitSeq(header, ",") {
		media, parameters, _ := strings.Cut(strings.TrimSpace(one), ";")
		if media == "*/*" || media == "application/*" {
			media = runtime.ContentTypeJSON
		}
		info, known := runtime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), media)
		metadata := strings.Contains(parameters, "as=PartialObjectMetadata")
		if known && (metadata || media == runtime.ContentTypeJSON && !strings.Contains(parameters, "as=")) {
			return form{info: info, metadata: metadata}, nil
		}
	}
	return form{}, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: fmt.Sprintf("only metadata is served as anything but %s, not %q", runtime.ContentTypeJSON, header),
	}}
}

// show returns the object in the format.
func (m *Member) show(o *object, f form) (runtime.Object, error) {
	meta := m.store.metadata(o)
	if f.metadata {
		return &metav1.PartialObjectMetadata{TypeMeta: metaType("PartialObjectMetadata"), ObjectMeta: meta}, nil
	}
	u := o.object()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&meta)
	if err != nil {
		return nil, err
	}
	u.Object["metadata"] = fields
	if o.workloads != NoWorkloads && o.resource.kind == "Deployment" {
		u.Object["status"] = statusOf(u, o.workloads)
	}
	return u, nil
}

// statusOf returns the status of a Deployment whose pods all have the current template. The argument says whether the
// pods are ready.
func statusOf(u *unstructured.Unstructured, is Workloads) map[string]any {
	replicas := int64(1)
	if n, found, err := unstructured.NestedNumberAsFloat64(u.Object, "spec", "replicas"); found && err == nil {
		replicas = int64(n)
	}
	available, condition := replicas, "True"
	if is == UnreadyWorkloads {
		available, condition = 0, "False"
	}
	return map[string]any{
		"observedGeneration": u.GetGeneration(), "replicas": replicas, "updatedReplicas": replicas,
		"readyReplicas": available, "availableReplicas": available, "unavailableReplicas": replicas - available,
		"conditions": []any{
			map[string]any{"type": "Available", "status": condition, "reason": "Simulated"},
			map[string]any{"type": "Progressing", "status": "True", "reason": "NewReplicaSetAvailable"},
		},
	}
}

func metaType(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: metav1.SchemeGroupVersion.String()}
}

// showList returns a page of a list in the format.
func (m *Member) showList(r *resource, page []*object, f form, meta metav1.ListMeta) (any, error) {
	if f.metadata {
		list := &metav1.PartialObjectMetadataList{TypeMeta: metaType("PartialObjectMetadataList"), ListMeta: meta}
		for _, o := range page {
			list.Items = append(list.Items, metav1.PartialObjectMetadata{TypeMeta: metaType("PartialObjectMetadata"), ObjectMeta: m.store.metadata(o)})
		}
		return list, nil
	}
	items := make([]runtime.Object, 0, len(page))
	for _, o := range page {
		item, err := m.show(o, f)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return map[string]any{"apiVersion": r.GroupVersion().String(), "kind": r.kind + "List", "metadata": meta, "items": items}, nil
}

// answer writes metadata in the format, and everything else as JSON.
func answer(w http.ResponseWriter, code int, f form, what any) {
	if o, ok := what.(runtime.Object); ok && f.metadata {
		w.Header().Set("Content-Type", f.info.MediaType)
		w.WriteHeader(code)
		_ = f.info.Serializer.Encode(o, w) // An error means that the client has disconnected.
		return
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	w.WriteHeader(code)
	encode(w, what)
}

// encode writes JSON.
func encode(w io.Writer, what any) {
	// The value can always be encoded, so an error means that the client has disconnected.
	_ = json.NewEncoder(w).Encode(what) //nolint:errchkjson // See above.
}

// refuse writes an error, always as JSON.
func refuse(w http.ResponseWriter, err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	s := known.Status()
	s.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	if s.Details != nil && s.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(s.Details.RetryAfterSeconds))
	}
	answer(w, int(s.Code), form{}, &s)
}
