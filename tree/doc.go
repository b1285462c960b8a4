// Package tree works on places inside JSON-shaped values, with objects as map[string]any and arrays as []any. A
// [Pointer] names a place, [Lookup] reads it, a [Doc] edits an object without a modification of the original, a
// [Change] records a modification and its author, and [Trace] follows a value through the changes.
package tree

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"unsafe"
)

// Reasons in a [PathError]. Callers may test for them with errors.Is.
var (
	ErrNotFound = errors.New("does not exist")
	ErrType     = errors.New("has the wrong type")
	ErrIndex    = errors.New("is not an index of the array")
)

var errWhole = errors.New("is the whole: only what is inside can be written")

// PathError names a place whose value is missing or unsuitable.
type PathError struct {
	Path string // JSON pointer; empty for the whole value.
	Err  error
}

// Error returns the path and the reason.
func (e *PathError) Error() string {
	if e.Path == "" {
		return "the object " + e.Err.Error()
	}
	return e.Path + " " + e.Err.Error()
}

// Unwrap returns the fact.
func (e *PathError) Unwrap() error { return e.Err }

// Lookup returns the value at p. Otherwise it returns a [*PathError] that names the first place on the way that is
// missing ([ErrNotFound], [ErrIndex]) or that is neither an object nor an array ([ErrType]).
func Lookup(value any, p Pointer) (any, error) {
	for depth, s := range p.segments {
		switch v := value.(type) {
		case map[string]any:
			next, ok := v[s.key]
			if !ok {
				return nil, &PathError{Path: p.prefix(depth + 1), Err: ErrNotFound}
			}
			value = next
		case []any:
			if s.index < 0 || s.index >= len(v) {
				return nil, &PathError{Path: p.prefix(depth + 1), Err: noElement(v, "")}
			}
			value = v[s.index]
		default:
			return nil, &PathError{Path: p.prefix(depth), Err: noPlaces(v)}
		}
	}
	return value, nil
}

// Doc edits an object. It copies an object or array before the first write inside it, and shares all others with the
// original. It modifies neither the original nor the values that callers pass to Add, Replace and Set. A Doc is for one
// goroutine.
type Doc struct {
	root map[string]any
	// objects and arrays identify the values that only this Doc refers to: an object by its address, an array by the
	// address of its first element. The addresses are pointers, so the garbage collector keeps these values and their
	// addresses are not used again.
	objects members[unsafe.Pointer]
	arrays  members[*any]
	copied  int
}

// Edit returns a Doc of root. The Doc writes directly to the objects in owned; the caller guarantees that nothing else
// refers to them.
func Edit(root map[string]any, owned ...map[string]any) *Doc {
	d := &Doc{root: root}
	for _, m := range owned {
		if m != nil {
			d.objects.add(address(m))
		}
	}
	return d
}

// Root returns the object with all edits so far. It shares unedited parts with the original, so only the Doc may write
// to it. The result of an earlier call may or may not contain later edits.
func (d *Doc) Root() map[string]any { return d.root }

// Copied returns the cost of the edits so far: 1 for each copied or moved element of an array, and 32 for each copied
// member of an object.
func (d *Doc) Copied() int { return d.copied }

// costOfMember is the cost of a copied member of an object. An element of an array costs 1.
const costOfMember = 32

// Lookup returns the value at p like the function [Lookup]. The returned value may or may not contain later edits.
func (d *Doc) Lookup(p Pointer) (any, error) { return Lookup(d.root, p) }

// Add writes value to p. It adds or replaces a member of an object. In an array it inserts value before the element
// with that index, or after the last element for the segment "-". The parent must exist.
//
// Source: RFC 6902, section 4.1.
func (d *Doc) Add(p Pointer, value any) (Change, error) { return d.write(p, add, value) }

// Replace replaces the existing value at p. In Replace, Set and Remove, the segment "-1" names the last element of an
// array; RFC 6901 does not have it. All writing methods accept it before the last segment of p.
//
// Source: RFC 6902, section 4.3.
func (d *Doc) Replace(p Pointer, value any) (Change, error) { return d.write(p, replace, value) }

