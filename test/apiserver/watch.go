package apiserver

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
)

// Watch is a stream of events. The caller takes them one by one.
type Watch struct {
	s         *Server
	m         *machinery
	store     *store
	choice    choice
	shape     shape
	after     uint64 // Changes up to this version are not sent.
	events    []event
	bookmarks bool
	ended     bool
	told      uint64 // The latest resourceVersion that the client knows.
}

// event is an event that the client has not taken yet. The object of a deletion has the resourceVersion of the
// deletion, so its entry is a copy without cached encodings.
type event struct {
	typ     watch.EventType
	entry   *entry
	version uint64
	status  *metav1.Status
	initial bool // The bookmark after the initial events.
}

// IsWatch reports whether a request is a watch.
func IsWatch(r *http.Request) bool {
	if r.Method != http.MethodGet {
		return false
	}
	text := r.URL.Query().Get("watch")
	on, err := strconv.ParseBool(text)
	return text != "" && err == nil && on
}

// Watch begins a watch. If it cannot begin, Watch returns the error as an answer and no Watch.
func (s *Server) Watch(r *http.Request) (*Watch, *Answer) {
	q, err := s.parse(r)
	if err == nil && q == nil {
		return nil, s.Serve(r, nil)
	}
	if err == nil {
		var w *Watch
		if w, err = s.watch(q); err == nil {
			return w, nil
		}
	}
	return nil, refused(r, err)
}

func (s *Server) watch(q *request) (*Watch, error) {
	values := q.http.URL.Query()
	c, err := q.m.choose(values, q.namespace)
	if err != nil {
		return nil, err
	}
	if q.name != "" {
		c.fields = fields.AndSelectors(c.fields, fields.OneTermEqualSelector("metadata.name", q.name))
	}
	w := &Watch{s: s, m: q.m, store: s.stores[q.m.typ.GVR.GroupResource()], choice: c, shape: q.shape}
	w.bookmarks, _ = strconv.ParseBool(values.Get("allowWatchBookmarks"))
	if err := checkList(values, true); err != nil {
		return nil, err
	}
	said := values.Get("sendInitialEvents")
	initial, _ := strconv.ParseBool(said)
	var version uint64
	if text := values.Get("resourceVersion"); text != "" {
		if version, err = strconv.ParseUint(text, 10, 64); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("strconv.ParseUint: parsing %q: invalid syntax", text))
		}
	}
	switch {
	case initial || said == "" && version == 0:
		if version > s.version {
			if _, err := s.asked(strconv.FormatUint(version, 10)); err != nil {
				w.fail(err)
				return w, nil
			}
		}
		for _, key := range w.store.keys {
			if e := w.store.objects[key]; c.includes(key, e) {
				w.events = append(w.events, event{typ: watch.Added, entry: e, version: e.version})
			}
		}
		w.after = s.version
		if initial && w.bookmarks {
			w.events = append(w.events, event{typ: watch.Bookmark, version: s.version, initial: true})
		}
	case version == 0:
		w.after = s.version
	case version < s.compact:
		w.fail(apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", version, s.compact)))
		return w, nil
	default:
		w.after = version
		for _, c := range w.store.log {
			w.learn(c)
		}
	}
	s.sweep()
	s.watches = append(s.watches, w)
	return w, nil
}

// learn adds an event for a change. Whether the event is an addition, a modification or a deletion depends on the
// selection of the watch.
func (w *Watch) learn(c change) {
	if w.ended || c.version <= w.after {
		return
	}
	before, after := w.choice.includes(c.key, c.before), w.choice.includes(c.key, c.after)
	switch {
	case before && after:
		w.events = append(w.events, event{typ: watch.Modified, entry: c.after, version: c.version})
	case after:
		w.events = append(w.events, event{typ: watch.Added, entry: c.after, version: c.version})
	case before:
		o := c.before.object.DeepCopy()
		o.SetResourceVersion(strconv.FormatUint(c.version, 10))
		w.events = append(w.events, event{typ: watch.Deleted, entry: &entry{object: o, version: c.version}, version: c.version})
	}
}

