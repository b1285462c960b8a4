package tree

import (
	"iter"
	"strconv"
	"strings"
)

// Thread follows one value through the changes of an object, and finds the authors of the value. A member of an object
// stays the same value when it is replaced, or removed and added again. An element of an array, and everything inside
// it, moves when other elements are inserted or removed before it; its thread begins with the change that inserted it
// and ends with the change that removed it.
type Thread struct {
	// Born is the index of the change that inserted the value, or a value around it, into an array; -1 if no change
	// did.
	Born int
	// Gone is the index of the change that removed the value, or a value around it, from an array; the number of
	// changes if no change did.
	Gone int
	// First is the place of the value, a JSON pointer, before all changes or right after Born.
	First string
	// Last is the place of the value after all changes or right before Gone.
	Last string

	changes []Change
}

// Trace follows the value that is at place, the text of a [Pointer], before the change with index at: back to its first
// place and forward to its last one. If at is the number of changes, it follows the value at that place after all
// changes. The changes are those of one object, in the order of a [Record]; the thread shares them. The value need not
// exist: an absent value has authors as well.
func Trace(changes []Change, place string, at int) Thread {
	t := Thread{Born: -1, Gone: len(changes), First: place, Last: place, changes: changes}
	for i := at; i < len(changes); i++ {
		c := &changes[i]
		if c.moves() && c.Op == OpRemove && Covers(c.Path, t.Last) {
			t.Gone = i
			break
		}
		t.Last = placeAfter(t.Last, c)
	}
	for i := at - 1; i >= 0; i-- {
		c := &changes[i]
		if c.moves() && c.Op == OpAdd && Covers(c.Path, t.First) {
			t.Born = i
			break
		}
		t.First = placeBefore(t.First, c)
	}
	return t
}

// Touches yields the changes of the value, of a value around it (Born and Gone among them), or of a value inside it,
// from the last to the first. For each it yields the index of the change, and the place of the value right before the
// change, or right after it for Born. [Covers] distinguishes the three cases.
func (t Thread) Touches() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		if t.Gone < len(t.changes) && !yield(t.Gone, t.Last) {
			return
		}
		touches(t.changes[:t.Gone], t.Last)(yield)
	}
}

// Author returns the author of the last change that touched the value, which determined the final value; nil if no
// change did.
func (t Thread) Author() *Author {
	var by *Author
	t.Touches()(func(i int, _ string) bool {
		by = t.changes[i].By
		return false
	})
	return by
}

// touches is [Thread.Touches] for the value that is at place after all changes.
func touches(changes []Change, place string) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		for i := len(changes) - 1; i >= 0; i-- {
			c := &changes[i]
			born := c.moves() && c.Op == OpAdd && Covers(c.Path, place)
			if (born || c.touches(place)) && !yield(i, place) {
				return
			}
			if born {
				return
			}
			place = placeBefore(place, c)
		}
	}
}

// touches reports whether c changed the value at a place that is the same before and after c.
func (c *Change) touches(place string) bool {
	if c.moves() { // The length of an array has changed: that array is the value, or inside it.
		return Covers(place, c.array())
	}
	return Covers(c.Path, place) || Covers(place, c.Path)
}

// moves reports whether c moves the elements behind its place.
func (c *Change) moves() bool { return c.Element && c.Op != OpReplace }

// array returns the place of the array whose element c changes.
func (c *Change) array() string { return c.Path[:strings.LastIndexByte(c.Path, '/')] }

// placeBefore returns the place before c of the value that is at place after c. The change c did not insert the value.
func placeBefore(place string, c *Change) string {
	switch {
	case !c.moves():
		return place
	case c.Op == OpAdd:
		return c.shifted(place, -1)
	default:
		return c.shifted(place, 1)
	}
}

// placeAfter returns the place after c of the value that is at place before c. The change c does not remove the value.
func placeAfter(place string, c *Change) string {
	switch {
	case !c.moves():
		return place
	case c.Op == OpAdd:
		return c.shifted(place, 1)
	default:
		return c.shifted(place, -1)
	}
}

// shifted returns the place after its index in c's array is shifted, if that index is c's own or larger. A key that is
// not an index stays unchanged.
func (c *Change) shifted(place string, by int) string {
	array := c.array()
	if place == array || !Covers(array, place) {
		return place
	}
	from := len(array) + 1
	text, _, _ := strings.Cut(place[from:], "/")
	index := parseIndex(text)
	if index < parseIndex(c.Path[from:]) { // A key that is not an index is negative.
		return place
	}
	return place[:from] + strconv.Itoa(index+by) + place[from+len(text):]
}
