package explain

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/policy/override"
	"refract.dev/tree"
)

// history is the sequence of changes that leads to one variant.
type history struct {
	kind     schema.GroupKind
	template map[string]any // The object before the first change.
	object   map[string]any // The object after all changes, without dropped empty values.
	changes  []tree.Change
	hidden   []bool // By change: whether a later change overwrites it.
	// refused are the warnings about values that an API server rejects.
	refused []override.Warning
}

func historyOf(kind schema.GroupKind, template map[string]any, v *override.Variant) *history {
	h := &history{kind: kind, template: template, object: v.Object.Object, changes: v.Changes, hidden: make([]bool, len(v.Changes))}
	for i := range v.Changes {
		for _, earlier := range v.Changes[i].Shadows {
			h.hidden[earlier] = true
		}
	}
	return h
}

// threadKey identifies a thread.
type threadKey struct {
	born  int
	first string
}

func keyOf(t *tree.Thread) threadKey { return threadKey{t.Born, t.First} }

// touched returns the threads that changes wrote to, in the order of their first change.
func (h *history) touched() []tree.Thread {
	var all []tree.Thread
	seen := map[threadKey]bool{}
	for i := range h.changes {
		t := h.thread(i)
		if key := keyOf(&t); !seen[key] {
			seen[key] = true
			all = append(all, t)
		}
	}
	return all
}

// thread follows the value that the change with this index wrote.
func (h *history) thread(i int) tree.Thread {
	c := &h.changes[i]
	if c.Element && c.Op == tree.OpAdd {
		return tree.Trace(h.changes, c.Path, i+1)
	}
	return tree.Trace(h.changes, c.Path, i)
}

// fields returns the changed fields.
func (h *history) fields() []Field {
	fields := []Field{}
	for _, t := range h.touched() {
		fields = append(fields, h.field(&t))
	}
	return fields
}

// fieldsAt returns the chains of values for a place: the chain of the value at the place, and the chains of other
// changed values that are inside it, or were inside it before they were removed. The first chain is left out if it has
// no write and there are others. The result is never empty: a place that never had a value gives one field without
// values.
func (h *history) fieldsAt(place string) []Field {
	own := tree.Trace(h.changes, place, len(h.changes))
	var others []Field
	parts := 0 // The number of chains of other places inside the final value.
	for _, t := range h.touched() {
		if keyOf(&t) == keyOf(&own) || !h.meant(&t, place) {
			continue
		}
		others = append(others, h.field(&t))
		if t.Gone == len(h.changes) {
			parts++
		}
	}
	field := h.field(&own)
	switch {
	case len(field.Writes) > 0 || (field.exists() && parts == 0):
		return append([]Field{field}, others...)
	case len(others) > 0:
		return others
	}
	if _, ok := lookup(h.template, place); ok {
		moved := tree.Trace(h.changes, place, 0)
		return []Field{h.field(&moved)}
	}
	return []Field{field}
}

// meant reports whether a thread, which is a value that changes and moves, belongs to the result for a place.
func (h *history) meant(t *tree.Thread, place string) bool {
	if tree.Covers(place, t.Last) {
		return true
	}
	return t.Gone < len(h.changes) && t.Born < 0 && tree.Covers(place, t.First)
}

// field returns the chain of values of a thread.
func (h *history) field(t *tree.Thread) Field {
	f := Field{Path: t.Last, Writes: []Write{}}
	if value, ok := lookup(h.template, t.First); ok && t.Born < 0 {
		f.Initial = new(h.masked(t.First, value, 0))
		if t.First != t.Last {
			f.From = t.First
		}
	}
	var left any // The value after the last write.
	for i, place := range t.Touches() {
		c, ok := h.write(place, i)
		if !ok {
			continue
		}
		if len(f.Writes) == 0 {
			left = c.After
		}
		w := h.written(i, c)
		w.Shadowed = h.hidden[i] || len(f.Writes) > 0
		f.Writes = append(f.Writes, w)
	}
	slices.Reverse(f.Writes)
	if value, ok := lookup(h.object, t.Last); ok && t.Gone == len(h.changes) {
		f.Final = new(h.masked(t.Last, value, len(h.changes)))
		f.Inside = len(f.Writes) > 0 && !tree.Equal(left, value)
	}
	return f
}

// write returns the effect of the change with this index on the value at a place, as a change of that value. ok is
// false if the change has no effect on the value, or only on a part inside it.
func (h *history) write(place string, i int) (write tree.Change, ok bool) {
	c := &h.changes[i]
	if !tree.Covers(c.Path, place) {
		return tree.Change{}, false
	}
	inside := place[len(c.Path):]
	write = tree.Change{Path: place}
	var had, has bool
	if c.Op != tree.OpAdd {
		write.Before, had = lookup(c.Before, inside)
	}
	if c.Op != tree.OpRemove {
		write.After, has = lookup(c.After, inside)
	}
	switch {
	case had && has:
		write.Op = tree.OpReplace
	case had:
		write.Op = tree.OpRemove
	case has:
		write.Op = tree.OpAdd
	}
	return write, had || has
}

// written returns the Write for the effect of the change with this index on a value.
func (h *history) written(i int, write tree.Change) Write {
	c := &h.changes[i]
	write = h.maskedWrite(i, write)
	return Write{
		Change: i, Path: c.Path, Around: write.Path != c.Path, Element: c.Element,
		Op: write.Op, Before: write.Before, After: write.After, By: c.By, Refused: h.refuses(c),
	}
}

// refuses reports whether an API server rejects the value of a change.
func (h *history) refuses(c *tree.Change) bool {
	return slices.ContainsFunc(h.refused, func(w override.Warning) bool {
		return w.Author == *c.By && (tree.Covers(c.Path, w.Path) || tree.Covers(w.Path, c.Path))
	})
}

// lookup returns the value at a place.
func lookup(value any, place string) (any, bool) {
	p, err := tree.Parse(place)
	if err != nil {
		return nil, false
	}
	v, err := tree.Lookup(value, p)
	return v, err == nil
}
