package tree

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Record is the list of changes of one object, from the first on. Each change lists the earlier changes that it hides
// ([Change.Shadows]), and at most one change lists it. So n changes take time and memory proportional to n, and not to
// n². An insertion or removal of an element of an array also takes time for the changed elements behind it. The zero
// value is empty. A Record is for one goroutine, and must not be copied after its first change.
type Record struct {
	changes []Change
	hidden  uint64 // One bit for each of the first few changes: set if the change is hidden.
	root    written
	spare   []written // Unused nodes.
}

// For at most few changes, a search through the list is faster than a tree of their places. Most objects have no more
// changes.
const few = 20

// written is a changed place of the object, with the changes there that are still visible.
type written struct {
	segment string // Escaped segment of the path; unused in an array, where index is set.
	index   int
	// changes are the changes of the value itself and, in an array, the removals of elements.
	changes []int
	one     [1]int // Usual storage of changes.
	inside  []*written
	array   bool // If set, inside is sorted by index, otherwise by segment.
}

// Changes returns the added changes. The slice is shared and must not be modified.
func (r *Record) Changes() []Change { return r.changes }

// Len returns the number of added changes.
func (r *Record) Len() int { return len(r.changes) }

// Grow makes room for n more changes.
func (r *Record) Grow(n int) { r.changes = slices.Grow(r.changes, n) }

// Add adds c, and sets its Shadows.
func (r *Record) Add(c Change) {
	n := len(r.changes)
	switch {
	case n < few:
		c.Shadows = r.look(&c)
	case n == few:
		for i := range r.changes {
			r.note(&r.changes[i], i)
		}
		fallthrough
	default:
		c.Shadows = r.note(&c, n)
	}
	r.changes = append(r.changes, c)
}

// look returns the changes that c hides, by a search through at most few changes.
func (r *Record) look(c *Change) []int {
	if c.Element && c.Op == OpAdd {
		return nil // The earlier element at this index has moved up.
	}
	var hidden []int
	for i, place := range touches(r.changes, c.Path) {
		if r.hidden&(1<<i) == 0 && Covers(place, r.changes[i].Path) {
			r.hidden |= 1 << i
			hidden = append(hidden, i)
		}
	}
	slices.Reverse(hidden)
	return hidden
}

// note enters the change with index n into the tree, and returns the changes that it hides.
func (r *Record) note(c *Change, n int) []int {
	around, path := &r.root, strings.TrimPrefix(c.Path, "/")
	for {
		segment, rest, more := strings.Cut(path, "/")
		if !more {
			break
		}
		around, path = r.enter(around, segment), rest
	}
	if !c.moves() {
		if c.Element {
			around.becomeArray()
		}
		at := r.enter(around, path)
		hidden := at.all(nil)
		at.inside, at.array = nil, false
		at.set(n)
		return sorted(hidden)
	}
	around.becomeArray()
	index := indexOf(path)
	i, there := around.find("", index)
	if c.Op == OpAdd { // The earlier element at this index has moved up.
		around.move(i, 1)
		at := r.node()
		at.index = index
		at.set(n)
		around.inside = slices.Insert(around.inside, i, at)
		return nil
	}
	around.changes = append(around.changes, n)
	if !there {
		around.move(i, -1)
		return nil
	}
	hidden := around.inside[i].all(nil)
	around.inside = slices.Delete(around.inside, i, i+1)
	around.move(i, -1)
	return sorted(hidden)
}

// enter returns the place inside another one, and creates it if necessary.
func (r *Record) enter(around *written, segment string) *written {
	index := 0
	if around.array {
		segment, index = "", indexOf(segment)
	}
	i, there := around.find(segment, index)
	if there {
		return around.inside[i]
	}
	at := r.node()
	at.segment, at.index = segment, index
	around.inside = slices.Insert(around.inside, i, at)
	return at
}

// node returns a new node. One allocation serves several nodes, because most objects have few changes.
func (r *Record) node() *written {
	if len(r.spare) == 0 {
		r.spare = make([]written, 16)
	}
	at := &r.spare[0]
	r.spare = r.spare[1:]
	return at
}

// set makes one change the only visible one of the value.
func (w *written) set(change int) {
	w.one[0] = change
	w.changes = w.one[:]
}

// find returns the position of a place in inside. If the place is missing, it returns the position for an insertion.
func (w *written) find(segment string, index int) (int, bool) {
	return slices.BinarySearchFunc(w.inside, index, func(at *written, index int) int {
		if w.array {
			return cmp.Compare(at.index, index)
		}
		return strings.Compare(at.segment, segment)
	})
}

// becomeArray sorts inside by index from now on. A path alone does not distinguish an array from an object whose keys
// are numbers.
func (w *written) becomeArray() {
	if w.array {
		return
	}
	w.array = true
	for _, at := range w.inside {
		at.segment, at.index = "", indexOf(at.segment)
	}
	slices.SortFunc(w.inside, func(a, b *written) int { return cmp.Compare(a.index, b.index) })
}

// move shifts the indexes of the elements from inside[i] on.
func (w *written) move(i, by int) {
	for _, at := range w.inside[i:] {
		at.index += by
	}
}

// all appends the changes of the value and of all places inside it.
func (w *written) all(to []int) []int {
	to = append(to, w.changes...)
	for _, at := range w.inside {
		to = at.all(to)
	}
	return to
}

func sorted(changes []int) []int {
	slices.Sort(changes)
	return changes
}

// indexOf returns the index that a segment of a path stands for, or -1.
func indexOf(segment string) int {
	i, err := strconv.Atoi(segment)
	if err != nil {
		return -1
	}
	return i
}

// Hidden yields the indexes of all changes that changes[i] hides: its shadows, the shadows of these, and so on, each
// once. All n changes together may hide n²/2.
func Hidden(changes []Change, i int) iter.Seq[int] {
	return func(yield func(int) bool) {
		next := slices.Clone(changes[i].Shadows)
		for len(next) > 0 {
			j := next[len(next)-1]
			next = append(next[:len(next)-1], changes[j].Shadows...)
			if !yield(j) {
				return
			}
		}
	}
}
