package override

import (
	"fmt"
	"maps"
	"slices"
	"strings"

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
	value    any // Shared by all renderings, because a Doc never modifies given values.
	size     int // Size of the value in bytes.
	version  bool
	empty    any // For the operator remove: the value that replaces a member which must exist while rules are applied.
}

var jsonPatches = newOverrider("jsonpatch", func(o *corev1alpha1.Overriders) *[]corev1alpha1.JSONPatchOverrider { return &o.JSONPatch },
	func(o *corev1alpha1.JSONPatchOverrider) int {
		if o.Value == nil {
			return 0
		}
		return 1 + tree.Values(o.Value.Raw) // Invalid JSON is rejected later, when the item is compiled.
	}, compileJSONPatch)

func compileJSONPatch(by *tree.Author, o *corev1alpha1.JSONPatchOverrider, path *field.Path) (action, field.ErrorList) {
	a := &patchAction{operator: o.Operator}
	var errs field.ErrorList
	switch o.Operator {
	case "":
		a.operator = corev1alpha1.OpReplace
	case corev1alpha1.OpAdd, corev1alpha1.OpRemove, corev1alpha1.OpReplace:
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), o.Operator, []string{"add", "remove", "replace"}))
	}
	var pathErr, valueErr *field.Error
	if a.at, pathErr = parsePointer(o.Path, path.Child("path")); pathErr != nil {
		errs = append(errs, pathErr)
	}
	if a.operator != corev1alpha1.OpRemove {
		if a.value, valueErr = parseValue(o, path.Child("value")); valueErr != nil {
			errs = append(errs, valueErr)
		}
		a.size = tree.Size(a.value)
	}
	if len(errs) > 0 {
		return nil, errs
	}
	return a, a.compilePlace(by, path)
}

// parsePointer parses the pointer to a place that the policy writes.
func parsePointer(s string, path *field.Path) (tree.Pointer, *field.Error) {
	if s == "" {
		return tree.Pointer{}, field.Required(path, "must name a field, as /spec/replicas; the object as a whole cannot be replaced")
	}
	if !strings.HasPrefix(s, "/") {
		return tree.Pointer{}, field.Invalid(path, s, "must begin with a slash, as every JSON pointer does")
	}
	if rest, ok := strings.CutPrefix(s, "/stringData"); ok && (rest == "" || rest[0] == '/') {
		return tree.Pointer{}, field.Invalid(path, s, "an API server moves stringData of a Secret into data: name /data/KEY, with the value in base64")
	}
	p, err := tree.Parse(s)
	if err != nil {
		return tree.Pointer{}, field.Invalid(path, s, "must have ~0 for ~ and ~1 for / in a key, as every JSON pointer does")
	}
	if n := len(p.Keys()); n > MaxDepth {
		return tree.Pointer{}, forbidden(path, fmt.Errorf("%w: it has %d segments, and a path may have %d", ErrTooMuch, n, MaxDepth))
	}
	return p, nil
}

func parseValue(o *corev1alpha1.JSONPatchOverrider, path *field.Path) (any, *field.Error) {
	var value any
	if o.Value != nil && len(o.Value.Raw) > 0 {
		if err := json.Unmarshal(o.Value.Raw, &value); err != nil {
			return nil, field.Invalid(path, string(o.Value.Raw), err.Error())
		}
	}
	if value == nil {
		return nil, field.Required(path, "must not be missing or null; to remove a value, use operator remove")
	}
	return value, nil
}

// compilePlace checks the value for a place that has the same type in every object: apiVersion and parts of metadata.
func (a *patchAction) compilePlace(by *tree.Author, path *field.Path) field.ErrorList {
	if err := protected(a.at); err != nil {
		return field.ErrorList{forbidden(path.Child("path"), err)}
	}
	keys := a.at.Keys()
	switch {
	case keys[0] == "apiVersion":
		a.version = true
		if _, ok := a.value.(string); !ok || len(keys) > 1 {
			return field.ErrorList{forbidden(path.Child("path"), failAt(a.at.String(), errVersion))}
		}
	case keys[0] != "metadata":
	case keys[1] == "labels", keys[1] == "annotations":
		return a.compileStrings(keys[1:], path)
	case keys[1] == "finalizers":
		return a.compileFinalizers(by, keys[1:], path)
	}
	return nil
}

