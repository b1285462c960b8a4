package override

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/podtemplate"
	"refract.dev/tree"
)

// entrypoints are what the overriders change.
var entrypoints = map[string]podtemplate.Part{"command": podtemplate.Command, "args": podtemplate.Args}

// compileEntrypoint compiles an item of command or args.
func compileEntrypoint(by *tree.Author, o *corev1alpha1.EntrypointOverrider, path *field.Path) (action, field.ErrorList) {
	errs := requireContainerName(o.ContainerName, path)
	value, unwanted := make([]any, len(o.Value)), make(map[any]bool, len(o.Value))
	for i, s := range o.Value {
		value[i], unwanted[s] = s, true
	}
	a := &listAction{container: o.ContainerName, part: entrypoints[by.Overrider], size: tree.Size(value)}
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

// without returns the items that are not unwanted, in a new list.
func without(items []any, unwanted func(any) bool) []any {
	kept := make([]any, 0, len(items))
	for _, item := range items {
		if !unwanted(item) {
			kept = append(kept, item)
		}
	}
	return kept
}
