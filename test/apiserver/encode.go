package apiserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/version"
)

// Answer is the answer to a request.
type Answer struct {
	// Code is the HTTP status.
	Code int
	// Header and Body are the rest of the answer.
	Header http.Header
	Body   []byte
}

// shape is the format of an answer.
type shape struct {
	protobuf bool
	metadata bool // Only metadata: PartialObjectMetadata.
	item     bool // An object in a list: lists omit apiVersion and kind of objects of built-in types.
	single   bool // The client asks for the metadata of one object, but the answer is a list.
	version  string
}

// codecs encodes the types of meta.k8s.io in all formats. typed encodes the types of client-go.
var (
	codecs = func() serializer.CodecFactory {
		s := runtime.NewScheme()
		metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
		if err := metav1.AddMetaToScheme(s); err != nil {
			panic(err) // The types of the library are valid.
		}
		return serializer.NewCodecFactory(s)
	}()
	typed = serializer.NewCodecFactory(known)
)

var serverVersion = version.Info{Major: "1", Minor: "37", GitVersion: "v1.37.1", GoVersion: "go1.26", Compiler: "gc", Platform: "linux/amd64"}

func serializerOf(protobuf bool, from serializer.CodecFactory) runtime.SerializerInfo {
	media := runtime.ContentTypeJSON
	if protobuf {
		media = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(from.SupportedMediaTypes(), media)
	return info
}

// media is the media type of the format.
func (f shape) media() string {
	if f.protobuf {
		return runtime.ContentTypeProtobuf
	}
	return runtime.ContentTypeJSON
}

// accepted returns the first format of the Accept header that the server supports.
func accepted(r *http.Request, m *machinery, verb string) (shape, error) {
	f := shape{version: m.gvk.GroupVersion().String()}
	header := r.Header.Get("Accept")
	if header == "" {
		return f, nil
	}
	for one := range strings.SplitSeq(header, ",") {
		media, parameters, _ := strings.Cut(strings.TrimSpace(one), ";")
		media = strings.TrimSpace(media)
		as := ""
		for parameter := range strings.SplitSeq(parameters, ";") {
			if value, ok := strings.CutPrefix(strings.TrimSpace(parameter), "as="); ok {
				as = value
			}
		}
		switch media {
		case "*/*", "application/*", runtime.ContentTypeJSON:
			f.protobuf = false
		case runtime.ContentTypeProtobuf:
			f.protobuf = true
		default:
			continue
		}
		switch as {
		case "":
			f.metadata = false
			if f.protobuf && m.builtin == nil {
				continue
			}
		case "PartialObjectMetadata":
			f.metadata, f.single = true, verb == "list" || verb == "deletecollection"
		case "PartialObjectMetadataList":
			if verb != "list" {
				continue
			}
			f.metadata = true
		default:
			continue
		}
		return f, nil
	}
	return f, notAcceptable(m)
}

func notAcceptable(m *machinery) error {
	const kinds = "application/json, application/yaml, application/vnd.kubernetes.protobuf"
	status := metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: "only the following media types are accepted: " + kinds,
	}
	if m.builtin != nil {
		status.Message, status.Details = "406: Not Acceptable\n\nAvailable representations: "+kinds, &metav1.StatusDetails{}
	}
	return &statusError{status}
}

// notSingle is the error for a list if the Accept header asks for the metadata of a single object.
func (m *machinery) notSingle() error {
	kind := "*unstructured.UnstructuredList"
	if m.builtin != nil {
		group, _, _ := strings.Cut(m.gvk.Group, ".")
		if group == "" {
			group = "core"
		}
		kind = "*" + group + "." + m.typ.kindOfList()
	}
	return &statusError{metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotAcceptable, Reason: metav1.StatusReasonNotAcceptable,
		Message: fmt.Sprintf("you requested PartialObjectMetadata, but the requested object is a list (%s)", kind),
	}}
}

type statusError struct{ status metav1.Status }

