package member

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/json"

	"refract.dev/tree/raw"
)

// codec decodes what a member answers about objects, and of that what is asked for. Those of client-go go over each event of a
// watch ten times, which was half of the processor time of a large fleet's controllers.
type codec struct{ decode decodeFunc }

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

// SupportedMediaTypes implements [runtime.NegotiatedSerializer].
func (c codec) SupportedMediaTypes() []runtime.SerializerInfo {
	return []runtime.SerializerInfo{{
		MediaType: runtime.ContentTypeJSON, MediaTypeType: "application", MediaTypeSubType: "json", EncodesAsText: true,
		Serializer: runtime.NoopEncoder{Decoder: c.decode},
		StreamSerializer: &runtime.StreamSerializerInfo{
			EncodesAsText: true, Serializer: runtime.NoopEncoder{Decoder: events{}}, Framer: framer{},
		},
	}}
}

// EncoderForVersion implements [runtime.NegotiatedSerializer].
func (codec) EncoderForVersion(e runtime.Encoder, _ runtime.GroupVersioner) runtime.Encoder { return e }

// DecoderToVersion implements [runtime.NegotiatedSerializer].
func (codec) DecoderToVersion(d runtime.Decoder, _ runtime.GroupVersioner) runtime.Decoder { return d }

// events decodes the events of a watch.
type events struct{}

// Decode implements [runtime.Decoder]. The object in the event is a part of the data.
func (events) Decode(data []byte, _ *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return nil, nil, fmt.Errorf("an event of a watch is no %T", into)
	}
	var failed error
	err := raw.Members(data, func(key, value []byte) bool {
		switch string(key) {
		case "type":
			event.Type, failed = raw.String(value)
		case "object":
			event.Object.Raw = value
		}
		return failed == nil
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return nil, nil, fmt.Errorf("an event of a watch: %w", err)
	}
	return event, nil, nil
}

// head is what an answer says of itself, and where its parts are.
type head struct {
	metav1.TypeMeta

	metadata, items []byte
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

// answerOf is headOf of an answer, which has a kind. Other is not nil if it is a Status.
func answerOf(data []byte) (h head, other *metav1.Status, err error) {
	if h, err = headOf(data); err != nil {
		return head{}, nil, err
	}
	switch {
	case h.Kind == "":
		return head{}, nil, fmt.Errorf("%w: want an object that says its kind", raw.ErrSyntax)
	case h.Kind == "Status" && h.APIVersion == "v1":
		other = &metav1.Status{}
		return h, other, unmarshal(data, other)
	}
	return h, nil, nil
}

// isList reports whether an answer is a list: a custom resource may have a field of this name, too.
func (h *head) isList() bool { return h.items != nil && strings.HasSuffix(h.Kind, "List") }

// readMetadata decodes the metadata, which null and nothing are, too.
func (h *head) readMetadata(into any) error {
	if raw.IsNull(h.metadata) {
		return nil
	}
	if err := unmarshal(h.metadata, into); err != nil {
		return fmt.Errorf("metadata: %w", err)
	}
	return nil
}

// unmarshal reads numbers without a fraction as integers, as Kubernetes does.
func unmarshal(data []byte, into any) error { return json.UnmarshalCaseSensitivePreserveInts(data, into) }

// decodeMetadata is the [decodeFunc] of who wants nothing but metadata, whatever else there is.
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
	if err := h.readMetadata(&list.ListMeta); err != nil {
		return nil, err
	}
	return list, h.eachItem(func(item head, _ []byte) error {
		o := metav1.PartialObjectMetadata{TypeMeta: item.TypeMeta}
		err := item.readMetadata(&o.ObjectMeta)
		list.Items = append(list.Items, o)
		return err
	})
}

// eachItem goes through a list, until an error.
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

// received is a whole object as a member answered it, of which the metadata alone is decoded.
type received struct {
	metav1.PartialObjectMetadata

	json []byte
}

// DeepCopyObject implements [runtime.Object].
func (r *received) DeepCopyObject() runtime.Object {
	return &received{PartialObjectMetadata: *r.DeepCopy(), json: bytes.Clone(r.json)}
}

