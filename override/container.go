package override

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/tree"
)

// listAction is one item of the overriders command, args and envs: it makes of
// a list of one container another.
type listAction struct {
	container string
	member    string // Of the container.
	// edit returns the list after the change and leaves the one before as it is.
	edit func(before []any) ([]any, error)
}

// apply looks for the container among the init containers first.
func (a *listAction) apply(r *rendering, by *tree.Author) error {
	if r.pods == nil {
		return noPodTemplate(r.kind, "")
	}
	for _, list := range r.pods.Lists() {
		containers, _ := r.lookup(list).([]any)
		for i, c := range containers {
			container, _ := c.(map[string]any)
			if name, ok := container["name"].(string); ok && name == a.container {
				return a.applyTo(r, by, container, list.At(i).Member(a.member))
			}
		}
	}
	r.warn(by, r.pods.Containers.String(), "no container or init container is named %q", a.container)
	return nil
}

func (a *listAction) applyTo(r *rendering, by *tree.Author, container map[string]any, at tree.Pointer) error {
	v, there := container[a.member]
	before, ok := v.([]any)
	if !ok && v != nil {
		return failAt(at.String(), fmt.Errorf("%w: want a list, got %s", tree.ErrType, tree.TypeName(v)))
	}
	after, err := a.edit(before)
	if err != nil {
		return failAt(at.String(), err)
	}
	if len(after) == 0 {
		r.emptied = true
	}
	if !there && len(after) == 0 {
		return nil
	}
	c, err := r.doc.Set(at, after)
	if err != nil {
		return err
	}
	r.record(c, by)
	return nil
}

var entrypointMembers = map[string]string{"command": "command", "args": "args"}

func compileEntrypoint(name string, o *corev1alpha1.EntrypointOverrider, path *field.Path) (action, field.ErrorList) {
	var errs field.ErrorList
	if o.ContainerName == "" {
		errs = append(errs, field.Required(path.Child("containerName"), "name the container"))
	}
	value := make([]any, len(o.Value))
	for i, s := range o.Value {
		value[i] = s
	}
	a := &listAction{container: o.ContainerName, member: entrypointMembers[name]}
	switch o.Operator {
	case "", corev1alpha1.OpOverwrite:
		a.edit = func([]any) ([]any, error) { return value, nil }
	case corev1alpha1.OpAppend:
		if len(value) == 0 {
			errs = append(errs, field.Required(path.Child("value"), "must not be empty with operator append"))
		}
		a.edit = func(before []any) ([]any, error) { return slices.Concat(before, value), nil }
	case corev1alpha1.OpDelete:
		a.edit = func(before []any) ([]any, error) {
			return keep(before, func(item any) bool { return !containsString(value, item) }), nil
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), o.Operator, []string{"append", "overwrite", "delete"}))
	}
	return a, errs
}

func compileEnvs(_ string, o *corev1alpha1.EnvOverrider, path *field.Path) (action, field.ErrorList) {
	var errs field.ErrorList
	if o.ContainerName == "" {
		errs = append(errs, field.Required(path.Child("containerName"), "name the container"))
	}
	value := make([]any, len(o.Value))
	byName := make(map[string]any, len(o.Value))
	for i := range o.Value {
		v, err := plainEnv(&o.Value[i])
		if err != nil {
			errs = append(errs, field.Invalid(path.Child("value").Index(i), o.Value[i].Name, err.Error()))
		}
		if o.Value[i].Name == "" {
			errs = append(errs, field.Required(path.Child("value").Index(i).Child("name"), "name the variable"))
		}
		if _, twice := byName[o.Value[i].Name]; twice {
			errs = append(errs, field.Duplicate(path.Child("value").Index(i).Child("name"), o.Value[i].Name))
		}
		value[i], byName[o.Value[i].Name] = v, v
	}
	a := &listAction{container: o.ContainerName, member: "env"}
	switch o.Operator {
	case "", corev1alpha1.OpOverwrite:
		a.edit = func(before []any) ([]any, error) { return overwriteEnvs(before, byName), nil }
	case corev1alpha1.OpAddIfAbsent:
		if len(value) == 0 {
			errs = append(errs, field.Required(path.Child("value"), "must not be empty with operator addIfAbsent"))
		}
		a.edit = func(before []any) ([]any, error) { return addEnvs(before, value, byName) }
	case corev1alpha1.OpDelete:
		a.edit = func(before []any) ([]any, error) {
			return keep(before, func(item any) bool { _, named := byName[envName(item)]; return !named }), nil
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), o.Operator, []string{"addIfAbsent", "overwrite", "delete"}))
	}
	return a, errs
}

func overwriteEnvs(before []any, byName map[string]any) []any {
	after := slices.Clone(before)
	for i, item := range after {
		if v, ok := byName[envName(item)]; ok {
			after[i] = v
		}
	}
	return after
}

func addEnvs(before, value []any, byName map[string]any) ([]any, error) {
	for _, item := range before {
		if _, ok := byName[envName(item)]; ok {
			return nil, fmt.Errorf("has the variable %q, which %w", envName(item), ErrPresent)
		}
	}
	return slices.Concat(before, value), nil
}

func envName(item any) string {
	m, _ := item.(map[string]any)
	name, _ := m["name"].(string)
	return name
}

// plainEnv returns the variable as it stands in an object.
func plainEnv(e *corev1.EnvVar) (map[string]any, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(e)
	if err != nil {
		return nil, errors.New("is not a variable of a container")
	}
	return m, nil
}

func keep(items []any, wanted func(any) bool) []any {
	kept := make([]any, 0, len(items))
	for _, item := range items {
		if wanted(item) {
			kept = append(kept, item)
		}
	}
	return kept
}

func containsString(values []any, item any) bool {
	s, ok := item.(string)
	return ok && slices.ContainsFunc(values, func(v any) bool { return v == s })
}
