package inject

import (
	"errors"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/tree/raw"
)

// head is what stands about a pod in its metadata.
type head struct {
	labels       podLabels
	annotations  []annotation // Those that mean something to us.
	size         int          // Bytes of all annotations.
	hasMetadata  bool
	hasAnnotated bool // There is an object of annotations.
}

// annotation is one of a pod.
type annotation struct{ key, value string }

// readHead reads the metadata of a pod, and nothing behind it.
func readHead(pod []byte) (*head, error) {
	h := &head{}
	s := raw.New(pod)
	s.Object(func(key []byte) {
		if string(key) != "metadata" {
			return
		}
		if !s.Null() {
			h.read(s)
		}
		s.Stop()
	})
	if err := s.End(); err != nil {
		return nil, fmt.Errorf("reading pod: %w", err)
	}
	return h, nil
}

func (h *head) read(s *raw.Scanner) {
	h.hasMetadata = true
	s.Object(func(key []byte) {
		switch string(key) {
		case "labels":
			h.readLabels(s)
		case "annotations":
			h.readAnnotations(s)
		}
	})
}

// readLabels makes one text of all labels, of which they are parts: a pod has many,
// and is made often.
func (h *head) readLabels(s *raw.Scanner) {
	h.labels = nil
	if s.Null() {
		return
	}
	var space [1024]byte
	var places [16][2]int
	text, ends := space[:0], places[:0]
	s.Object(func(key []byte) {
		text = append(text, key...)
		middle := len(text)
		text = append(text, optionalText(s)...)
		ends = append(ends, [2]int{middle, len(text)})
	})
	h.labels = make(podLabels, len(ends))
	all, start := string(text), 0
	for i, end := range ends {
		h.labels[i] = label{key: all[start:end[0]], value: all[end[0]:end[1]]}
		start = end[1]
	}
}

func (h *head) readAnnotations(s *raw.Scanner) {
	h.annotations, h.size, h.hasAnnotated = nil, 0, false
	if s.Null() {
		return
	}
	h.hasAnnotated = true
	s.Object(func(key []byte) {
		value := optionalText(s)
		h.size += len(key) + len(value)
		if meansSomething(key) {
			h.annotations = append(h.annotations, annotation{key: string(key), value: string(value)})
		}
	})
}

// optionalText reads a string, or null for the empty one.
func optionalText(s *raw.Scanner) []byte {
	if s.Null() {
		return nil
	}
	return s.Text()
}

// meansSomething reports whether the engine reads or writes an annotation.
func meansSomething(key []byte) bool {
	switch string(key) {
	case refractv1beta1.InjectAnnotation, refractv1beta1.ExcludeAnnotation, refractv1beta1.InjectionAnnotation,
		refractv1beta1.HashAnnotation, corev1.MirrorPodAnnotationKey:
		return true
	default:
		return len(key) > len(refractv1beta1.ServicePrefix) &&
			string(key[:len(refractv1beta1.ServicePrefix)]) == refractv1beta1.ServicePrefix
	}
}

// annotation returns the value of an annotation, and whether there is one.
func (h *head) annotation(key string) (string, bool) {
	for i := range h.annotations {
		if h.annotations[i].key == key {
			return h.annotations[i].value, true
		}
	}
	return "", false
}

// templateHash returns what the annotation refract.dev/injection-hash says.
func (h *head) templateHash() string {
	hash, _ := h.annotation(refractv1beta1.HashAnnotation)
	return hash
}

// record returns the record of what was injected; an empty one if there is none that
// can be read.
func (h *head) record() *Record {
	text, _ := h.annotation(refractv1beta1.InjectionAnnotation)
	if text == "" {
		return &Record{}
	}
	record, err := ReadRecord(text)
	if err != nil {
		return &Record{} // Somebody else wrote it: nothing is known then.
	}
	return record
}

