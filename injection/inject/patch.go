package inject

import (
	"slices"
	"strconv"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/tree"
	"refract.dev/tree/raw"
)

// patch is a JSON patch under construction. The nil patch discards everything.
type patch struct {
	text    []byte
	explain bool
	changes []tree.Change
}

// newPatch returns an empty patch. It also lists its changes if explain is true.
func newPatch(explain bool) *patch {
	return &patch{text: append(make([]byte, 0, 8192), '['), explain: explain}
}

// usualOperation is the typical size of an operation in bytes, without its value.
const usualOperation = 64

// grow reserves space for this many operations, whose values have this many bytes together.
func (w *patch) grow(operations, values int) {
	if w != nil {
		w.text = slices.Grow(w.text, operations*usualOperation+values)
	}
}

// clear removes all operations and changes.
func (w *patch) clear() {
	if w != nil {
		w.text, w.changes = w.text[:1], nil
	}
}

// done returns the patch; nil if it is empty.
func (w *patch) done() []byte {
	if len(w.text) == 1 {
		return nil
	}
	return append(w.text, ']')
}

// begin writes an operation up to the start of its path.
func (w *patch) begin() {
	if len(w.text) > 1 {
		w.text = append(w.text, ',')
	}
	w.text = append(w.text, `{"op":"add","path":"`...)
}

// value completes the path of the operation and writes its value.
func (w *patch) value(value []byte) {
	w.text = append(w.text, `","value":`...)
	w.text = append(w.text, value...)
	w.text = append(w.text, '}')
}

// appendPlace appends the JSON pointer to a list. c is the container that has the list, or nil for a list of the pod.
func appendPlace(dst []byte, c *container, name string) []byte {
	dst = append(dst, "/spec/"...)
	if c != nil {
		dst = append(dst, c.part...)
		dst = append(dst, '/')
		dst = strconv.AppendInt(dst, int64(c.index), 10)
		dst = append(dst, '/')
	}
	return append(dst, name...)
}

// addItem adds an item of a policy to a list, at the index in the argument at. If the list does not exist, addItem
// creates it first. The caller must update l afterwards.
func (w *patch) addItem(p *Policy, a addition, c *container, l *list, at int, prepend bool) {
	if w == nil {
		return
	}
	it := &p.items(a.of)[a.index]
	if !l.there {
		w.begin()
		w.text = appendPlace(w.text, c, a.of.field())
		w.value([]byte("[]"))
		w.change(func() tree.Change {
			return tree.Change{Path: string(appendPlace(nil, c, a.of.field())), Op: tree.OpAdd, After: []any{}, By: p.author(a.of, a.index)}
		})
	}
	w.begin()
	w.text = appendPlace(w.text, c, a.of.field())
	if prepend {
		w.text = strconv.AppendInt(append(w.text, '/'), int64(at), 10)
	} else {
		w.text = append(w.text, "/-"...)
	}
	w.value(it.raw)
	w.change(func() tree.Change {
		place := string(strconv.AppendInt(append(appendPlace(nil, c, a.of.field()), '/'), int64(at), 10))
		return tree.Change{Path: place, Op: tree.OpAdd, Element: true, After: decode(it.raw), By: p.author(a.of, a.index)}
	})
}

// change records a change if the patch explains its changes. No change shadows another one ([tree.Change.Shadows]): an
// added item did not exist before, and each annotation is written only once.
func (w *patch) change(what func() tree.Change) {
	if w.explain {
		w.changes = append(w.changes, what())
	}
}

// author returns an item of the policy as the author of a change.
func (p *Policy) author(of itemKind, index int) *tree.Author {
	return &tree.Author{Policy: p.object, Rule: tree.NoRule, Overrider: of.field(), Item: index}
}

// addObject adds an empty object, as needed for the annotations of a policy.
func (w *patch) addObject(place string, by *Policy) {
	w.begin()
	w.text = append(w.text, place...)
	w.value([]byte("{}"))
	w.change(func() tree.Change {
		return tree.Change{Path: place, Op: tree.OpAdd, After: map[string]any{}, By: by.whole()}
	})
}

// whole returns the policy as the author of a change that belongs to no single item.
func (p *Policy) whole() *tree.Author { return &tree.Author{Policy: p.object, Rule: tree.NoRule} }

// annotate writes the annotations, each with its policy as the author. It omits annotations that already have the right
// value.
func (w *patch) annotate(h *head, annotations []claim) {
	for i := range annotations {
		a := &annotations[i]
		before, there := h.annotation(a.key)
		if there && before == a.value {
			continue
		}
		if !h.hasMetadata {
			w.addObject("/metadata", a.by)
			h.hasMetadata = true
		}
		if !h.hasAnnotated {
			w.addObject("/metadata/annotations", a.by)
			h.hasAnnotated = true
		}
		place := "/metadata/annotations/" + tree.Escape(a.key)
		w.begin()
		w.text = raw.AppendString(w.text[:len(w.text)-1], place) // AppendString writes the quotes itself.
		w.text = append(w.text, `,"value":`...)
		w.text = append(raw.AppendString(w.text, a.value), '}')
		w.change(func() tree.Change {
			c := tree.Change{Path: place, Op: tree.OpAdd, After: a.value, By: a.by.whole()}
			if there {
				c.Op, c.Before = tree.OpReplace, before
			}
			return c
		})
	}
}

// claim is an annotation that describes the injection of a pod.
type claim struct {
	key, value string
	by         *Policy
}

// serviceKey returns the key of the annotation that names the policy.
func serviceKey(p *Policy) string {
	if p.service == "" {
		return refractv1beta1.ServicePrefix + refractv1beta1.NoService
	}
	return refractv1beta1.ServicePrefix + p.service
}
