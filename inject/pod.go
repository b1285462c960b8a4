package inject

import (
	"errors"
	"fmt"

	"refract.dev/tree/raw"
)

// body is what stands in the spec of a pod about what policies inject, and what was
// added to it since.
type body struct {
	volumes    list
	containers []container
	work       int // What was done so far, see maxWork.
}

// container is one container of a pod.
type container struct {
	part  containerPart
	index int
	name  string

	env, envFrom, mounts list
	// Where raw block devices are, and of which volumes: no mount may be there, or of
	// such a volume.
	devices, blocks list
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
		body:    &body{containers: make([]container, 0, 4), work: len(pod) / workOfByte},
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
	elements        int
}

// room counts a container, or an item, and reports whether it is read. Beyond what a pod may
// have they are passed over, and the pod is too much work.
func (r *bodyReader) room(elements int) bool {
	if r.elements += elements; r.elements <= maxElements {
		return true
	}
	r.body.work = maxWork + 1
	return false
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
		if !r.room(elementsOfContainer) {
			return
		}
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
			r.devices(c)
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
		if !r.room(1) {
			return
		}
		start := r.Offset()
		id := r.id(of)
		r.entries = append(r.entries, entry{id: id, raw: r.Since(start), at: i})
	})
	l.entries = r.entries[first:len(r.entries):len(r.entries)]
	l.length = len(l.entries)
}

func (r *bodyReader) devices(c *container) {
	c.devices, c.blocks = list{}, list{}
	if r.Null() {
		return
	}
	r.Array(func(i int) {
		if !r.room(1) {
			return
		}
		device, volume := entry{at: i}, entry{at: i}
		r.Object(func(key []byte) {
			switch string(key) {
			case "devicePath":
				device.id = cleanMount(r.text())
			case "name":
				volume.id = r.text()
			}
		})
		c.devices.entries, c.blocks.entries = append(c.devices.entries, device), append(c.blocks.entries, volume)
	})
}

// id reads an item and returns what it is told apart by.
func (r *bodyReader) id(of itemKind) string {
	switch of {
	case envFromItem:
		return r.source()
	case mountItem:
		return cleanMount(r.member("mountPath"))
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