func (w *Watch) fail(err error) {
	status, ok := err.(apierrors.APIStatus)
	if !ok {
		status = apierrors.NewInternalError(err)
	}
	is := status.Status()
	is.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	w.events = append(w.events, event{typ: watch.Error, status: &is})
	w.ended = true
}

func (w *Watch) end() { w.ended = true }

// Header returns the header of the answer.
func (w *Watch) Header() http.Header {
	media := runtime.ContentTypeJSON
	if w.shape.protobuf {
		media = runtime.ContentTypeProtobuf + ";stream=watch"
	}
	return http.Header{"Content-Type": {media}}
}

// Waiting returns the number of waiting events.
func (w *Watch) Waiting() int { return len(w.events) }

// Ended reports whether no event follows the waiting ones. A watch ends if its type is removed or the server is
// restored.
func (w *Watch) Ended() bool { return w.ended }

// Next takes the next event. It returns nil if none is waiting.
func (w *Watch) Next() []byte {
	if len(w.events) == 0 {
		return nil
	}
	e := w.events[0]
	w.events = w.events[1:]
	if e.version > w.told {
		w.told = e.version
	}
	return w.frame(e)
}

// Bookmark returns a bookmark with the present version, if the client accepts bookmarks and has taken all events.
// Otherwise it returns nil.
func (w *Watch) Bookmark() []byte {
	if !w.bookmarks || w.ended || len(w.events) > 0 {
		return nil
	}
	version := max(w.s.version, w.after)
	w.told = version
	return w.frame(event{typ: watch.Bookmark, version: version})
}

// Expire drops the waiting events, and returns the error event that ends the watch.
func (w *Watch) Expire() []byte {
	w.events = nil
	w.fail(apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", w.told, w.s.version)))
	return w.Next()
}

// Stop ends the watch.
func (w *Watch) Stop() {
	w.events, w.ended = nil, true
	w.s.sweep()
}

// frame encodes an event in the wire format.
func (w *Watch) frame(e event) []byte {
	var object []byte
	var err error
	switch {
	case e.status != nil:
		object, err = encodeTyped(e.status, w.shape.protobuf, codecs)
	case e.typ == watch.Bookmark:
		object, err = w.bookmark(e)
	default:
		object, err = w.m.show(e.entry, w.shape)
	}
	if err != nil {
		panic(fmt.Errorf("encoding an event of %s: %w", w.m.typ.GVR, err)) // A stored object can be encoded.
	}
	if !w.shape.protobuf {
		var b bytes.Buffer
		text, _ := json.Marshal(string(e.typ)) //nolint:errchkjson // It is a string.
		b.WriteString(`{"type":`)
		b.Write(text)
		b.WriteString(`,"object":`)
		b.Write(bytes.TrimSuffix(object, []byte("\n")))
		b.WriteString("}\n")
		return b.Bytes()
	}
	var b bytes.Buffer
	info := serializerOf(true, codecs)
	encoder := streaming.NewEncoder(info.StreamSerializer.Framer.NewFrameWriter(&b), info.StreamSerializer.Serializer)
	if err := encoder.Encode(&metav1.WatchEvent{Type: string(e.typ), Object: runtime.RawExtension{Raw: object}}); err != nil {
		panic(fmt.Errorf("framing an event of %s: %w", w.m.typ.GVR, err)) // Writing to memory cannot fail.
	}
	return b.Bytes()
}

func (w *Watch) bookmark(e event) ([]byte, error) {
	meta := map[string]any{"resourceVersion": strconv.FormatUint(e.version, 10)}
	if e.initial {
		meta["annotations"] = map[string]any{metav1.InitialEventsAnnotationKey: "true"}
	}
	o := map[string]any{"apiVersion": w.m.gvk.GroupVersion().String(), "kind": w.m.gvk.Kind, "metadata": meta}
	if !w.shape.metadata && w.m.builtin != nil {
		var err error
		if o, err = w.m.empty(o); err != nil {
			return nil, err
		}
	}
	return w.m.encode(&unstructured.Unstructured{Object: o}, w.shape)
}
