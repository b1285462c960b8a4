package explain

import (
	"strconv"
	"strings"

	"refract.dev/tree"
)

// thread is where one value was through all changes. A thread begins with the
// object or with the change that inserted the value, or what is around it, into
// an array; it ends with the change that removed that from an array, or never.
type thread struct {
	born   int      // The change that it came with; -1 if none.
	gone   int      // The change that it went with; the number of changes if none.
	places []string // Before each change and in the end, from born+1 to gone.
}

// trace follows the value that is at place before the change with index at, or
// in the end if at is their number, back and forth.
func trace(changes []tree.Change, place string, at int) thread {
	t := thread{born: -1, gone: len(changes), places: make([]string, len(changes)+1)}
	t.places[at] = place
	for i := at; i < len(changes); i++ {
		c := &changes[i]
		if moves(c) && c.Op == tree.OpRemove && tree.Covers(c.Path, t.places[i]) {
			t.gone = i
			break
		}
		t.places[i+1] = after(t.places[i], c)
	}
	for i := at - 1; i >= 0; i-- {
		c := &changes[i]
		if moves(c) && c.Op == tree.OpAdd && tree.Covers(c.Path, t.places[i+1]) {
			t.born = i
			break
		}
		t.places[i] = before(t.places[i+1], c)
	}
	return t
}

// traceChange follows the value that the change with this index wrote.
func traceChange(changes []tree.Change, i int) thread {
	if c := &changes[i]; moves(c) && c.Op == tree.OpAdd {
		return trace(changes, c.Path, i+1)
	}
	return trace(changes, changes[i].Path, i)
}

// first and last are where the value was at its first and last.
func (t *thread) first() string { return t.places[t.born+1] }
func (t *thread) last() string  { return t.places[t.gone] }

// at returns where the value was when the change with this index, between born
// and gone, wrote to it.
func (t *thread) at(i int) string {
	if i == t.born {
		return t.places[i+1]
	}
	return t.places[i]
}

// key tells threads of the same changes apart.
func (t *thread) key() threadKey { return threadKey{t.born, t.first()} }

type threadKey struct {
	born  int
	first string
}

// moves reports whether the change moves the elements behind its place.
func moves(c *tree.Change) bool { return c.Element && c.Op != tree.OpReplace }

// after returns where what was at place before c is after it; c does not remove
// it.
func after(place string, c *tree.Change) string {
	index, by := elementAt(place, c)
	switch at, _ := elementAt(c.Path, c); {
	case index < 0 || index < at:
		return place
	case c.Op == tree.OpAdd:
		return by(index + 1)
	default:
		return by(index - 1)
	}
}

// before returns where what is at place after c was before it; c did not insert
// it.
func before(place string, c *tree.Change) string {
	index, by := elementAt(place, c)
	at, _ := elementAt(c.Path, c)
	switch {
	case index < 0 || index < at:
		return place
	case c.Op == tree.OpAdd:
		return by(index - 1)
	default:
		return by(index + 1)
	}
}

// elementAt returns which element of the array that c moves the place is in, and
// a function that puts another index in its place; -1 if it is in none.
func elementAt(place string, c *tree.Change) (index int, with func(int) string) {
	array := c.Path[:strings.LastIndexByte(c.Path, '/')]
	if !moves(c) || place == array || !tree.Covers(array, place) {
		return -1, nil
	}
	text, _, _ := strings.Cut(place[len(array)+1:], "/")
	index, err := strconv.Atoi(text)
	if err != nil {
		return -1, nil // A name, which means nothing in an array.
	}
	return index, func(i int) string { return array + "/" + strconv.Itoa(i) + place[len(array)+1+len(text):] }
}
