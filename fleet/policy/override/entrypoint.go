package override

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/podtemplate"
	"refract.dev/tree"
)

var (
	commands = entrypoints("command", podtemplate.Command, func(o *corev1alpha1.Overriders) *[]corev1alpha1.EntrypointOverrider { return &o.Command })
	args     = entrypoints("args", podtemplate.Args, func(o *corev1alpha1.Overriders) *[]corev1alpha1.EntrypointOverrider { return &o.Args })
)

// entrypoints returns the overrider for the command or for the args of containers.
func entrypoints(name string, part podtemplate.Part, list func(*corev1alpha1.Overriders) *[]corev1alpha1.EntrypointOverrider) Overrider {
	return newOverrider(name, list, func(o *corev1alpha1.EntrypointOverrider) int { return len(o.Value) },
		func(_ *tree.Author, o *corev1alpha1.EntrypointOverrider, path *field.Path) (action, field.ErrorList) {
			return compileEntrypoint(part, o, path)
		})
}

func compileEntrypoint(part podtemplate.Part, o *corev1alpha1.EntrypointOverrider, path *field.Path) (action, field.ErrorList) {
	errs := requireContainerName(o.ContainerName, path)
	value, unwanted := make([]any, len(o.Value)), make(map[any]bool, len(o.Value))
	for i, s := range o.Value {
		value[i], unwanted[s] = s, true
	}
	a := &listAction{container: o.ContainerName, part: part, size: tree.Size(value)}
	switch o.Operator {
	case "", corev1alpha1.OpOverwrite:
		a.edit = func([]any) ([]any, []string, error) { return value, nil, nil }
	case corev1alpha1.OpAppend:
		if len(value) == 0 {
			errs = append(errs, field.Required(path.Child("value"), "must not be empty with operator append"))
		}
		a.edit = func(before []any) ([]any, []string, error) { return slices.Concat(before, value), nil, nil }
	case corev1alpha1.OpDelete:
		a.edit = func(before []any) ([]any, []string, error) {
			return without(before, func(item any) bool {
				s, ok := item.(string)
				return ok && unwanted[s]
			}), nil, nil
		}
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), o.Operator, []string{"append", "overwrite", "delete"}))
	}
	return a, errs
}

func requireContainerName(name string, path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path.Child("containerName"), "must name a container or init container")}
	}
	return nil
}

// without returns a new list without the unwanted items.
func without(items []any, unwanted func(any) bool) []any {
	kept := make([]any, 0, len(items))
	for _, item := range items {
		if !unwanted(item) {
			kept = append(kept, item)
		}
	}
	return kept
}
