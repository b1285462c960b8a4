package tree

import (
	"iter"
	"strconv"
	"strings"
)

// Thread is one value on its way through the changes of an object, and who wrote
// to it. A member of an object is one and the same also when it is replaced, or
// removed and added again. An element of an array, and what is inside it, moves
// when others are inserted or removed before it; its thread begins with the change
// that inserted the element and ends with the one that removed it.
type Thread struct {
	// Born is the index of the change that inserted the value, or what is around it,
	// into an array; -1 if none did.
	Born int
	// Gone is the index of the change that removed the value, or what is around it,
	// from an array; the number of changes if none did.
	Gone int
	// First is its place, a JSON pointer, before all changes or right after Born.
	First string
	// Last is its place after all changes or right before Gone.
	Last string

	changes []Change
}

// Trace follows the value that is at place, the text of a [Pointer], before the
// change with index at: back to its first place and on to its last. If at is the
// number of changes, that is the value there in the end. The changes are those of
// one object, as a [Record] lists them; the thread shares them. The value need not
// be there: what is absent has authors, too.
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

// Touches yields, from the last to the first, the indexes of the changes that were
// made at the value, to something around it, such as Born and Gone, or to something
// inside it; and where the value was right before the change, for Born right
// after. [Covers] tells which of the three it is.
func (t Thread) Touches() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		if t.Gone < len(t.changes) && !yield(t.Gone, t.Last) {
			return
		}
		touches(t.changes[:t.Gone], t.Last)(yield)
	}
}

// Author returns who made the last change that touched the value, so that it is
// what it is; nil if no change did.
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

// touches reports whether c changed what is at a place before and after it.
func (c *Change) touches(place string) bool {
	if c.moves() { // An array that has another length now, or something around it.
		return Covers(place, c.array())
	}
	return Covers(c.Path, place) || Covers(place, c.Path)
}

// moves reports whether c moves the elements behind its place.
func (c *Change) moves() bool { return c.Element && c.Op != OpReplace }

// array returns the place of the array that c changes an element of.
func (c *Change) array() string { return c.Path[:strings.LastIndexByte(c.Path, '/')] }

// placeBefore returns where what is at place after c, which did not insert it, was
// before c.
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

// placeAfter returns where what is at place before c, which does not remove it, is
// after c.
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

// shifted returns the place with its index in c's array moved by a number, if it is
// c's or behind it. A name, which means nothing in an array, stays.
func (c *Change) shifted(place string, by int) string {
	array := c.array()
	if place == array || !Covers(array, place) {
		return place
	}
	from := len(array) + 1
	text, _, _ := strings.Cut(place[from:], "/")
	index := parseIndex(text)
	if index < parseIndex(c.Path[from:]) { // Less than 0 for a name.
		return place
	}
	return place[:from] + strconv.Itoa(index+by) + place[from+len(text):]
}
