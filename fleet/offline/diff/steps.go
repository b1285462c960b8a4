package diff

import (
	"maps"
	"slices"
	"strconv"

	"refract.dev/tree"
)

// step is one change on the way from one object to another. Its Path is the place at the moment of the change, when the
// earlier steps have been applied.
type step struct {
	tree.Change

	// was and is are the places of the value in the objects before and after. For an element that only one of the
	// objects has, the other place is that of the array.
	was, is string
}

// stepsBetween returns the steps that turn before into after, in order. Elements of arrays are matched by their keys.
// Neither object is modified.
func stepsBetween(before, after map[string]any) []step {
	var w way
	w.object("", "", before, after)
	return w.steps
}

type way struct{ steps []step }

func (w *way) add(c tree.Change, was, is string) {
	w.steps = append(w.steps, step{Change: c, was: was, is: is})
}

// value compares the values at a place, or an element of an array with the element that takes its place.
func (w *way) value(was, is string, before, after any, element bool) {
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			w.object(was, is, b, a)
			return
		}
	case []any:
		if a, ok := after.([]any); ok {
			w.array(was, is, b, a)
			return
		}
	}
	if !tree.Equal(before, after) {
		w.add(tree.Change{Path: is, Op: tree.OpReplace, Element: element, Before: before, After: after}, was, is)
	}
}

func (w *way) object(was, is string, before, after map[string]any) {
	keys := slices.Collect(maps.Keys(before))
	for key := range after {
		if _, ok := before[key]; !ok {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		b, had := before[key]
		a, has := after[key]
		inWas, inIs := was+"/"+tree.Escape(key), is+"/"+tree.Escape(key)
		switch {
		case !has:
			w.add(tree.Change{Path: inIs, Op: tree.OpRemove, Before: b}, inWas, inIs)
		case !had:
			w.add(tree.Change{Path: inIs, Op: tree.OpAdd, After: a}, inWas, inIs)
		default:
			w.value(inWas, inIs, b, a, false)
		}
	}
}

// array first removes elements from the end, so that the other indexes stay valid, and then inserts elements from the
// start. After that every element has its final index.
func (w *way) array(was, is string, before, after []any) {
	pairs := align(before, after)
	kept, come := make([]bool, len(before)), make([]bool, len(after))
	for _, p := range pairs {
		kept[p.before], come[p.after] = true, true
	}
	for i, b := range slices.Backward(before) {
		if !kept[i] {
			w.add(tree.Change{Path: at(is, i), Op: tree.OpRemove, Element: true, Before: b}, at(was, i), is)
		}
	}
	for i, a := range after {
		if !come[i] {
			w.add(tree.Change{Path: at(is, i), Op: tree.OpAdd, Element: true, After: a}, was, at(is, i))
		}
	}
	for _, p := range pairs {
		w.value(at(was, p.before), at(is, p.after), before[p.before], after[p.after], true)
	}
}

func at(array string, index int) string { return array + "/" + strconv.Itoa(index) }
