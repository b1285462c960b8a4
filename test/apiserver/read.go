package apiserver

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"sort"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	listvalidation "k8s.io/apimachinery/pkg/apis/meta/internalversion/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// choice is the selection of a list or a watch.
type choice struct {
	labels    labels.Selector
	fields    fields.Selector
	namespace string
	m         *machinery
}

func (c *choice) everything() bool { return c.labels.Empty() && c.fields.Empty() }

// includes reports whether an object is selected.
func (c *choice) includes(key string, e *entry) bool {
	if e == nil {
		return false
	}
	if rest, ok := strings.CutPrefix(key, c.namespace); c.namespace != "" && (!ok || !strings.HasPrefix(rest, "/")) {
		return false
	}
	if !c.labels.Empty() && !c.labels.Matches(labels.Set(e.labels)) {
		return false
	}
	return c.fields.Empty() || c.fields.Matches(fieldsOf(c.m, e.object))
}

// fieldsOf returns the fields that field selectors support.
func fieldsOf(m *machinery, o *unstructured.Unstructured) fields.Set {
	set := fields.Set{"metadata.name": o.GetName()}
	if m.typ.Namespaced {
		set["metadata.namespace"] = o.GetNamespace()
	}
	if m.builtin != nil {
		for name, path := range m.builtin.fields {
			value, _, _ := unstructured.NestedFieldNoCopy(o.Object, path...)
			if value == nil {
				value = ""
			}
			set[name] = fmt.Sprint(value)
		}
	}
	return set
}

func (m *machinery) choose(q url.Values, namespace string) (choice, error) {
	c := choice{namespace: namespace, m: m}
	var err error
	if c.labels, err = labels.Parse(q.Get("labelSelector")); err != nil {
		return c, apierrors.NewBadRequest(err.Error())
	}
	if c.fields, err = fields.ParseSelector(q.Get("fieldSelector")); err != nil {
		return c, apierrors.NewBadRequest(err.Error())
	}
	for _, r := range c.fields.Requirements() {
		if r.Field == "metadata.name" || r.Field == "metadata.namespace" && m.typ.Namespaced || m.builtin != nil && m.builtin.fields[r.Field] != nil {
			continue
		}
		if m.builtin == nil {
			return c, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", r.Field))
		}
		return c, apierrors.NewBadRequest(fmt.Sprintf("field label not supported: %s", r.Field))
	}
	return c, nil
}

func (s *Server) get(q *request) (*Answer, error) {
	st := s.stores[q.m.typ.GVR.GroupResource()]
	e := st.objects[keyOf(q.namespace, q.name)]
	if version := q.http.URL.Query().Get("resourceVersion"); version != "" {
		if _, err := s.asked(version); err != nil {
			return nil, err
		}
	}
	if e == nil {
		return nil, apierrors.NewNotFound(q.m.typ.GVR.GroupResource(), q.name)
	}
	if q.subresource == "scale" {
		return q.m.answerScale(http.StatusOK, e, q.shape)
	}
	return q.m.answer(http.StatusOK, e, q.shape)
}

// asked parses a resourceVersion that the response must not be older than.
func (s *Server) asked(version string) (uint64, error) {
	n, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(fmt.Sprintf("invalid resource version: resourceVersion: Invalid value: %q: %v", version, err))
	}
	if n > s.version {
		err := apierrors.NewTimeoutError(fmt.Sprintf("Too large resource version: %d, current: %d", n, s.version), 1)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}}
		return 0, err
	}
	return n, nil
}

// token is the continue token of a list, in the format of kube-apiserver.
type token struct {
	APIVersion string `json:"v"`
	Version    int64  `json:"rv"`
	Start      string `json:"start"`
}

const tooOldPage = "The provided continue parameter is too old to display a consistent list result. " +
	"You can start a new list without the continue parameter, " +
	"or use the continue token in this response to retrieve the remainder of the results. " +
	"Continuing with the provided token results in an inconsistent list - objects that were created, modified, or deleted " +
	"between the time the first chunk was returned and now may show up in the list."

func (t token) String() string {
	text, err := json.Marshal(t)
	if err != nil {
		panic(err) // Strings and numbers can be encoded.
	}
	return base64.RawURLEncoding.EncodeToString(text)
}

