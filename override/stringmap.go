package override

import (
	"fmt"
	"slices"

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
}

func compileStringMap(name string, o *corev1alpha1.StringMapOverrider, path *field.Path) (action, field.ErrorList) {
	var errs field.ErrorList
	a := &mapAction{operator: o.Operator, at: tree.MustParse("/metadata").Member(name)}
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
	keys := make([]string, 0, len(o.Value))
	for key := range o.Value {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		at := path.Child("value").Key(key)
		errs = append(errs, metav1validation.ValidateLabelName(key, at)...)
		if name == "labels" && a.operator != corev1alpha1.OpDelete {
			for _, msg := range validation.IsValidLabelValue(o.Value[key]) {
				errs = append(errs, field.Invalid(at, o.Value[key], msg))
			}
		}
		e := entry{key: key, at: a.at.Member(key), value: o.Value[key]}
		if err := protected(e.at); err != nil {
			errs = append(errs, field.Forbidden(at, err.Error()))
		}
		a.entries = append(a.entries, e)
	}
	return a, errs
}

func (a *mapAction) apply(r *rendering, by *tree.Author) error {
	v, err := r.doc.Lookup(a.at)
	if err != nil {
		return err
	}
	present, ok := v.(map[string]any)
	if !ok {
		return failAt(a.at.String(), fmt.Errorf("%w: want an object, got %s", tree.ErrType, tree.TypeName(v)))
	}
	if a.operator == corev1alpha1.OpAddIfAbsent {
		for i := range a.entries {
			if _, there := present[a.entries[i].key]; there {
				return failAt(a.entries[i].at.String(), ErrPresent)
			}
		}
	}
	for i := range a.entries {
		e := &a.entries[i]
		_, there := present[e.key]
		var c tree.Change
		switch {
		case a.operator == corev1alpha1.OpDelete && !there:
			continue
		case a.operator == corev1alpha1.OpDelete:
			c, err = r.doc.Remove(e.at)
		case a.operator == corev1alpha1.OpOverwrite && !there:
			r.warn(by, e.at.String(), "%s does not exist, and overwrite adds nothing", e.at)
			continue
		default:
			c, err = r.doc.Set(e.at, e.value)
		}
		if err != nil {
			return err
		}
		r.record(c, by)
	}
	return nil
}