// excluded returns why the pod is left as it is; nil if it is not.
func (h *head) excluded() *Skipped {
	if _, mirror := h.annotation(corev1.MirrorPodAnnotationKey); mirror {
		return &Skipped{
			Reason:  ReasonMirrorPod,
			Message: "the pod stands for one that a kubelet made from a file; nothing can be added to it",
		}
	}
	if value, _ := h.annotation(refractv1beta1.InjectAnnotation); value == "false" {
		return &Skipped{Reason: ReasonOptedOut, Message: "the pod has the annotation " + refractv1beta1.InjectAnnotation + `: "false"`}
	}
	if value, _ := h.annotation(refractv1beta1.ExcludeAnnotation); value == "true" {
		return &Skipped{Reason: ReasonOptedOut, Message: "the pod has the annotation " + refractv1beta1.ExcludeAnnotation + `: "true"`}
	}
	return nil
}

// body is what stands in the spec of a pod about what policies inject, and what was
// added to it since.
type body struct {
	volumes    list
	containers []container
}

// container is one container of a pod.
type container struct {
	part  containerPart
	index int
	name  string

	env, envFrom, mounts list
	devices              list // Where raw block devices are: no mount may be there, too.
}

// list is the elements of an array of a pod.
type list struct {
	entries []entry
	index   map[string]int // Of entries, once there are many.
	there   bool           // The pod has the array; it may be empty.
	length  int
	// prepended is how many elements were inserted at its beginning.
	prepended int
}

// entry is an element of such an array: one of the pod's, or one that was added.
type entry struct {
	id  string
	raw []byte
	at  int     // Its index in the pod as it was given.
	by  *Policy // Who added it; nil for one of the pod's.
	of  *item   // What was added.
}

// many is how many entries are searched one by one.
const many = 64

// find returns the last entry with an id, for of two variables of one name the last
// one counts. It returns nil if there is none.
func (l *list) find(id string) *entry {
	if len(l.entries) > many {
		if at, ok := l.indexed()[id]; ok {
			return &l.entries[at]
		}
		return nil
	}
	for i := len(l.entries) - 1; i >= 0; i-- {
		if l.entries[i].id == id {
			return &l.entries[i]
		}
	}
	return nil
}

func (l *list) indexed() map[string]int {
	if l.index == nil {
		l.index = make(map[string]int, 2*len(l.entries))
		for i := range l.entries {
			l.index[l.entries[i].id] = i
		}
	}
	return l.index
}

// add puts an item of a policy into the list.
func (l *list) add(it *item, by *Policy) {
	if l.index != nil {
		l.index[it.id] = len(l.entries)
	}
	l.entries = append(l.entries, entry{id: it.id, raw: it.raw, by: by, of: it})
	l.there = true
	l.length++
}

// remove takes away the entries of these ids that are gone, as far as is known. An id
// that is there twice is no policy's: those add none that is there.
func (l *list) remove(ids []string, gone func(*entry) bool) {
	if len(ids) == 0 || len(l.entries) == 0 {
		return
	}
	left := make(map[string]int, len(ids))
	for _, id := range ids {
		left[id] = 1
	}
	for i := range l.entries {
		if _, named := left[l.entries[i].id]; named {
			left[l.entries[i].id]--
		}
	}
	kept := make([]entry, 0, len(l.entries))
	for i := range l.entries {
		e := &l.entries[i]
		if n, named := left[e.id]; !named || n < 0 || !gone(e) {
			kept = append(kept, *e)
		}
	}
	l.entries, l.index = kept, nil
}

// same reports whether the entry is what an item injects.
func (e *entry) same(of itemKind, it *item) bool {
	if e.of != nil {
		return e.of == it || equal(e.of.normal, it.normal)
	}
	return sameItem(of, e.raw, it)
}

// list returns the list of a container for items of a kind.
func (c *container) list(of itemKind) *list {
	switch of {
	case envItem:
		return &c.env
	case envFromItem:
		return &c.envFrom
	default:
		return &c.mounts
	}
}

// errSpec is returned for what cannot be a pod.
var errSpec = errors.New("spec: want an object, got none")

