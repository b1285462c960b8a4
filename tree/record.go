package tree

import (
	"cmp"
	"iter"
	"slices"
	"strconv"
	"strings"
)

// Record is the changes of one object, from the first on. Each of them says which
// earlier ones it hides ([Change.Shadows]), and is hidden by one at most: n changes take
// time and memory for n, and not for each of them against each. To insert and remove
// elements of an array takes time for the elements behind that were written to, too. The
// zero value is empty. A Record is for one goroutine, and must not be copied after its
// first change.
type Record struct {
	changes []Change
	hidden  uint64 // Those of the first few that are, a bit each.
	root    written
	spare   []written // For nodes to come.
}

// few changes are looked through faster than a tree of their places is made. Most
// objects have no more.
const few = 20

// written is a place of the object, and which changes there is still something to see of.
type written struct {
	segment string // Of the path, as it is written; in an array its index is instead.
	index   int
	// changes are those of the value itself, and the removals from it if it is an array.
	changes []int
	one     [1]int // What changes usually refers to.
	inside  []*written
	array   bool // Whether inside is by index, ascending; else it is by segment, ascending.
}

// Changes returns what was added. It is shared, and not to be modified.
func (r *Record) Changes() []Change { return r.changes }

// Len returns how many changes were added.
func (r *Record) Len() int { return len(r.changes) }

// Grow makes room for n more changes.
func (r *Record) Grow(n int) { r.changes = slices.Grow(r.changes, n) }

// Add adds c, with what it shadows filled in.
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

// look returns the changes that c hides, of few.
func (r *Record) look(c *Change) []int {
	if c.Element && c.Op == OpAdd {
		return nil // What was there has moved up.
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

// note notes the change with index n, and returns those that it hides.
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
	if c.Op == OpAdd { // What was there has moved up.
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

// enter returns the place inside of another, which may be new.
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

// node returns a new node. One allocation is for several: most objects have few changes.
func (r *Record) node() *written {
	if len(r.spare) == 0 {
		r.spare = make([]written, 16)
	}
	at := &r.spare[0]
	r.spare = r.spare[1:]
	return at
}

// set has one change alone be seen of the value.
func (w *written) set(change int) {
	w.one[0] = change
	w.changes = w.one[:]
}

// find returns where inside a place is, or would be.
func (w *written) find(segment string, index int) (int, bool) {
	return slices.BinarySearchFunc(w.inside, index, func(at *written, index int) int {
		if w.array {
			return cmp.Compare(at.index, index)
		}
		return strings.Compare(at.segment, segment)
	})
}

// becomeArray has what is inside be by index from now on: a path does not tell an array
// from an object whose keys are numbers.
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

// move moves the elements from inside[i] on.
func (w *written) move(i, by int) {
	for _, at := range w.inside[i:] {
		at.index += by
	}
}

// all adds the changes of the value and of all inside it.
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

// indexOf returns the index that a segment of a path says.
func indexOf(segment string) int {
	i, err := strconv.Atoi(segment)
	if err != nil {
		return -1
	}
	return i
}

// Hidden yields the indexes of all changes that changes[i] hides: those that it shadows,
// those that these shadow, and so on, each once. Together, n changes may hide n²/2.
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