// Set is like Replace, but adds a missing member if the parent is an existing object.
func (d *Doc) Set(p Pointer, value any) (Change, error) { return d.write(p, set, value) }

// Remove removes the value at p, which must exist.
//
// Source: RFC 6902, section 4.2.
func (d *Doc) Remove(p Pointer) (Change, error) { return d.write(p, remove, nil) }

type verb int

const (
	add verb = iota
	replace
	set
	remove
)

// edit is the state of one write.
type edit struct {
	*Doc
	verb  verb
	value any
	path  string // Text of the pointer; indexes replace - and -1.
	at    slot   // Position of the current node.
}

// slot is a member of an object or an element of an array. The zero slot is the root.
type slot struct {
	object map[string]any
	key    string
	array  []any
	index  int
}

// write descends to the parent of p and writes there. On the way it copies all objects and arrays that the Doc does not
// own. After a failed write, some of these copies may remain; they equal their originals.
func (d *Doc) write(p Pointer, v verb, value any) (Change, error) {
	if len(p.segments) == 0 {
		return Change{}, &PathError{Err: errWhole}
	}
	e := edit{Doc: d, verb: v, value: value, path: p.text}
	var node any = d.root
	last := len(p.segments) - 1
	for depth, s := range p.segments[:last] {
		next, err := e.enter(node, s, depth)
		if err != nil {
			return Change{}, err
		}
		node = next
	}
	switch n := node.(type) {
	case map[string]any:
		return e.member(n, p.segments[last].key)
	case []any:
		return e.element(n, p.segments[last], last)
	default:
		return Change{}, &PathError{Path: prefix(e.path, last), Err: noPlaces(n)}
	}
}

// enter copies node unless the Doc owns it, and returns the value at s inside node.
func (e *edit) enter(node any, s segment, depth int) (any, error) {
	switch n := node.(type) {
	case map[string]any:
		next, ok := n[s.key]
		if !ok {
			return nil, &PathError{Path: prefix(e.path, depth+1), Err: ErrNotFound}
		}
		e.at = slot{object: e.ownObject(n), key: s.key}
		return next, nil
	case []any:
		i, err := e.index(n, s, depth)
		if err != nil {
			return nil, err
		}
		e.at = slot{array: e.ownArray(n), index: i}
		return n[i], nil
	default:
		return nil, &PathError{Path: prefix(e.path, depth), Err: noPlaces(n)}
	}
}

// index returns the index that s stands for in the array. It is an error if the array has no such element.
func (e *edit) index(a []any, s segment, depth int) (int, error) {
	i := s.index
	if i == lastIndex {
		i = len(a) - 1
	}
	if i < 0 || i >= len(a) {
		hint := ""
		if s.index == endIndex {
			hint = "; -1 is the last"
		}
		return 0, &PathError{Path: prefix(e.path, depth+1), Err: noElement(a, hint)}
	}
	if s.index == lastIndex {
		e.path = withIndex(e.path, depth, i)
	}
	return i, nil
}

// member adds, replaces or removes the member of n with this key.
func (e *edit) member(n map[string]any, key string) (Change, error) {
	before, there := n[key]
	c := Change{Path: e.path, Op: OpReplace, Before: before, After: e.value}
	switch {
	case !there && (e.verb == replace || e.verb == remove):
		return Change{}, &PathError{Path: e.path, Err: ErrNotFound}
	case e.verb == remove:
		c.Op = OpRemove
		delete(e.ownObject(n), key)
		return c, nil
	case !there:
		c.Op = OpAdd
	}
	e.ownObject(n)[key] = e.value
	return c, nil
}

// element inserts, replaces or removes the element of n at s.
func (e *edit) element(n []any, s segment, depth int) (Change, error) {
	if e.verb == add {
		return e.insert(n, s, depth)
	}
	i, err := e.index(n, s, depth)
	if err != nil {
		return Change{}, err
	}
	c := Change{Path: e.path, Element: true, Before: n[i], After: e.value}
	if e.verb == remove {
		c.Op = OpRemove
		e.copied += len(n)
		if len(n) > 1 && e.arrays.has(&n[0]) {
			e.hang(slices.Delete(n, i, i+1))
			return c, nil
		}
		e.hang(append(append(make([]any, 0, len(n)-1), n[:i]...), n[i+1:]...))
		return c, nil
	}
	c.Op = OpReplace
	e.ownArray(n)[i] = e.value
	return c, nil
}

