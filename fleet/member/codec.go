package member

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/json"

	"refract.dev/internal/output"
	"refract.dev/tree/raw"
)

// codec decodes only the requested parts of a member's answers about objects. The decoders of client-go read each event
// of a watch ten times, and took half of the CPU time of the controllers in a large fleet.
type codec struct{ decode runtime.Decoder }

// decodeFunc decodes an object, a list of objects or a [metav1.Status]. It does not keep the data.
type decodeFunc func(data []byte) (runtime.Object, error)

// Decode implements [runtime.Decoder].
func (f decodeFunc) Decode(data []byte, _ *schema.GroupVersionKind, _ runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	o, err := f(data)
	if err != nil {
		return nil, nil, err
	}
	kind := o.GetObjectKind().GroupVersionKind()
	return o, &kind, nil
}

// asked decodes into the object of the caller, or into a [metav1.Status], so that the member does not choose the type.
// Without an object of the caller it decodes a [metav1.Status], or metadata.
type asked struct{}

// Decode implements [runtime.Decoder].
func (asked) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into == nil {
		return decodeFunc(decodeMetadata).Decode(data, nil, nil)
	}
	h, err := headOf(data)
	if err != nil {
		return nil, nil, err
	}
	if h.isStatus() {
		return decodeFunc(decodeMetadata).Decode(data, nil, nil)
	}
	kind := h.GroupVersionKind()
	return into, &kind, unmarshal(data, into)
}

// SupportedMediaTypes implements [runtime.NegotiatedSerializer].
func (c codec) SupportedMediaTypes() []runtime.SerializerInfo {
	return []runtime.SerializerInfo{{
		MediaType: runtime.ContentTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json", EncodesAsText: true,
		Serializer: runtime.NoopEncoder{Decoder: c.decode},
		StreamSerializer: &runtime.StreamSerializerInfo{
			EncodesAsText: true, Serializer: runtime.NoopEncoder{Decoder: events{}}, Framer: eventFramer{},
		},
	}}
}

// EncoderForVersion implements [runtime.NegotiatedSerializer].
func (codec) EncoderForVersion(e runtime.Encoder, _ runtime.GroupVersioner) runtime.Encoder { return e }

// DecoderToVersion implements [runtime.NegotiatedSerializer].
func (codec) DecoderToVersion(d runtime.Decoder, _ runtime.GroupVersioner) runtime.Decoder { return d }

// events decodes the events of a watch.
type events struct{}

// Decode implements [runtime.Decoder]. The object of the event refers to the data.
func (events) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return nil, nil, fmt.Errorf("a watch event is not a %T", into)
	}
	var failed error
	err := raw.Members(data, func(key, value []byte) bool {
		switch string(key) {
		case "type":
			event.Type, failed = raw.String(value)
			event.Type = output.Cut(event.Type, mostEventType) // client-go logs an unknown type.
		case "object":
			event.Object.Raw = value
		}
		return failed == nil
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading a watch event: %w", err)
	}
	return event, nil, nil
}

// mostEventType is the maximum number of bytes in the type of an event.
const mostEventType = 40

// head is an answer whose parts are not decoded, except for the kind.
type head struct {
	metav1.TypeMeta

	metadata, spec, status, items []byte
}

func headOf(data []byte) (h head, err error) {
	var at string
	var failed error
	err = raw.Members(data, func(key, value []byte) bool {
		switch at = string(key); at {
		case "kind":
			h.Kind, failed = raw.String(value)
		case "apiVersion":
			h.APIVersion, failed = raw.String(value)
		case "metadata":
			h.metadata = value
		case "spec":
			h.spec = value
		case "status":
			h.status = value
		case "items":
			h.items = value
		}
		return failed == nil
	})
	if err != nil {
		return head{}, err
	}
	if failed != nil {
		return head{}, fmt.Errorf("%s: %w", at, failed)
	}
	return h, nil
}

// answerOf is [headOf] for an answer, but requires a kind. If the answer is a Status, it also returns that Status.
func answerOf(data []byte) (h head, other *metav1.Status, err error) {
	if h, err = headOf(data); err != nil {
		return head{}, nil, err
	}
	switch {
	case h.Kind == "":
		return head{}, nil, fmt.Errorf("%w: want an object with a kind", raw.ErrSyntax)
	case h.isStatus():
		other = &metav1.Status{}
		return h, other, unmarshal(data, other)
	}
	return h, nil, nil
}

