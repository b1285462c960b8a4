package tree

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// modelSlot is a place in the model, with its history. When an element is inserted into an array or removed, the model
// moves slots; it never computes a path.
type modelSlot struct {
	members map[string]*modelSlot // By key or index.
	origin  string                // Place before all changes; empty if the slot did not exist then.
	born    int
	gone    int
	last    string // Last place; set when the slot is removed.
	touched []int  // The changes of the value, of values that contain it, or of values inside it.
	covered []int  // The part of touched without the changes of values inside the value.
}

// model is the tree of the slots of an object, and the list of the removed slots.
type model struct {
	root *modelSlot
	gone []*modelSlot
}

// modelOf creates a slot for each place of a value that exists before all changes.
func modelOf(value any, origin string) *modelSlot {
	s := &modelSlot{members: map[string]*modelSlot{}, origin: origin, born: -1}
	switch v := value.(type) {
	case map[string]any:
		for key, inside := range v {
			s.members[key] = modelOf(inside, origin+"/"+Escape(key))
		}
	case []any:
		for i, inside := range v {
			s.members[strconv.Itoa(i)] = modelOf(inside, fmt.Sprint(origin, "/", i))
		}
	}
	return s
}

// member returns the slot with this key, and creates a missing slot. The history of a new slot consists of the changes
// of the values that contain it.
func (s *modelSlot) member(key string) *modelSlot {
	if s.members[key] == nil {
		s.members[key] = &modelSlot{members: map[string]*modelSlot{}, born: s.born, touched: slices.Clone(s.covered), covered: slices.Clone(s.covered)}
	}
	return s.members[key]
}

// change applies the change with index n to the model.
func (m *model) change(c *Change, n int) {
	keys := MustParse(c.Path).Keys()
	parent := m.root
	for _, key := range keys[:len(keys)-1] {
		parent.touched = append(parent.touched, n)
		parent = parent.member(key)
	}
	parent.touched = append(parent.touched, n)
	key := keys[len(keys)-1]
	switch {
	case c.Element && c.Op == OpRemove:
		slot := parent.member(key)
		delete(parent.members, key)
		slot.cover(n)
		m.bury(slot, c.Path, n)
		parent.shift(c.Path, -1)
	case c.Element && c.Op == OpAdd:
		parent.shift(c.Path, 1)
		parent.members[key] = &modelSlot{members: map[string]*modelSlot{}, born: n, touched: []int{n}, covered: []int{n}}
	default:
		parent.member(key).cover(n)
	}
}

// cover adds change number n to the history of the slot and of all slots inside it.
func (s *modelSlot) cover(n int) {
	s.touched, s.covered = append(s.touched, n), append(s.covered, n)
	for _, inside := range s.members {
		inside.cover(n)
	}
}

func (m *model) bury(s *modelSlot, place string, n int) {
	s.gone, s.last = n, place
	m.gone = append(m.gone, s)
	for key, inside := range s.members {
		m.bury(inside, place+"/"+Escape(key), n)
	}
}

// shift moves the element at the path, and all later elements, by the given number of places.
func (s *modelSlot) shift(path string, by int) {
	from := parseIndex(path[strings.LastIndexByte(path, '/')+1:])
	moved := make(map[string]*modelSlot, len(s.members))
	for key, slot := range s.members {
		if i := parseIndex(key); i >= from {
			key = strconv.Itoa(i + by)
		}
		moved[key] = slot
	}
	s.members = moved
}

// FuzzTrace edits random objects. For each place it compares two threads with the history in the model: one traced back
// from the end, and one traced forward from the beginning.
func FuzzTrace(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		data := make([]byte, 100+r.IntN(200))
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &choices{rest: data}
		object := map[string]any{"a": []any{c.value(3), c.value(2), c.value(2)}, "b": c.value(3)}
		m := &model{root: modelOf(object, "")}
		d := Edit(object)
		var changes []Change
		for n := 0; n < 40 && len(c.rest) > 0; n++ {
			verb := []string{"add", "add", "remove", "remove", "replace", "set"}[c.below(6)]
			change, err := do(d, verb, c.pointer(d.Root()).String(), c.value(2))
			if err == nil {
				m.change(&change, len(changes))
				changes = append(changes, change)
			}
		}
		checkSlots(t, changes, m.root, "")
		for _, slot := range m.gone {
			checkSlot(t, changes, slot)
		}
	})
}

// checkSlots compares the threads of the slots that still exist with their histories.
func checkSlots(t *testing.T, changes []Change, s *modelSlot, place string) {
	t.Helper()
	s.gone, s.last = len(changes), place
	if place != "" {
		checkSlot(t, changes, s)
	}
	for key, inside := range s.members {
		checkSlots(t, changes, inside, place+"/"+Escape(key))
	}
}

func checkSlot(t *testing.T, changes []Change, s *modelSlot) {
	t.Helper()
	threads := map[string]Thread{"back": Trace(changes, s.last, s.gone)}
	if s.origin != "" {
		threads["on"] = Trace(changes, s.origin, 0)
	}
	for direction, thread := range threads {
		var got []int
		for i := range thread.Touches() {
			got = append(got, i)
		}
		slices.Reverse(got)
		if diff := cmp.Diff(append([]int{}, s.touched...), append([]int{}, got...)); diff != "" {
			t.Fatalf("%+v\n%s from %q: touches of %s: -want, +got:\n%s", changes, direction, s.origin, s.last, diff)
		}
		if thread.Last != s.last || thread.Gone != s.gone || thread.Born != s.born || (s.origin != "" && thread.First != s.origin) {
			t.Fatalf("%+v\n%s: want from %q and change %d to %s and change %d, got %+v", changes, direction, s.origin, s.born, s.last, s.gone, thread)
		}
	}
}