func (e *statusError) Error() string         { return e.status.Message }
func (e *statusError) Status() metav1.Status { return e.status }

// encoded returns an answer in JSON.
func encoded(code int, what any) *Answer {
	text, err := json.Marshal(what)
	if err != nil {
		panic(err) // All answers can be encoded.
	}
	return &Answer{Code: code, Header: http.Header{"Content-Type": {runtime.ContentTypeJSON}}, Body: append(text, '\n')}
}

// refused returns the response to a failed request. It is JSON, unless the first accepted format is protobuf without
// the parameter "as".
func refused(r *http.Request, err error) *Answer {
	status := failure(err)
	a := encoded(int(status.Code), status)
	first, _, _ := strings.Cut(r.Header.Get("Accept"), ",")
	if strings.TrimSpace(first) == runtime.ContentTypeProtobuf {
		var b bytes.Buffer
		if err := serializerOf(true, codecs).Serializer.Encode(status, &b); err == nil {
			a.Body = b.Bytes()
			a.Header.Set("Content-Type", runtime.ContentTypeProtobuf)
		}
	}
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		a.Header.Set("Retry-After", strconv.Itoa(int(status.Details.RetryAfterSeconds)))
	}
	return a
}

// failure returns the status of an error. An error without a status is an internal error.
func failure(err error) *metav1.Status {
	var with apierrors.APIStatus
	status := metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError, Message: err.Error()}
	if errors.As(err, &with) {
		status = with.Status()
	}
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	return &status
}

// show returns a stored object in the format.
func (m *machinery) show(e *entry, f shape) ([]byte, error) {
	if text, ok := e.shown[f]; ok {
		return text, nil
	}
	text, err := m.encode(e.object, f)
	if err != nil {
		return nil, err
	}
	if e.shown == nil {
		e.shown = map[shape][]byte{}
	}
	e.shown[f] = text
	return text, nil
}

// encode returns an object in the format.
func (m *machinery) encode(o *unstructured.Unstructured, f shape) ([]byte, error) {
	switch {
	case f.metadata:
		partial, err := metadataOf(o)
		if err != nil {
			return nil, err
		}
		return encodeTyped(partial, f.protobuf, codecs)
	case f.protobuf:
		t, err := m.typedObject(o)
		if err != nil {
			return nil, err
		}
		return encodeTyped(t, true, typed)
	}
	tree := inVersion(o.Object, f.version)
	if f.item && m.builtin != nil {
		tree = maps.Clone(tree)
		delete(tree, "kind")
		delete(tree, "apiVersion")
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, err
	}
	return append(text, '\n'), nil
}

func encodeTyped(o runtime.Object, protobuf bool, from serializer.CodecFactory) ([]byte, error) {
	var b bytes.Buffer
	if err := serializerOf(protobuf, from).Serializer.Encode(o, &b); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// typedObject returns the object as a Go type of client-go.
func (m *machinery) typedObject(o *unstructured.Unstructured) (runtime.Object, error) {
	t, err := known.New(m.gvk)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, t); err != nil {
		return nil, err
	}
	t.GetObjectKind().SetGroupVersionKind(m.gvk)
	return t, nil
}

func metadataOf(o *unstructured.Unstructured) (*metav1.PartialObjectMetadata, error) {
	p := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: metav1.SchemeGroupVersion.String()}}
	meta, _ := o.Object["metadata"].(map[string]any)
	return p, runtime.DefaultUnstructuredConverter.FromUnstructured(meta, &p.ObjectMeta)
}

// answer returns an answer with a stored object.
func (m *machinery) answer(code int, e *entry, f shape) (*Answer, error) {
	text, err := m.show(e, f)
	if err != nil {
		return nil, err
	}
	return &Answer{Code: code, Header: http.Header{"Content-Type": {f.media()}}, Body: text}, nil
}

// object returns a stored object in the version of the type.
func (m *machinery) object(e *entry) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: inVersion(e.object.Object, m.gvk.GroupVersion().String())}
}
