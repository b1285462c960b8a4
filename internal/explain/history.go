package explain

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/internal/render"
	"refract.dev/override"
	"refract.dev/tree"
)

// history is how one variant came to be.
type history struct {
	kind     schema.GroupKind
	template map[string]any // What was there before the first change.
	object   map[string]any // What there is in the end, without what is left empty.
	changes  []tree.Change
	hidden   []bool // By change: whether a later one hides it.
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

// touched returns the threads that changes wrote to, in the order of the first of
// these.
func (h *history) touched() []thread {
	var all []thread
	seen := map[threadKey]bool{}
	for i := range h.changes {
		t := traceChange(h.changes, i)
		if !seen[t.key()] {
			seen[t.key()] = true
			all = append(all, t)
		}
	}
	return all
}

// fields returns the fields that were changed.
func (h *history) fields() []Field {
	fields := []Field{}
	for _, t := range h.touched() {
		fields = append(fields, h.field(&t))
	}
	return fields
}

// fieldsAt returns what there is to say of a place: the chain of the value that
// is there in the end, unless only parts of it were changed, and the chains of
// those; and the chains of elements that were there when they were removed, or
// on the hub. It is never empty: of a place where there never was anything it
// says so.
func (h *history) fieldsAt(place string) []Field {
	own := trace(h.changes, place, len(h.changes))
	var others []Field
	parts := 0 // Those of others that are inside what is at the place.
	for _, t := range h.touched() {
		if t.key() == own.key() || !h.meant(&t, place) {
			continue
		}
		others = append(others, h.field(&t))
		if t.gone == len(h.changes) {
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
		moved := trace(h.changes, place, 0)
		return []Field{h.field(&moved)}
	}
	return []Field{field}
}

// meant reports whether somebody who asks about a place means the thread too.
func (h *history) meant(t *thread, place string) bool {
	if tree.Covers(place, t.last()) {
		return true
	}
	return t.gone < len(h.changes) && t.born < 0 && tree.Covers(place, t.first())
}

// field returns the chain of values of a thread.
func (h *history) field(t *thread) Field {
	f := Field{Path: t.last(), Writes: []Write{}}
	if value, ok := lookup(h.template, t.first()); ok && t.born < 0 {
		f.Initial = h.masked(t.first(), value)
		if t.first() != t.last() {
			f.From = t.first()
		}
	}
	var left any // By the last write.
	for i := max(t.born, 0); i <= t.gone && i < len(h.changes); i++ {
		if c, ok := h.write(t, i); ok {
			left = c.After
			f.Writes = append(f.Writes, h.written(i, render.Mask(h.kind, c)))
		}
	}
	for i := range f.Writes {
		w := &f.Writes[i]
		w.Shadowed = h.hidden[w.Change] || i < len(f.Writes)-1
	}
	if value, ok := lookup(h.object, t.last()); ok && t.gone == len(h.changes) {
		f.Final = h.masked(t.last(), value)
		f.Inside = len(f.Writes) > 0 && !tree.Equal(left, value)
	}
	return f
}

// write returns what the change with this index did to the value of a thread, as
// a change of that value; ok is false if nothing.
func (h *history) write(t *thread, i int) (write tree.Change, ok bool) {
	c := &h.changes[i]
	place := t.at(i)
	if !tree.Covers(c.Path, place) || (moves(c) && i != t.born && i != t.gone) {
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

// written returns the write that the change with this index was to a value.
func (h *history) written(i int, write tree.Change) Write {
	c := &h.changes[i]
	return Write{
		Change: i, Path: c.Path, Around: write.Path != c.Path, Element: c.Element,
		Op: write.Op, Before: write.Before, After: write.After, By: c.By,
	}
}

// masked returns the value at a place with stand-ins for what a Secret says.
func (h *history) masked(place string, value any) any {
	return render.Mask(h.kind, tree.Change{Path: place, Op: tree.OpAdd, After: value}).After
}

// lookup returns what is at a place of value.
func lookup(value any, place string) (any, bool) {
	p, err := tree.Parse(place)
	if err != nil {
		return nil, false
	}
	v, err := tree.Lookup(value, p)
	return v, err == nil
}