// receivedList is a page of a list of whole objects.
type receivedList struct {
	metav1.TypeMeta
	metav1.ListMeta

	Items []received
}

// DeepCopyObject implements [runtime.Object].
func (l *receivedList) DeepCopyObject() runtime.Object {
	other := &receivedList{TypeMeta: l.TypeMeta, ListMeta: *l.ListMeta.DeepCopy()}
	for i := range l.Items {
		other.Items = append(other.Items, *l.Items[i].DeepCopyObject().(*received)) //nolint:forcetypeassert // It is its own copy.
	}
	return other
}

// decodeWhole is the [decodeFunc] of who wants to know more of an object than its metadata.
func decodeWhole(data []byte) (runtime.Object, error) {
	h, status, err := answerOf(data)
	if err != nil {
		return nil, err
	}
	if status != nil {
		return status, nil
	}
	if !h.isList() {
		o := &received{PartialObjectMetadata: metav1.PartialObjectMetadata{TypeMeta: h.TypeMeta}, json: bytes.Clone(data)}
		return o, h.readMetadata(&o.ObjectMeta)
	}
	list := &receivedList{TypeMeta: h.TypeMeta}
	if err := h.readMetadata(&list.ListMeta); err != nil {
		return nil, err
	}
	h.items = bytes.Clone(h.items) // All items are parts of it.
	return list, h.eachItem(func(item head, data []byte) error {
		o := received{PartialObjectMetadata: metav1.PartialObjectMetadata{TypeMeta: item.TypeMeta}, json: data}
		if o.Kind == "" { // As in lists of Kubernetes' own types.
			o.Kind = strings.TrimSuffix(h.Kind, "List")
		}
		if o.APIVersion == "" {
			o.APIVersion = h.APIVersion
		}
		err := item.readMetadata(&o.ObjectMeta)
		list.Items = append(list.Items, o)
		return err
	})
}

// builtin reports whether it is of one of Kubernetes' own types.
func (r *received) builtin() bool { return slices.Contains(builtinGroups, r.GroupVersionKind().Group) }

// whole decodes all of the object.
func (r *received) whole() (*unstructured.Unstructured, error) { return r.read(r.json) }

func (r *received) read(data []byte) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if err := unmarshal(data, &u.Object); err != nil {
		return nil, err
	}
	u.SetGroupVersionKind(r.GroupVersionKind())
	return u, nil
}

// withStatus decodes the object but for what no status is judged by: the record of who manages which fields and, of
// Kubernetes' own types, what of their spec is large.
func (r *received) withStatus() (*unstructured.Unstructured, error) {
	less, err := without(r.json, func(key string, value []byte) ([]byte, error) {
		switch {
		case key == "metadata":
			return without(value, leaveOut("managedFields"))
		case key == "spec" && r.builtin():
			return without(value, leaveOut("template", "containers", "versions"))
		}
		return value, nil
	})
	if err != nil {
		return nil, err
	}
	return r.read(less)
}

// without writes an object with other values in place of its own; of a field that has none, nothing. What is
// no object stays as it is.
func without(data []byte, other func(key string, value []byte) ([]byte, error)) ([]byte, error) {
	if raw.New(data).Next() != '{' {
		return data, nil
	}
	less := make([]byte, 1, len(data))
	less[0] = '{'
	var failed error
	err := raw.Members(data, func(key, value []byte) bool {
		value, failed = other(string(key), value)
		if failed != nil || value == nil {
			return failed == nil
		}
		if len(less) > 1 {
			less = append(less, ',')
		}
		less = append(raw.AppendString(less, key), ':')
		less = append(less, value...)
		return true
	})
	if failed != nil {
		return nil, failed
	}
	return append(less, '}'), err
}

// leaveOut returns a function for [without] that leaves these fields out.
func leaveOut(keys ...string) func(string, []byte) ([]byte, error) {
	return func(key string, value []byte) ([]byte, error) {
		if slices.Contains(keys, key) {
			return nil, nil
		}
		return value, nil
	}
}
