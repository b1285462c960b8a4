package override

import (
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/tree"
)

// patchAction is one operation of the overrider jsonpatch.
type patchAction struct {
	operator corev1alpha1.Operator
	at       tree.Pointer
	version  bool // Whether at is the object's apiVersion, or inside it.
	clears   bool // Whether this takes all labels or annotations away.
	value    any  // Shared by all renderings; a Doc never writes to what it was given.
}

func compileJSONPatch(_ string, o *corev1alpha1.JSONPatchOverrider, path *field.Path) (action, field.ErrorList) {
	a := &patchAction{operator: o.Operator}
	var errs field.ErrorList
	switch o.Operator {
	case "":
		a.operator = corev1alpha1.OpReplace
	case corev1alpha1.OpAdd, corev1alpha1.OpRemove, corev1alpha1.OpReplace:
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), o.Operator, []string{"add", "remove", "replace"}))
	}
	at, err := tree.Parse(o.Path)
	switch {
	case err != nil:
		return nil, append(errs, field.Invalid(path.Child("path"), o.Path, err.Error()))
	case o.Path == "":
		return nil, append(errs, field.Required(path.Child("path"), "must begin with a slash"))
	}
	a.at = at
	a.version = at.Keys()[0] == "apiVersion"
	a.clears = a.operator == corev1alpha1.OpRemove && (o.Path == "/metadata/labels" || o.Path == "/metadata/annotations")
	if err := protected(at); err != nil {
		errs = append(errs, field.Forbidden(path.Child("path"), err.Error()))
	}
	if a.operator == corev1alpha1.OpRemove {
		return a, errs
	}
	if o.Value == nil || len(o.Value.Raw) == 0 || string(o.Value.Raw) == "null" {
		return nil, append(errs, field.Required(path.Child("value"), "must be there, and not null, with operator "+string(a.operator)))
	}
	if err := json.Unmarshal(o.Value.Raw, &a.value); err != nil {
		return nil, append(errs, field.Invalid(path.Child("value"), string(o.Value.Raw), err.Error()))
	}
	if err := fits(at.Keys(), a.value); err != nil {
		errs = append(errs, field.Invalid(path.Child("value"), string(o.Value.Raw), err.Error()))
	}
	return a, errs
}

// fits returns an error if the value is of the wrong type for the few places
// whose type is the same in every object.
func fits(keys []string, value any) error {
	if len(keys) < 2 || keys[0] != "metadata" || (keys[1] != "labels" && keys[1] != "annotations") {
		return nil
	}
	switch len(keys) {
	case 2:
		m, ok := value.(map[string]any)
		if !ok {
			return fmt.Errorf("must be an object whose values are strings, got %s", tree.TypeName(value))
		}
		for key, v := range m {
			if err := protectedKey("/metadata/"+keys[1]+"/"+tree.Escape(key), key); err != nil {
				return err
			}
			if _, ok := v.(string); !ok {
				return fmt.Errorf("must have strings as values, got %s at %q", tree.TypeName(v), key)
			}
		}
	case 3:
		if _, ok := value.(string); !ok {
			return fmt.Errorf("must be a string, got %s", tree.TypeName(value))
		}
	default:
		return fmt.Errorf("must not go inside a value of %s, which is a string", keys[1])
	}
	return nil
}

func (a *patchAction) apply(r *rendering, by *tree.Author) error {
	if a.version {
		if err := a.sameGroup(r); err != nil {
			return failAt(a.at.String(), err)
		}
	}
	if a.clears {
		return a.clear(r, by)
	}
	c, err := a.write(r, by)
	if err != nil {
		return err
	}
	r.record(c, by)
	return nil
}

func (a *patchAction) write(r *rendering, by *tree.Author) (tree.Change, error) {
	switch a.operator {
	case corev1alpha1.OpAdd:
		return r.doc.Add(a.at, a.value)
	case corev1alpha1.OpRemove:
		return r.doc.Remove(a.at)
	}
	c, err := r.doc.Set(a.at, a.value)
	if err == nil && c.Op == tree.OpAdd {
		r.warn(by, a.at.String(), "%s does not exist: replace has added it", a.at)
	}
	return c, err
}

// clear empties the labels or annotations: for the rules they always exist.
func (a *patchAction) clear(r *rendering, by *tree.Author) error {
	c, err := r.doc.Set(a.at, map[string]any{})
	if err != nil {
		return err
	}
	c.Op, c.After = tree.OpRemove, nil
	r.record(c, by)
	return nil
}

// sameGroup lets only another version of the object's group pass.
func (a *patchAction) sameGroup(r *rendering) error {
	after, ok := a.value.(string)
	if a.operator == corev1alpha1.OpRemove || !ok || a.at.String() != "/apiVersion" {
		return ErrProtected
	}
	before, _ := r.doc.Root()["apiVersion"].(string)
	was, err := schema.ParseGroupVersion(before)
	if err != nil {
		return err
	}
	is, err := schema.ParseGroupVersion(after)
	if err != nil {
		return err
	}
	if was.Group != is.Group || is.Version == "" {
		return fmt.Errorf("%w to another API group: %q → %q", ErrProtected, before, after)
	}
	return nil
}

// same reports whether a replacement changed nothing.
func same(a, b any) bool {
	switch x := a.(type) {
	case string:
		y, ok := b.(string)
		return ok && x == y
	case bool, int64, float64, nil:
		return a == b
	default:
		return reflect.DeepEqual(a, b)
	}
}