// isStatus reports whether an answer is a Status. Old API servers omit its version.
func (h *head) isStatus() bool {
	return h.Kind == "Status" && (h.APIVersion == "" || h.APIVersion == "v1" || h.APIVersion == "meta.k8s.io/v1")
}

// isList reports whether an answer is a list. A custom resource may also have a field "items" and a kind that ends with
// "List", but it has a name.
func (h *head) isList() bool {
	if h.items == nil || !strings.HasSuffix(h.Kind, "List") {
		return false
	}
	if h.metadata == nil || raw.IsNull(h.metadata) {
		return true
	}
	name, err := raw.Field(h.metadata, "name")
	return err == nil && name == nil
}

// readMetadata decodes the metadata of an object, which may be null or missing.
func (h *head) readMetadata(into *metav1.ObjectMeta) error {
	if h.metadata == nil {
		return nil
	}
	if err := readObjectMeta(h.metadata, into); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return nil
}

// readListMetadata decodes the metadata of a list, which may be missing.
func (h *head) readListMetadata(into *metav1.ListMeta) error {
	if h.metadata == nil {
		return nil
	}
	if err := unmarshal(h.metadata, into); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return nil
}

// unmarshal reads numbers without a fraction as integers, as Kubernetes does.
func unmarshal(data []byte, into any) error {
	return json.UnmarshalCaseSensitivePreserveInts(data, into)
}

// decodeMetadata is a [decodeFunc] that decodes metadata only.
func decodeMetadata(data []byte) (runtime.Object, error) {
	h, status, err := answerOf(data)
	if err != nil {
		return nil, err
	}
	if status != nil {
		return status, nil
	}
	if !h.isList() {
		o := &metav1.PartialObjectMetadata{TypeMeta: h.TypeMeta}
		return o, h.readMetadata(&o.ObjectMeta)
	}
	list := &metav1.PartialObjectMetadataList{TypeMeta: h.TypeMeta}
	if err := h.readListMetadata(&list.ListMeta); err != nil {
		return nil, err
	}
	return list, h.eachItem(func(item head, _ []byte) error {
		o := metav1.PartialObjectMetadata{TypeMeta: item.TypeMeta}
		err := item.readMetadata(&o.ObjectMeta)
		list.Items = append(list.Items, o)
		return err
	})
}

// eachItem calls the function take for each item of a list, until take returns an error.
func (h *head) eachItem(take func(item head, data []byte) error) error {
	if raw.IsNull(h.items) {
		return nil
	}
	var failed error
	err := raw.Elements(h.items, func(i int, data []byte) bool {
		item, err := headOf(data)
		if err == nil {
			err = take(item, data)
		}
		if err != nil {
			failed = fmt.Errorf("items[%d]: %w", i, err)
		}
		return err == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

// received is a whole object from an answer of a member. Only its metadata is decoded.
type received struct {
	metav1.PartialObjectMetadata

	json         []byte
	spec, status []byte // Parts of json; nil if missing.
	// fault is the reason why the metadata cannot be read. Then only the name, the namespace, the UID and the
	// resourceVersion are known.
	fault error
}

// String returns the kind and the name of the object, so that no content is printed.
func (r *received) String() string {
	return fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name)
}

// DeepCopyObject implements [runtime.Object].
func (r *received) DeepCopyObject() runtime.Object {
	other := *r // The other fields are never modified.
	other.PartialObjectMetadata = *r.DeepCopy()
	return &other
}

// receivedList is a page of a list of whole objects.
type receivedList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []received
}

// String returns the kind and the number of items, so that no content is printed.
func (l *receivedList) String() string { return fmt.Sprintf("%s of %d objects", l.Kind, len(l.Items)) }

// DeepCopyObject implements [runtime.Object].
func (l *receivedList) DeepCopyObject() runtime.Object {
	other := &receivedList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		other.Items = append(other.Items, *l.Items[i].DeepCopyObject().(*received)) //nolint:forcetypeassert // DeepCopyObject returns a *received.
	}
	return other
}

