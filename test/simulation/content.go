package simulation

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/client-go/applyconfigurations"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// content is the part of an object that clients write. It is never modified, and all objects with the same content on
// all members share it.
type content struct {
	namespace, name     string
	labels, annotations map[string]string
	finalizers          []string

	body     []byte            // The object as JSON, without fields that a server sets.
	state    [sha256.Size]byte // Digest of everything except metadata and status.
	managers []manager
}

// manager is the owner of a set of fields.
type manager struct {
	name      string
	operation metav1.ManagedFieldsOperationType
	fields    *fieldpath.Set
	encoded   *metav1.FieldsV1
}

// expected contains the preconditions of a write: the UID and version of the existing object.
type expected struct {
	uid     types.UID
	version string
}

// library contains all contents written so far.
type library struct {
	fields managedfields.TypeConverter

	mu       sync.RWMutex
	contents map[[sha256.Size]byte]*content
}

func newLibrary() *library {
	return &library{fields: applyconfigurations.NewTypeConverter(scheme.Scheme), contents: map[[sha256.Size]byte]*content{}}
}

// find returns the content that a request body contains for a place, and the preconditions in the body.
func (l *library) find(at place, by manager, body []byte) (*content, expected, error) {
	var head struct {
		Metadata struct {
			UID             types.UID `json:"uid"`
			ResourceVersion string    `json:"resourceVersion"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(body, &head); err != nil {
		return nil, expected{}, err
	}
	want := expected{uid: head.Metadata.UID, version: head.Metadata.ResourceVersion}
	// Only these values differ between members. After their removal most bodies are known, and need no decoding.
	plain := cut(cut(body, "uid", string(want.uid)), "resourceVersion", want.version)
	key := at.digest(by.name, plain)
	l.mu.RLock()
	c := l.contents[key]
	l.mu.RUnlock()
	if c != nil {
		return c, want, nil
	}
	var object map[string]any
	if err := json.Unmarshal(plain, &object); err != nil {
		return nil, expected{}, err
	}
	c, err := l.make(at, object)
	if err != nil {
		return nil, expected{}, err
	}
	if by.fields, err = l.owned(c, by.operation); err != nil {
		return nil, expected{}, err
	}
	if err := c.manage(by); err != nil {
		return nil, expected{}, err
	}
	return l.keep(key, c), want, nil
}

// cut removes a key with its value from a JSON object in text form.
func cut(text []byte, key, value string) []byte {
	if value == "" {
		return text
	}
	return bytes.Replace(text, []byte(`"`+key+`":"`+value+`",`), nil, 1)
}

// merge returns the content after a merge patch. The manager owns the fields that the patch changed.
func (l *library) merge(at place, was *content, by manager, patch []byte) (*content, error) {
	var object, change map[string]any
	if err := json.Unmarshal(was.body, &object); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(patch, &change); err != nil {
		return nil, err
	}
	c, err := l.make(at, merged(object, change))
	if err != nil {
		return nil, err
	}
	before, err := l.fields.ObjectToTyped(was.object())
	if err != nil {
		return nil, err
	}
	after, err := l.fields.ObjectToTyped(c.object())
	if err != nil {
		return nil, err
	}
	changes, err := before.Compare(after)
	if err != nil {
		return nil, err
	}
	by.fields = changes.Added.Union(changes.Modified)
	for _, m := range was.managers {
		if m.name == by.name && m.operation == by.operation {
			by.fields = by.fields.Union(m.fields.Difference(changes.Removed))
			continue
		}
		m.fields = m.fields.Difference(by.fields).Difference(changes.Removed)
		if err := c.manage(m); err != nil {
			return nil, err
		}
	}
	if err := c.manage(by); err != nil {
		return nil, err
	}
	return l.keep(at.digest(by.name, was.body, []byte{0}, c.body), c), nil
}

// merged applies a merge patch (RFC 7386).
func merged(object, change map[string]any) map[string]any {
	object = maps.Clone(object)
	for key, value := range change {
		switch value := value.(type) {
		case nil:
			delete(object, key)
		case map[string]any:
			inner, _ := object[key].(map[string]any)
			if inner == nil {
				inner = map[string]any{}
			}
			object[key] = merged(inner, value)
		default:
			object[key] = value
		}
	}
	return object
}

func (l *library) keep(key [sha256.Size]byte, c *content) *content {
	l.mu.Lock()
	defer l.mu.Unlock()
	if other := l.contents[key]; other != nil {
		return other
	}
	l.contents[key] = c
	return c
}

// make returns the content of an object at a place, without managers.
func (l *library) make(at place, root map[string]any) (*content, error) {
	if _, ok := root["metadata"].(map[string]any); !ok {
		root["metadata"] = map[string]any{}
	}
	u := &unstructured.Unstructured{Object: root}
	u.SetGroupVersionKind(at.GroupVersion().WithKind(at.kind))
	u.SetNamespace(at.namespace)
	u.SetName(at.name)
	for _, field := range []string{"uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"} {
		unstructured.RemoveNestedField(root, "metadata", field)
	}
	if at.resource == namespaces {
		set := maps.Clone(u.GetLabels())
		if set == nil {
			set = map[string]string{}
		}
		set[corev1.LabelMetadataName] = at.name
		u.SetLabels(set)
	}
	body, err := json.Marshal(root)
	if err != nil {
		return nil, err
	}
	c := &content{
		namespace: at.namespace, name: at.name,
		labels: u.GetLabels(), annotations: u.GetAnnotations(), finalizers: u.GetFinalizers(),
		body: body,
	}
	rest := maps.Clone(root)
	delete(rest, "metadata")
	delete(rest, "status")
	state, err := json.Marshal(rest)
	if err != nil {
		return nil, err
	}
	c.state = sha256.Sum256(state)
	return c, nil
}

func (c *content) object() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	_ = json.Unmarshal(c.body, &u.Object) // The body was encoded from such an object.
	return u
}

// unowned are the fields that no manager owns.
var unowned = fieldpath.NewSet(
	fieldpath.MakePathOrDie("apiVersion"), fieldpath.MakePathOrDie("kind"), fieldpath.MakePathOrDie("metadata"),
	fieldpath.MakePathOrDie("metadata", "name"), fieldpath.MakePathOrDie("metadata", "namespace"),
)

// owned returns the fields that a client owns after it has written the complete content.
func (l *library) owned(c *content, operation metav1.ManagedFieldsOperationType) (*fieldpath.Set, error) {
	u := c.object()
	typed, err := l.fields.ObjectToTyped(u)
	if err != nil {
		return nil, err
	}
	if operation == metav1.ManagedFieldsOperationUpdate {
		nothing := &unstructured.Unstructured{}
		nothing.SetGroupVersionKind(u.GroupVersionKind())
		before, err := l.fields.ObjectToTyped(nothing)
		if err != nil {
			return nil, err
		}
		changes, err := before.Compare(typed)
		if err != nil {
			return nil, err
		}
		return changes.Added.Difference(unowned), nil
	}
	set, err := typed.ToFieldSet()
	if err != nil {
		return nil, err
	}
	return set.Difference(unowned), nil
}

func (c *content) manage(m manager) error {
	if m.fields.Empty() {
		return nil
	}
	encoded, err := m.fields.ToJSON()
	if err != nil {
		return fmt.Errorf("encoding the fields of manager %s: %w", m.name, err)
	}
	m.encoded = metav1.NewFieldsV1(string(encoded))
	c.managers = append(c.managers, m)
	return nil
}

// place is the type, namespace and name of an object, which need not exist.
type place struct {
	*resource

	namespace, name string
}

func (p place) digest(texts ...any) [sha256.Size]byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00%s\x00%s\x00", p.GroupVersionResource, p.namespace, p.name, p.kind)
	for _, text := range texts {
		switch text := text.(type) {
		case string:
			h.Write([]byte(text))
		case []byte:
			h.Write(text)
		}
		h.Write([]byte{0})
	}
	return [sha256.Size]byte(h.Sum(nil))
}