func (e *edit) insert(n []any, s segment, depth int) (Change, error) {
	i := s.index
	if i == endIndex {
		i = len(n)
		e.path = withIndex(e.path, depth, i)
	}
	if i < 0 || i > len(n) {
		hint := ""
		if s.index == lastIndex {
			hint = "; - is its end"
		}
		return Change{}, &PathError{Path: e.path, Err: noElement(n, hint)}
	}
	c := Change{Path: e.path, Op: OpAdd, Element: true, After: e.value}
	e.copied += len(n) + 1
	if len(n) > 0 && e.arrays.has(&n[0]) {
		e.hang(slices.Insert(n, i, e.value))
		return c, nil
	}
	e.hang(append(append(append(make([]any, 0, len(n)+1), n[:i]...), e.value), n[i:]...))
	return c, nil
}

// ownObject returns m if the Doc owns it. Otherwise it puts a copy in the place of m and returns the copy.
func (e *edit) ownObject(m map[string]any) map[string]any {
	if m != nil && e.objects.has(address(m)) {
		return m
	}
	e.copied += costOfMember * (len(m) + 1)
	m = maps.Clone(m)
	if m == nil {
		m = map[string]any{}
	}
	e.objects.add(address(m))
	switch {
	case e.at.object != nil:
		e.at.object[e.at.key] = m
	case e.at.array != nil:
		e.at.array[e.at.index] = m
	default:
		e.root = m
	}
	return m
}

// ownArray returns the array itself if the Doc owns it. Otherwise it puts a copy in its place and returns the copy. The
// array has at least one element.
func (e *edit) ownArray(a []any) []any {
	if e.arrays.has(&a[0]) {
		return a
	}
	e.copied += len(a)
	a = slices.Clone(a)
	e.hang(a)
	return a
}

// hang writes the array to the current position, and marks it as owned. The position is never the root, because the
// root is an object.
func (e *edit) hang(a []any) {
	if len(a) > 0 && !e.arrays.has(&a[0]) {
		e.arrays.add(&a[0])
	}
	if e.at.object != nil {
		e.at.object[e.at.key] = a
		return
	}
	e.at.array[e.at.index] = a
}

func address(m map[string]any) unsafe.Pointer { return reflect.ValueOf(m).UnsafePointer() }

// members is a set for a usually small number of members: up to aFew it is a list, and then a map. The zero value is
// empty.
type members[T comparable] struct {
	few  []T
	many map[T]struct{} // The set, once it has more than aFew members; few is unused then.
}

const aFew = 64

func (s *members[T]) add(v T) {
	if s.many == nil && len(s.few) < aFew {
		if s.few == nil {
			s.few = make([]T, 0, 16)
		}
		s.few = append(s.few, v)
		return
	}
	if s.many == nil {
		s.many = make(map[T]struct{}, 2*aFew)
		for _, w := range s.few {
			s.many[w] = struct{}{}
		}
	}
	s.many[v] = struct{}{}
}

func (s *members[T]) has(v T) bool {
	if s.many == nil {
		return slices.Contains(s.few, v)
	}
	_, ok := s.many[v]
	return ok
}

func noElement(a []any, hint string) error {
	if len(a) == 1 {
		return fmt.Errorf("%w: it has 1 element%s", ErrIndex, hint)
	}
	return fmt.Errorf("%w: it has %d elements%s", ErrIndex, len(a), hint)
}

func noPlaces(v any) error {
	return fmt.Errorf("%w: want an object or an array, got %s", ErrType, TypeName(v))
}

// prefix returns the first n segments of the text of a pointer.
func prefix(text string, n int) string { return Pointer{text: text}.prefix(n) }

// withIndex returns text with index as the segment number depth.
func withIndex(text string, depth, index int) string {
	return prefix(text, depth) + "/" + strconv.Itoa(index) + text[len(prefix(text, depth+1)):]
}
