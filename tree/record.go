package tree

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Record is the list of all changes of one object, in their order. Add sets the [Change.Shadows] of each change. A
// change is in the Shadows of at most one other change, so n changes take time and memory proportional to n, and not to
// n². The insertion or removal of an element of an array also takes time for each changed element with a larger index.
// The zero value is empty. A Record is for one goroutine, and must not be copied after its first change.
type Record struct {
	changes []Change
	hidden  uint64 // Bit i is set if changes[i] is hidden; used only for the first changes, up to few.
	root    written
	spare   []written // Unused nodes.
}

// few is the largest number of changes that Add searches in the list. With more changes, a tree of the changed places
// is faster. Most objects have fewer changes.
const few = 20

// written is a node of the tree of changed places. It lists the changes of its place that no later change hides.
type written struct {
	segment string // Last segment of the path, escaped; empty for an element of an array, which has an index.
	index   int
	// changes are the indexes of the changes of the value itself. For an array they include the removals of elements.
	changes []int
	one     [1]int     // Memory for changes, which usually has one element.
	inside  []*written // Changed places directly inside this one. In an array they are sorted by index, otherwise by segment.
	array   bool       // Whether a change has shown that the value is an array.
}

// Changes returns the added changes. The slice is shared and must not be modified.
func (r *Record) Changes() []Change { return r.changes }

// Len returns the number of added changes.
func (r *Record) Len() int { return len(r.changes) }

// Grow makes room for n more changes.
func (r *Record) Grow(n int) { r.changes = slices.Grow(r.changes, n) }

// Add appends c, and sets its Shadows.
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

// look returns the indexes of the changes that c hides. It searches the whole list, which is short.
func (r *Record) look(c *Change) []int {
	if c.Element && c.Op == OpAdd {
		return nil // An insertion hides nothing: the earlier element at this index gets the next index.
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

// note adds change number n to the tree, and returns the indexes of the changes that it hides.
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
	if c.Op == OpAdd { // An insertion hides nothing: the earlier element at this index gets the next index.
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

// enter returns the node for segment inside around. It creates a missing node.
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

// node returns a new node. It allocates 16 nodes at once, because that is cheaper.
func (r *Record) node() *written {
	if len(r.spare) == 0 {
		r.spare = make([]written, 16)
	}
	at := &r.spare[0]
	r.spare = r.spare[1:]
	return at
}

// set records that change hides all earlier changes of the value.
func (w *written) set(change int) {
	w.one[0] = change
	w.changes = w.one[:]
}

// find returns the position of a place in w.inside, and true. If w.inside does not contain the place, find returns the
// position to insert it, and false.
func (w *written) find(segment string, index int) (int, bool) {
	return slices.BinarySearchFunc(w.inside, index, func(at *written, index int) int {
		if w.array {
			return cmp.Compare(at.index, index)
		}
		return strings.Compare(at.segment, segment)
	})
}

// becomeArray records that the value is an array, and sorts w.inside by index. Only a change of an element shows this:
// in a path, a number may be an index or a key of an object.
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

// move adds by to the indexes of w.inside[i] and all later elements.
func (w *written) move(i, by int) {
	for _, at := range w.inside[i:] {
		at.index += by
	}
}

// all appends the changes of the value, and of all places inside it at any depth, to the list.
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

// indexOf returns the index in a segment of a path, or -1 for another segment.
func indexOf(segment string) int {
	i, err := strconv.Atoi(segment)
	if err != nil {
		return -1
	}
	return i
}

// Hidden yields the index of each change that changes[i] hides: its Shadows, the Shadows of these changes, and so on.
// It yields each index once. Calls for all n changes together may yield n²/2 indexes.
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