// compileStrings checks the value for labels, annotations, or a single entry of them.
func (a *patchAction) compileStrings(keys []string, path *field.Path) field.ErrorList {
	value := path.Child("value")
	switch {
	case len(keys) > 2:
		return field.ErrorList{field.Invalid(path.Child("path"), a.at.String(), "must not go inside a value of "+keys[0]+", which is a string")}
	case a.operator == corev1alpha1.OpRemove:
		if len(keys) == 1 {
			a.empty = map[string]any{}
		}
		return nil
	case len(keys) == 2:
		return requireString(a.value, value)
	}
	m, ok := a.value.(map[string]any)
	if !ok {
		return field.ErrorList{field.TypeInvalid(value, shown(a.value), "must be an object")}
	}
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(m)) {
		if err := protected(a.at.Member(key)); err != nil {
			errs = append(errs, forbidden(value.Key(key), err))
		}
		errs = append(errs, requireString(m[key], value.Key(key))...)
	}
	return errs
}

func requireString(v any, path *field.Path) field.ErrorList {
	if _, ok := v.(string); !ok {
		return field.ErrorList{field.TypeInvalid(path, shown(v), "must be a string; put it in quotes")}
	}
	return nil
}

// shown returns the form of v for error messages.
func shown(v any) any {
	switch v.(type) {
	case map[string]any, []any:
		return tree.TypeName(v)
	}
	return v
}

func (a *patchAction) compileFinalizers(by *tree.Author, keys []string, path *field.Path) field.ErrorList {
	wrong := func(v any) field.ErrorList {
		return field.ErrorList{field.TypeInvalid(path.Child("value"), shown(v), "finalizers are an array of strings")}
	}
	if a.operator == corev1alpha1.OpRemove && len(keys) == 1 {
		a.empty = noFinalizers // No change, unless a ClusterOverridePolicy has added finalizers. The function granted handles that case.
		return nil
	}
	if err := held(by, a.at.String()); err != nil {
		return field.ErrorList{forbidden(path.Child("path"), err)}
	}
	switch {
	case a.operator == corev1alpha1.OpRemove:
	case len(keys) == 1:
		list, ok := a.value.([]any)
		if !ok {
			return wrong(a.value)
		}
		for _, v := range list {
			if _, ok := v.(string); !ok {
				return wrong(v)
			}
		}
	default:
		if _, ok := a.value.(string); !ok {
			return wrong(a.value)
		}
	}
	return nil
}

func (a *patchAction) apply(r *rendering, by *tree.Author) error {
	if a.version {
		if err := a.sameGroup(r); err != nil {
			return failAt(a.at.String(), err)
		}
	}
	c, err := a.write(r, by)
	if err != nil {
		return err
	}
	r.written += a.size
	r.note(c, by)
	return nil
}

func (a *patchAction) write(r *rendering, by *tree.Author) (tree.Change, error) {
	switch {
	case a.operator == corev1alpha1.OpAdd:
		return r.doc.Add(a.at, a.value)
	case a.empty != nil:
		return r.doc.Set(a.at, a.empty)
	case a.operator == corev1alpha1.OpRemove:
		c, err := r.doc.Remove(a.at)
		if err != nil && r.wasLeft(a.at.String()) {
			return tree.Change{Path: a.at.String(), Op: tree.OpReplace}, nil // The member is already removed for all clusters.
		}
		return c, err
	}
	c, err := r.doc.Set(a.at, a.value)
	if err == nil && c.Op == tree.OpAdd && !r.wasLeft(c.Path) {
		r.warnf(by, c.Path, "%s does not exist: replace has added it", c.Path)
	}
	return c, err
}

var errVersion = fmt.Errorf("%w: only another version of the same group is allowed", ErrProtected)

// sameGroup returns an error unless the new apiVersion is another version of the object's group.
func (a *patchAction) sameGroup(r *rendering) error {
	version, _ := r.doc.Root()["apiVersion"].(string)
	before, err := schema.ParseGroupVersion(version)
	if err != nil {
		return fmt.Errorf("%w, and it is %q", errVersion, version)
	}
	after, err := schema.ParseGroupVersion(a.value.(string)) //nolint:forcetypeassert // Compiled so.
	if err != nil || before.Group != after.Group || after.Version == "" {
		return fmt.Errorf("%w, and %q is not in the group of %q", errVersion, a.value, version)
	}
	return nil
}
