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
	at       tree.Pointer // Place of the map.
	entries  []entry      // Sorted by key.
}

type entry struct {
	key   string
	at    tree.Pointer
	value any // A string.
	size  int // Size of key and value in bytes.
}

var (
	annotations = stringMap("annotations", "/metadata/annotations", checkAnnotation,
		func(o *corev1alpha1.Overriders) *[]corev1alpha1.StringMapOverrider { return &o.Annotations })
	labels = stringMap("labels", "/metadata/labels", checkLabel,
		func(o *corev1alpha1.Overriders) *[]corev1alpha1.StringMapOverrider { return &o.Labels })
)

// checkEntry checks an entry of a map by the rules of API servers.
type checkEntry func(key, value string, path *field.Path) field.ErrorList

// stringMap returns the overrider of a map of strings.
func stringMap(name, at string, check checkEntry, list func(*corev1alpha1.Overriders) *[]corev1alpha1.StringMapOverrider) Overrider {
	pointer := tree.MustParse(at)
	return newOverrider(name, list, func(o *corev1alpha1.StringMapOverrider) int { return len(o.Value) },
		func(_ *tree.Author, o *corev1alpha1.StringMapOverrider, path *field.Path) (action, field.ErrorList) {
			return compileStringMap(pointer, check, o, path)
		})
}

func compileStringMap(at tree.Pointer, check checkEntry, o *corev1alpha1.StringMapOverrider, path *field.Path) (action, field.ErrorList) {
	a := &mapAction{operator: o.Operator, at: at}
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
		place := path.Child("value").Key(key)
		if err := protected(e.at); err != nil {
			errs = append(errs, forbidden(place, err))
		}
		if a.operator != corev1alpha1.OpDelete {
			errs = append(errs, check(key, o.Value[key], place)...)
		}
		a.entries = append(a.entries, e)
	}
	return a, errs
}

func checkAnnotation(key, _ string, path *field.Path) field.ErrorList {
	return metav1validation.ValidateLabelName(strings.ToLower(key), path)
}

func checkLabel(key, value string, path *field.Path) field.ErrorList {
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
		for i := range a.entries { // Check all entries before the first is added.
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

// applyEntry applies one entry. The map present may already show the effect of previous entries.
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
