package tree

import (
	"iter"
	"strconv"
	"strings"
)

// Thread follows one value through the changes of an object, and finds the authors of the value. A member of an object
// stays the same value when it is replaced, or removed and added again. An element of an array, and everything inside
// it, moves when another element is inserted or removed before it. The thread of an element begins with its insertion
// and ends with its removal.
type Thread struct {
	// Born is the index of the change that inserted the value, or an element that contains it, into an array; -1 if no
	// change did this.
	Born int
	// Gone is the index of the change that removed the value, or an element that contains it, from an array; the number
	// of changes if no change did this.
	Gone int
	// First is the JSON pointer of the value before all changes or, if a change inserted the value into an array, right
	// after that change.
	First string
	// Last is the JSON pointer of the value after all changes or, if a change removed the value from an array, right
	// before that change.
	Last string

	changes []Change
}

// Trace follows one value through the changes, back to its first place and forward to its last one. The argument place is
// the text of a [Pointer]: the place of the value right before changes[at], or after all changes if at is len(changes).
// All changes belong to one object, in the order of a [Record]; the thread shares the slice. The value may be absent,
// because absent values have authors, too.
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

// Touches yields the changes of the value, of values that contain it (Born and Gone among them), and of values inside
// it, from the last change to the first. For each change it yields the index, and the place of the value right before
// the change (for Born, right after it). [Covers] distinguishes the three cases.
func (t Thread) Touches() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		if t.Gone < len(t.changes) && !yield(t.Gone, t.Last) {
			return
		}
		touches(t.changes[:t.Gone], t.Last)(yield)
	}
}

// Author returns the author of the last change in Touches, which determined the final value. It returns nil without
// such a change.
func (t Thread) Author() *Author {
	var by *Author
	t.Touches()(func(i int, _ string) bool {
		by = t.changes[i].By
		return false
	})
	return by
}

// touches implements [Thread.Touches] for a value that exists at place after all changes.
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

// touches reports whether c changed the value at place, a value that contains it, or a value inside it. The change c
// does not move the value.
func (c *Change) touches(place string) bool {
	if c.moves() { // The length of an array has changed. This concerns place if the array is at place or inside it.
		return Covers(place, c.array())
	}
	return Covers(c.Path, place) || Covers(place, c.Path)
}

// moves reports whether c changes the indexes of later elements of an array.
func (c *Change) moves() bool { return c.Element && c.Op != OpReplace }

// array returns the path of the array that c changes.
func (c *Change) array() string { return c.Path[:strings.LastIndexByte(c.Path, '/')] }

// placeBefore returns the place that a value had before c. Its place after c is given, and c did not insert it.
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

// placeAfter returns the place that a value has after c. Its place before c is given, and c does not remove it.
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

// shifted adds by to the index of place in the array of c if that index is not smaller than the index that c changes.
// Other places, and keys that are not indexes, stay unchanged.
func (c *Change) shifted(place string, by int) string {
	array := c.array()
	if place == array || !Covers(array, place) {
		return place
	}
	from := len(array) + 1
	text, _, _ := strings.Cut(place[from:], "/")
	index := parseIndex(text)
	if index < parseIndex(c.Path[from:]) { // parseIndex returns a negative number for a key that is not an index.
		return place
	}
	return place[:from] + strconv.Itoa(index+by) + place[from+len(text):]
}