// decodeWhole is a [decodeFunc] that keeps whole objects and decodes their metadata.
func decodeWhole(data []byte) (runtime.Object, error) {
	data = bytes.Clone(data) // The result refers to the data.
	h, status, err := answerOf(data)
	if err != nil {
		return nil, err
	}
	if status != nil {
		return status, nil
	}
	if !h.isList() {
		return h.receive(data)
	}
	list := &receivedList{TypeMeta: h.TypeMeta}
	if err := h.readListMetadata(&list.ListMeta); err != nil {
		return nil, err
	}
	return list, h.eachItem(func(item head, data []byte) error {
		if item.Kind == "" { // Items in lists of Kubernetes' own types have no kind.
			item.TypeMeta = metav1.TypeMeta{APIVersion: h.APIVersion, Kind: strings.TrimSuffix(h.Kind, "List")}
		}
		o, err := item.receive(data)
		list.Items = append(list.Items, *o)
		return err
	})
}

// receive returns an object that keeps the data. It returns an error if the data does not identify an object.
func (h *head) receive(data []byte) (*received, error) {
	o := &received{PartialObjectMetadata: metav1.PartialObjectMetadata{TypeMeta: h.TypeMeta}, json: data, spec: h.spec, status: h.status}
	if o.fault = h.readMetadata(&o.ObjectMeta); o.fault == nil {
		return o, nil
	}
	o.ObjectMeta = identityIn(h.metadata)
	if o.Name == "" {
		return o, o.fault
	}
	return o, nil
}

// isLarge reports whether decoding the object takes much memory.
func (r *received) isLarge() bool {
	if len(r.json) <= smallValues || len(r.json) > smallAnswer {
		return len(r.json) > smallAnswer
	}
	return bytes.Count(r.json, []byte{','})+bytes.Count(r.json, []byte{'{'})+bytes.Count(r.json, []byte{'['}) > smallValues
}

// builtin reports whether the object is of one of Kubernetes' own types.
func (r *received) builtin() bool { return slices.Contains(builtinGroups, r.GroupVersionKind().Group) }

// whole decodes the whole object.
func (r *received) whole() (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if err := unmarshal(r.json, &u.Object); err != nil {
		return nil, err
	}
	u.SetGroupVersionKind(r.GroupVersionKind())
	return u, nil
}

// withStatus decodes the parts from which kstatus computes the readiness: the status, the generation, the creation time
// and the spec. For Kubernetes' own types it omits the large parts of the spec.
func (r *received) withStatus() (*unstructured.Unstructured, error) {
	metadata := map[string]any{"name": r.Name, "namespace": r.Namespace}
	if r.Generation != 0 {
		metadata["generation"] = r.Generation
	}
	if !r.CreationTimestamp.IsZero() { // kstatus gives a new Pod some seconds to be scheduled.
		metadata["creationTimestamp"] = r.CreationTimestamp.UTC().Format(time.RFC3339)
	}
	content := map[string]any{"apiVersion": r.APIVersion, "kind": r.Kind, "metadata": metadata}
	spec := r.spec
	if r.builtin() {
		var err error
		if spec, err = without(spec, "template", "containers", "versions"); err != nil {
			return nil, err
		}
	}
	for key, value := range map[string][]byte{"spec": spec, "status": r.status} {
		if value == nil {
			continue
		}
		var decoded any
		if err := unmarshal(value, &decoded); err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		content[key] = decoded
	}
	return &unstructured.Unstructured{Object: content}, nil
}

// without returns a JSON object without the fields that keys names. It returns any other value unchanged.
func without(data []byte, keys ...string) ([]byte, error) {
	if raw.New(data).Next() != '{' {
		return data, nil
	}
	less := make([]byte, 1, len(data))
	less[0] = '{'
	err := raw.Members(data, func(key, value []byte) bool {
		if slices.Contains(keys, string(key)) {
			return true
		}
		if len(less) > 1 {
			less = append(less, ',')
		}
		less = append(raw.AppendString(less, key), ':')
		less = append(less, value...)
		return true
	})
	return append(less, '}'), err
}
