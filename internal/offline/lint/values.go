package lint

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	k8sschema "k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
	"refract.dev/internal/offline/schema"
	"refract.dev/tree"
)

var definitionKind = k8sschema.GroupKind{Group: "apiextensions.k8s.io", Kind: "CustomResourceDefinition"}

// compare finds out what is wrong with the objects that name policies.
func (f *fleet) compare() {
	var definitions []*unstructured.Unstructured
	var subjects []*subject
	for i := range f.set.Objects {
		o := &f.set.Objects[i]
		if o.Content.GroupVersionKind().GroupKind() == definitionKind {
			definitions = append(definitions, o.Content)
			subjects = append(subjects, subjectOf(o))
		}
	}
	schemas, errs := schema.New(definitions)
	for _, err := range errs {
		f.definitions = append(f.definitions, subjects[err.Index].finding(InvalidObject, "spec", "%v", err.Err))
	}
	f.schemas = schemas
	for i := range f.outcomes {
		o := &f.outcomes[i]
		if !namesPolicy(o.Object.Content.GetLabels()) || f.ended() {
			continue
		}
		object := run{outcome: o}.template()
		if found := f.check(object); len(found) > 0 {
			f.wrong[o] = found
		}
		if more := refused(object); len(more) > 0 && !f.misshapen(o) {
			f.wrong[o] = slices.Concat(f.wrong[o], more)
		}
	}
}

func namesPolicy(labels map[string]string) bool {
	return slices.ContainsFunc(policyLabels, func(p policyLabel) bool {
		_, ok := labels[p.key]
		return ok
	})
}

// Facts that schemas state.
const (
	noSuchField = "there is no such field"
	isMissing   = "is missing"
)

// check compares an object with its type. What is missing is not told where it is
// there by another name.
func (f *fleet) check(object map[string]any) []schema.Mismatch {
	found := f.schemas.Check(object)
	return slices.DeleteFunc(slices.Clone(found), func(missing schema.Mismatch) bool {
		return missing.Message == isMissing && slices.ContainsFunc(found, func(m schema.Mismatch) bool {
			return m.Message == noSuchField && around(m.Path) == around(missing.Path) &&
				m.Hint == fmt.Sprintf("did you mean %s?", lastKey(missing.Path))
		})
	})
}

// around returns the path without its last segment.
func around(path string) string { return path[:max(strings.LastIndexByte(path, '/'), 0)] }

// misshapen reports whether an object is not what its type wants in a way that
// keeps rules from finding what they are about.
func (f *fleet) misshapen(o *render.Outcome) bool {
	return slices.ContainsFunc(f.wrong[o], func(m schema.Mismatch) bool {
		return m.Message == noSuchField || m.Message == isMissing || m.Path == "/kind" || m.Path == "/apiVersion"
	})
}

// checkValues reports objects that are not what their types want, and policies
// that make them so.
func checkValues(f *fleet, out *report) {
	for _, finding := range f.definitions {
		out.add(finding)
	}
	v := &values{fleet: f, report: out, at: map[wrongKey]*wrongValue{}}
	for i := range f.outcomes {
		v.compare(&f.outcomes[i])
	}
	v.flush()
}

// values compares objects with their types.
type values struct {
	*fleet
	*report

	// found are the mismatches that policies make, and where, in order.
	found []*wrongValue
	at    map[wrongKey]*wrongValue
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

func (v *values) compare(o *render.Outcome) {
	before := v.wrong[o]
	s := subjectOf(o.Object)
	for _, m := range before {
		finding := s.finding(InvalidObject, manifest.FieldOf(o.Object.Content.Object, m.Path), "%s", m.Message)
		finding.Path, finding.Hint = m.Path, m.Hint
		v.add(finding)
	}
	for i := range o.Variants {
		at := run{outcome: o, variant: &o.Variants[i]}
		if at.variant.Err != nil || len(at.variant.Changes) == 0 {
			continue
		}
		for _, m := range v.check(at.variant.Object.Object) {
			if !slices.Contains(before, m) {
				v.blame(at, m)
			}
		}
		if v.misshapen(o) {
			continue
		}
		for _, m := range refused(at.variant.Object.Object) {
			if !slices.ContainsFunc(before, func(b schema.Mismatch) bool { return b.Message == m.Message }) {
				v.blameAround(at, m)
			}
		}
	}
}

// blame finds the change that made a value wrong: the last one at the place,
// around it or inside it. What was wrong before and has only moved has none.
func (v *values) blame(at run, m schema.Mismatch) { v.blameAt(at, m, m.Path) }

// blameAround is blame for what is wrong together with something else: when
// nothing changed at the place, that has been changed, and stands near.
func (v *values) blameAround(at run, m schema.Mismatch) {
	for path := m.Path; path != ""; path = around(path) {
		if v.blameAt(at, m, path) {
			return
		}
	}
}

// blameAt blames the last change at a path, and reports whether there is one.
func (v *values) blameAt(at run, m schema.Mismatch, path string) bool {
	for i := len(at.variant.Changes) - 1; i >= 0; i-- {
		c := &at.variant.Changes[i]
		if !tree.Covers(c.Path, path) && !tree.Covers(path, c.Path) {
			continue
		}
		it := v.byAuthor[*c.By]
		if it == nil {
			return true
		}
		key := wrongKey{item: it, message: m.Message + "\x00" + lastKey(m.Path)}
		w := v.at[key]
		if w == nil {
			w = &wrongValue{item: it, change: c, mismatch: m}
			v.at[key] = w
			v.found = append(v.found, w)
		}
		w.runs = append(w.runs, at)
		return true
	}
	return false
}

func (v *values) flush() {
	for _, w := range v.found {
		w.item.reported = true
		finding := w.item.rule.policy.finding(InvalidValue, w.field(), "%s: %s", w.mismatch.Path, w.mismatch.Message)
		finding.Path, finding.Hint = w.mismatch.Path, w.mismatch.Hint
		v.add(finding.on(affected(w.runs)))
	}
}

// field returns the field of the item that has the wrong value, as far inside as
// it can be told.
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

// missesField reports whether it is the place that is wrong and not what is put
// there.
func (w *wrongValue) missesField() bool { return w.mismatch.Message == noSuchField }