// at returns the objects and sorted keys at a resourceVersion.
func (s *Server) at(st *store, version uint64) (map[string]*entry, []string) {
	if len(st.log) == 0 || st.log[len(st.log)-1].version <= version {
		return st.objects, st.keys
	}
	objects := make(map[string]*entry, len(st.objects))
	maps.Copy(objects, st.objects)
	for i := len(st.log) - 1; i >= 0 && st.log[i].version > version; i-- {
		if c := st.log[i]; c.before == nil {
			delete(objects, c.key)
		} else {
			objects[c.key] = c.before
		}
	}
	keys := make([]string, 0, len(objects))
	for key := range objects {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return objects, keys
}

// listed is a page of a list.
type listed struct {
	entries []*entry
	meta    metav1.ListMeta
}

func (s *Server) page(m *machinery, c choice, q url.Values) (*listed, error) {
	st := s.stores[m.typ.GVR.GroupResource()]
	limit, err := parseLimit(q.Get("limit"))
	if err != nil {
		return nil, err
	}
	version, start, err := s.since(q, limit)
	if err != nil {
		return nil, err
	}
	objects, keys := s.at(st, version)
	from, end := c.span(keys, start)
	l := &listed{meta: metav1.ListMeta{ResourceVersion: fmt.Sprint(version)}}
	for i := from; i < end; i++ {
		e := objects[keys[i]]
		if !c.includes(keys[i], e) {
			continue
		}
		l.entries = append(l.entries, e)
		if limit == 0 || int64(len(l.entries)) < limit || i == end-1 {
			continue
		}
		// The selector may match none of the remaining objects.
		l.meta.Continue = token{"meta.k8s.io/v1", int64(version), strings.TrimPrefix(keys[i], c.namespace+"/") + "\x00"}.String()
		if left := int64(end - 1 - i); c.everything() {
			l.meta.RemainingItemCount = &left
		}
		break
	}
	return l, nil
}

// span returns the range of the keys that a list examines.
func (c *choice) span(keys []string, start string) (from, end int) {
	end = len(keys)
	if c.namespace != "" {
		from, _ = slices.BinarySearch(keys, c.namespace+"/")
		end, _ = slices.BinarySearch(keys, c.namespace+"0") // The character 0 follows the slash.
	}
	if start != "" {
		from, _ = slices.BinarySearch(keys, prefixed(c.namespace, start))
	}
	if name, ok := c.fields.RequiresExactMatch("metadata.name"); ok && (c.namespace != "" || !c.m.typ.Namespaced) { // The selector names one object.
		at, found := slices.BinarySearch(keys, keyOf(c.namespace, name))
		from, end = at, at
		if found {
			end++
		}
	}
	return from, end
}

// since returns the resourceVersion of a list, and the key at which its page starts.
func (s *Server) since(q url.Values, limit int64) (version uint64, start string, err error) {
	version = s.version
	match := q.Get("resourceVersionMatch")
	switch {
	case q.Get("continue") != "":
		if v := q.Get("resourceVersion"); v != "" && v != "0" {
			return 0, "", apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		text, err := base64.RawURLEncoding.DecodeString(q.Get("continue"))
		var t token
		if err == nil {
			err = json.Unmarshal(text, &t)
		}
		if err != nil || t.APIVersion != "meta.k8s.io/v1" {
			return 0, "", apierrors.NewBadRequest(fmt.Sprintf("invalid continue token: continue key is not valid: %v", err))
		}
		start = t.Start
		if t.Version > 0 {
			version = uint64(t.Version)
		}
		if version < s.compact || version > s.version {
			e := apierrors.NewResourceExpired(tooOldPage)
			e.ErrStatus.ListMeta.Continue = token{"meta.k8s.io/v1", -1, start}.String()
			return 0, "", e
		}
	case q.Get("resourceVersion") != "" && q.Get("resourceVersion") != "0":
		n, err := s.asked(q.Get("resourceVersion"))
		if err != nil {
			return 0, "", err
		}
		if match == string(metav1.ResourceVersionMatchExact) || match == "" && limit > 0 {
			if n < s.compact {
				return 0, "", apierrors.NewResourceExpired("The resourceVersion for the provided list is too old.")
			}
			version = n
		}
	}
	return version, start, nil
}

func prefixed(namespace, key string) string {
	if namespace == "" {
		return key
	}
	return namespace + "/" + key
}

func parseLimit(text string) (int64, error) {
	if text == "" {
		return 0, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest(err.Error())
	}
	return n, nil
}

// checkList rejects invalid combinations of parameters of a list or a watch.
func checkList(values url.Values, watched bool) error {
	o := &internalversion.ListOptions{
		Watch: watched, ResourceVersion: values.Get("resourceVersion"), Continue: values.Get("continue"),
		ResourceVersionMatch: metav1.ResourceVersionMatch(values.Get("resourceVersionMatch")),
	}
	if text := values.Get("sendInitialEvents"); text != "" {
		initial, err := strconv.ParseBool(text)
		if err != nil {
			return apierrors.NewBadRequest(err.Error())
		}
		o.SendInitialEvents = &initial
	}
	if errs := listvalidation.ValidateListOptions(o, true); len(errs) > 0 {
		return apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", errs)
	}
	return nil
}

func (s *Server) list(q *request) (*Answer, error) {
	values := q.http.URL.Query()
	if err := checkList(values, false); err != nil {
		return nil, err
	}
	c, err := q.m.choose(values, q.namespace)
	if err != nil {
		return nil, err
	}
	l, err := s.page(q.m, c, values)
	if err != nil {
		return nil, err
	}
	body, err := q.m.showList(l, q.shape)
	if err != nil {
		return nil, err
	}
	return &Answer{Code: http.StatusOK, Header: http.Header{"Content-Type": {q.shape.media()}}, Body: body}, nil
}

// kindOfList returns the kind of a list of the type.
func (t *Type) kindOfList() string {
	if t.Schema != nil && t.Schema.list != "" {
		return t.Schema.list
	}
	return t.Kind + "List"
}

// showList returns a page in the format.
func (m *machinery) showList(l *listed, f shape) ([]byte, error) {
	if f.single {
		return nil, m.notSingle()
	}
	f.item = true
	if f.protobuf && f.metadata {
		list := &metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: metav1.SchemeGroupVersion.String()}, ListMeta: l.meta,
		}
		for _, e := range l.entries {
			p, err := metadataOf(e.object)
			if err != nil {
				return nil, err
			}
			list.Items = append(list.Items, *p)
		}
		return encodeTyped(list, true, codecs)
	}
	if f.protobuf {
		return m.typedList(l)
	}
	kind, version := m.typ.kindOfList(), f.version
	if f.metadata {
		kind, version = "PartialObjectMetadataList", metav1.SchemeGroupVersion.String()
	}
	var meta any = l.meta
	if m.builtin == nil && !f.metadata { // Lists without a Go type contain empty values.
		meta = struct {
			Continue  string `json:"continue"`
			Remaining *int64 `json:"remainingItemCount,omitempty"`
			Version   string `json:"resourceVersion"`
		}{l.meta.Continue, l.meta.RemainingItemCount, l.meta.ResourceVersion}
	}
	head, err := json.Marshal(struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Metadata   any    `json:"metadata"`
	}{kind, version, meta})
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	b.Write(head[:len(head)-1])
	if f.metadata && len(l.entries) == 0 {
		b.WriteString(`,"items":null}` + "\n")
		return b.Bytes(), nil
	}
	b.WriteString(`,"items":[`)
	for i, e := range l.entries {
		if i > 0 {
			b.WriteByte(',')
		}
		text, err := m.show(e, f)
		if err != nil {
			return nil, err
		}
		b.Write(bytes.TrimSuffix(text, []byte("\n")))
	}
	b.WriteString("]}\n")
	return b.Bytes(), nil
}

// typedList encodes a page of whole objects as protobuf.
func (m *machinery) typedList(l *listed) ([]byte, error) {
	items := make([]any, 0, len(l.entries))
	for _, e := range l.entries {
		items = append(items, e.object.Object)
	}
	gvk := m.gvk.GroupVersion().WithKind(m.typ.kindOfList())
	list, err := known.New(gvk)
	if err != nil {
		return nil, err
	}
	meta, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&l.meta)
	if err != nil {
		return nil, err
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"metadata": meta, "items": items}, list); err != nil {
		return nil, err
	}
	list.GetObjectKind().SetGroupVersionKind(gvk)
	return encodeTyped(list, true, typed)
}
