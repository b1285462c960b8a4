package lint

import (
	"slices"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/offline/schema"
	"refract.dev/fleet/offline/validation"
	"refract.dev/tree"
)

// checkValues reports objects with type errors, and policies that cause type errors.
func checkValues(outcomes []render.Outcome, types *types, items map[tree.Author]*item, out *report) {
	for _, finding := range types.invalid {
		out.add(finding)
	}
	v := &values{types: types, items: items, byKey: map[wrongKey]*wrongValue{}}
	for i := range outcomes {
		v.compare(&outcomes[i], out)
	}
	for _, w := range v.found {
		w.item.reported = true
		finding := w.item.rule.policy.finding(InvalidValue, w.field(), "%s: %s", w.mismatch.Path, w.mismatch.Message)
		finding.Path, finding.Hint = w.mismatch.Path, w.mismatch.Hint
		if hint := w.split(); hint != "" {
			finding.hint("%s", hint)
		}
		out.add(finding.on(affected(w.runs)))
	}
}

// values checks objects against their types.
type values struct {
	types *types
	items map[tree.Author]*item
	// found are the type errors that policies cause, in order.
	found []*wrongValue
	byKey map[wrongKey]*wrongValue
}

type wrongKey struct {
	item    *item
	message string
}

type wrongValue struct {
	item     *item
	change   *tree.Change
	mismatch schema.Mismatch
	runs     []run
}

// compare reports the type errors of the object on the hub, and records those that policies cause.
func (v *values) compare(o *render.Outcome, out *report) {
	before := v.types.wrong[o]
	template := run{outcome: o}.template()
	s := subjectOf(o.Object)
	for _, m := range before {
		finding := s.finding(InvalidObject, manifest.FieldOf(o.Object.Content.Object, m.Path), "%s", m.Message)
		finding.Path, finding.Hint = m.Path, m.Hint
		out.add(finding)
	}
	for i := range o.Variants {
		at := run{outcome: o, variant: &o.Variants[i]}
		if at.variant.Err != nil || len(at.variant.Changes) == 0 {
			continue
		}
		for _, m := range v.types.Check(at.variant.Object.Object, template) {
			if !slices.Contains(before, m) {
				v.noteAt(at, m, m.Path) // A mistake that moved from another place has no change here.
			}
		}
		if v.types.misshapen(o) {
			continue
		}
		for _, m := range validation.Check(at.variant.Object.Object) {
			if !slices.ContainsFunc(before, func(b schema.Mismatch) bool { return b.Message == m.Message }) {
				v.noteAround(at, m)
			}
		}
	}
}

// noteAround is [values.noteAt] for errors that depend on several fields: without a change at the place, it uses the
// nearest place around it with a change.
func (v *values) noteAround(at run, m schema.Mismatch) {
	for path := m.Path; path != ""; path = around(path) {
		if v.noteAt(at, m, path) {
			return
		}
	}
}

// noteAt records a mismatch for the item with the last change at a path, around it or inside it, and reports whether
// there is such a change.
func (v *values) noteAt(at run, m schema.Mismatch, path string) bool {
	for i := len(at.variant.Changes) - 1; i >= 0; i-- {
		c := &at.variant.Changes[i]
		if !tree.Covers(c.Path, path) && !tree.Covers(path, c.Path) {
			continue
		}
		it := v.items[*c.By]
		if it == nil {
			return true
		}
		key := wrongKey{item: it, message: m.Message + "\x00" + lastKey(m.Path)}
		w := v.byKey[key]
		if w == nil {
			w = &wrongValue{item: it, change: c, mismatch: m}
			v.byKey[key] = w
			v.found = append(v.found, w)
		}
		w.runs = append(w.runs, at)
		return true
	}
	return false
}

// field returns the field of the item with the wrong value, as precisely as possible.
func (w *wrongValue) field() string {
	if _, ok := w.item.spec.(*corev1alpha1.JSONPatchOverrider); !ok {
		return w.item.field
	}
	inside, ok := strings.CutPrefix(w.mismatch.Path, w.change.Path)
	switch {
	case !ok || w.change.Op == tree.OpRemove:
		return w.item.field + ".path"
	case inside != "":
		value, _ := w.change.After.(map[string]any)
		if value == nil {
			return w.item.field + ".value" + manifest.FieldOf(w.change.After, inside)
		}
		return w.item.field + ".value." + manifest.FieldOf(value, inside)
	case w.missesField():
		return w.item.field + ".path"
	default:
		return w.item.field + ".value"
	}
}

// split returns a hint if the path is a field of some kinds only.
func (w *wrongValue) split() string {
	if !w.missesField() {
		return ""
	}
	failing := map[string]bool{}
	for i := range w.runs {
		failing[w.runs[i].outcome.ID.Kind] = true
	}
	unfit := map[string]bool{}
	for i := range w.item.failures {
		unfit[w.item.failures[i].outcome.ID.Kind] = true
	}
	return w.item.split(failing, unfit)
}

// missesField reports whether the place is wrong, and not its value.
func (w *wrongValue) missesField() bool { return w.mismatch.Message == schema.NoSuchField }
