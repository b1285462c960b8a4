package inject

import (
	"errors"
	"fmt"

	"refract.dev/tree/raw"
)

// body is the part of a pod's spec that policies change, with the additions so far.
type body struct {
	volumes    list
	containers []container
	work       int // The work so far, see maxWork.
}

// container is one container of a pod.
type container struct {
	part  containerPart
	index int
	name  string

	env, envFrom, mounts list
	// devices has the paths of raw block devices, and blocks the names of their volumes. A mount may use no such path
	// and no such volume.
	devices, blocks list
}

// list returns the container's list for items of a kind.
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

// errSpec is the error for a pod without a spec.
var errSpec = errors.New("spec: want an object, got none")

// readBody reads the spec of a pod: the volumes and the given lists of containers.
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

	all             string // The whole pod. Names are substrings of it, which saves an allocation for each name.
	parts           []containerPart
	body            *body
	entries         []entry // The entries of all lists, one list behind the other.
	metadata, found bool
	elements        int
}

// room counts a container or an element, and reports whether the reader may store it. The reader skips all elements
// beyond the limit, and the pod then counts as exceeding its work limit.
func (r *bodyReader) room(elements int) bool {
	if r.elements += elements; r.elements <= maxElements {
		return true
	}
	r.body.work = maxWork + 1
	return false
}

// once fails if an object has the key twice, because JSON readers do not agree which of the two members counts.
func (r *bodyReader) once(seen *bool, key string) {
	if *seen {
		r.Fail(fmt.Errorf("%w: duplicate key %s", raw.ErrSyntax, key))
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

// list reads an array of items. If the pod has several arrays with this name, the last one counts, as in an API server.
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

// id reads an item and returns its identity.
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

// source reads a source of variables and returns its identity, as in a policy.
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

// member reads an object and returns the value of one of its string members.
func (r *bodyReader) member(name string) string {
	var text string
	r.Object(func(key []byte) {
		if string(key) == name {
			text = r.text()
		}
	})
	return text
}

// text reads a string; null counts as the empty string.
func (r *bodyReader) text() string {
	start := r.Offset() + 1
	text := optionalText(r.Scanner)
	if end := start + len(text); end <= len(r.all) && r.all[start:end] == string(text) {
		return r.all[start:end]
	}
	return string(text) // The JSON string has escapes.
}
