package override

import (
	"maps"
	"slices"
	"strings"

	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/tree"
)

// mapAction is one item of the overriders annotations and labels.
type mapAction struct {
	operator corev1alpha1.Operator
	at       tree.Pointer // Of the map.
	entries  []entry      // By key.
}

type entry struct {
	key   string
	at    tree.Pointer
	value any // A string.
	size  int // Of both, in bytes.
}

// compileStringMap compiles an item of annotations or labels: the overrider has
// the name of what it changes.
func compileStringMap(by *tree.Author, o *corev1alpha1.StringMapOverrider, path *field.Path) (action, field.ErrorList) {
	a := &mapAction{operator: o.Operator, at: tree.MustParse("/metadata").Member(by.Overrider)}
	var errs field.ErrorList
	switch o.Operator {
	case "":
		a.operator = corev1alpha1.OpOverwrite
	case corev1alpha1.OpOverwrite, corev1alpha1.OpDelete:
	case corev1alpha1.OpAddIfAbsent:
		if len(o.Value) == 0 {
			errs = append(errs, field.Required(path.Child("value"), "must not be empty with operator addIfAbsent"))
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), o.Operator, []string{"addIfAbsent", "overwrite", "delete"}))
	}
	for _, key := range slices.Sorted(maps.Keys(o.Value)) {
		e := entry{key: key, at: a.at.Member(key), value: o.Value[key], size: len(key) + len(o.Value[key])}
		at := path.Child("value").Key(key)
		if err := protected(e.at); err != nil {
			errs = append(errs, forbidden(at, err))
		}
		if a.operator != corev1alpha1.OpDelete {
			errs = append(errs, checkEntry(by.Overrider, key, o.Value[key], at)...)
		}
		a.entries = append(a.entries, e)
	}
	return a, errs
}

// checkEntry checks a label or annotation as API servers do.
func checkEntry(member, key, value string, path *field.Path) field.ErrorList {
	if member == "annotations" {
		return metav1validation.ValidateLabelName(strings.ToLower(key), path)
	}
	errs := metav1validation.ValidateLabelName(key, path)
	for _, msg := range validation.IsValidLabelValue(value) {
		errs = append(errs, field.Invalid(path, value, msg))
	}
	return errs
}

func (a *mapAction) apply(r *rendering, by *tree.Author) error {
	v, err := r.doc.Lookup(a.at)
	if err != nil {
		return err
	}
	present, ok := v.(map[string]any)
	if !ok {
		return wrongType(a.at.String(), "an object", v)
	}
	r.work += workOfEntry * len(a.entries)
	if a.operator == corev1alpha1.OpAddIfAbsent {
		for i := range a.entries { // All before any is added.
			if _, there := present[a.entries[i].key]; there {
				return failAt(a.entries[i].at.String(), ErrPresent)
			}
		}
	}
	for i := range a.entries {
		e := &a.entries[i]
		if err := a.applyEntry(r, by, e, present); err != nil {
			return err
		}
	}
	return nil
}

// applyEntry applies one entry. Present may show what the ones before it did.
func (a *mapAction) applyEntry(r *rendering, by *tree.Author, e *entry, present map[string]any) error {
	_, there := present[e.key]
	var c tree.Change
	var err error
	switch {
	case !there && a.operator == corev1alpha1.OpDelete:
		return nil
	case !there && a.operator == corev1alpha1.OpOverwrite:
		r.warnf(by, e.at.String(), "%s does not exist, and overwrite adds nothing", e.at)
		return nil
	case a.operator == corev1alpha1.OpDelete:
		c, err = r.doc.Remove(e.at)
	default:
		c, err = r.doc.Set(e.at, e.value)
		r.written += e.size
	}
	if err != nil {
		return err
	}
	r.note(c, by)
	return nil
}