// readBody reads the spec of a pod: its volumes and the containers of these parts.
func readBody(pod []byte, parts ...containerPart) (*body, error) {
	r := bodyReader{
		Scanner: raw.New(pod),
		all:     string(pod),
		parts:   parts,
		entries: make([]entry, 0, 64),
		body:    &body{containers: make([]container, 0, 4)},
	}
	r.Object(func(key []byte) {
		switch {
		case string(key) == "metadata":
			r.once(&r.metadata, "metadata")
		case string(key) == "spec" && !r.Null():
			r.once(&r.found, "spec")
			r.spec()
		}
	})
	if err := r.End(); err != nil {
		return nil, fmt.Errorf("reading pod: %w", err)
	}
	if !r.found {
		return nil, fmt.Errorf("reading pod: %w", errSpec)
	}
	return r.body, nil
}

// bodyReader reads a body.
type bodyReader struct {
	*raw.Scanner

	all             string // The whole pod; names are parts of it, for there are many.
	parts           []containerPart
	body            *body
	entries         []entry // Of all lists, one behind the other.
	metadata, found bool
}

// once fails if a member stands there twice: which of the two counts is a matter of
// who reads it.
func (r *bodyReader) once(seen *bool, key string) {
	if *seen {
		r.Fail(fmt.Errorf("%w: %s stands there twice", raw.ErrSyntax, key))
	}
	*seen = true
}

func (r *bodyReader) spec() {
	var seen [3]bool
	r.Object(func(key []byte) {
		if string(key) == volumeItem.field() {
			r.list(&r.body.volumes, volumeItem)
			return
		}
		for i, part := range r.parts {
			if string(key) == string(part) {
				r.once(&seen[i], string(part))
				r.containers(part)
			}
		}
	})
}

func (r *bodyReader) containers(part containerPart) {
	if r.Null() {
		return
	}
	r.Array(func(i int) {
		r.body.containers = append(r.body.containers, container{part: part, index: i})
		r.container(&r.body.containers[len(r.body.containers)-1])
	})
}

func (r *bodyReader) container(c *container) {
	r.Object(func(key []byte) {
		switch string(key) {
		case "name":
			c.name = r.text()
		case "env":
			r.list(&c.env, envItem)
		case "envFrom":
			r.list(&c.envFrom, envFromItem)
		case "volumeMounts":
			r.list(&c.mounts, mountItem)
		case "volumeDevices":
			r.devices(&c.devices)
		}
	})
}

// list reads an array of items. If it stands there twice the last one counts, as for
// the API server.
func (r *bodyReader) list(l *list, of itemKind) {
	*l = list{}
	if r.Null() {
		return
	}
	l.there = true
	first := len(r.entries)
	r.Array(func(i int) {
		start := r.Offset()
		id := r.id(of)
		r.entries = append(r.entries, entry{id: id, raw: r.Since(start), at: i})
	})
	l.entries = r.entries[first:len(r.entries):len(r.entries)]
	l.length = len(l.entries)
}

func (r *bodyReader) devices(l *list) {
	*l = list{}
	if r.Null() {
		return
	}
	r.Array(func(i int) {
		l.entries = append(l.entries, entry{id: path.Clean(r.member("devicePath")), at: i})
	})
}

// id reads an item and returns what it is told apart by.
func (r *bodyReader) id(of itemKind) string {
	switch of {
	case envFromItem:
		return r.source()
	case mountItem:
		return path.Clean(r.member("mountPath"))
	default:
		return r.member("name")
	}
}

// source reads a source of variables and returns the id that it would have in a
// policy.
func (r *bodyReader) source() string {
	var prefix, kind, name string
	r.Object(func(key []byte) {
		switch string(key) {
		case "prefix":
			prefix = r.text()
		case "secretRef":
			if !r.Null() {
				kind, name = secretKind, r.member("name")
			}
		case "configMapRef":
			if !r.Null() {
				kind, name = configMapKind, r.member("name")
			}
		}
	})
	return prefix + ":" + kind + "/" + name
}

// member reads an object and returns one of its members, which is a string.
func (r *bodyReader) member(name string) string {
	var text string
	r.Object(func(key []byte) {
		if string(key) == name {
			text = r.text()
		}
	})
	return text
}

// text reads a string, or null for the empty one.
func (r *bodyReader) text() string {
	start := r.Offset() + 1
	text := optionalText(r.Scanner)
	if end := start + len(text); end <= len(r.all) && r.all[start:end] == string(text) {
		return r.all[start:end]
	}
	return string(text) // It had escapes in it.
}
