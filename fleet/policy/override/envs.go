package override

import (
	"fmt"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/podtemplate"
	"refract.dev/tree"
)

// variables are environment variables in the form that they have in an unstructured object.
type variables struct {
	list   []any
	byName map[string]any
}

var environments = newOverrider("envs", func(o *corev1alpha1.Overriders) *[]corev1alpha1.EnvOverrider { return &o.Envs },
	func(o *corev1alpha1.EnvOverrider) int { return len(o.Value) }, compileEnvs)

func compileEnvs(_ *tree.Author, o *corev1alpha1.EnvOverrider, path *field.Path) (action, field.ErrorList) {
	errs := requireContainerName(o.ContainerName, path)
	vars, varErrs := compileVariables(o, path.Child("value"))
	errs = append(errs, varErrs...)
	a := &listAction{container: o.ContainerName, part: podtemplate.Env, size: tree.Size(vars.list)}
	switch o.Operator {
	case "", corev1alpha1.OpOverwrite:
		a.edit = vars.overwrite
	case corev1alpha1.OpAddIfAbsent:
		if len(vars.list) == 0 {
			errs = append(errs, field.Required(path.Child("value"), "must not be empty with operator addIfAbsent"))
		}
		a.edit = vars.addIfAbsent
	case corev1alpha1.OpDelete:
		a.edit = vars.delete
	default:
		errs = append(errs, field.NotSupported(path.Child("operator"), o.Operator, []string{"addIfAbsent", "overwrite", "delete"}))
	}
	return a, errs
}

// compileVariables converts the variables. If several have the same name, the last one counts, except with operator
// addIfAbsent, which rejects duplicates.
func compileVariables(o *corev1alpha1.EnvOverrider, path *field.Path) (*variables, field.ErrorList) {
	var errs field.ErrorList
	vars := &variables{byName: make(map[string]any, len(o.Value))}
	for i := range o.Value {
		name := o.Value[i].Name
		at := path.Index(i)
		if name == "" {
			errs = append(errs, field.Required(at.Child("name"), "must name a variable"))
		}
		if _, twice := vars.byName[name]; twice && o.Operator == corev1alpha1.OpAddIfAbsent {
			errs = append(errs, field.Duplicate(at.Child("name"), name))
		}
		v, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&o.Value[i])
		if err != nil {
			errs = append(errs, field.Invalid(at, name, err.Error()))
		}
		vars.list = append(vars.list, v)
		vars.byName[name] = v
	}
	return vars, errs
}

func (v *variables) overwrite(before []any) ([]any, []string, error) {
	after := slices.Clone(before)
	found := make(map[string]bool, len(v.byName))
	for i, item := range after {
		name := variableName(item)
		if value, ok := v.byName[name]; ok {
			after[i] = value
			found[name] = true
		}
	}
	var absent []string
	for _, value := range v.list {
		if name := variableName(value); !found[name] {
			absent = append(absent, "variable "+strconv.Quote(name))
		}
	}
	return after, absent, nil
}

func (v *variables) addIfAbsent(before []any) ([]any, []string, error) {
	for _, item := range before {
		if name := variableName(item); v.byName[name] != nil {
			return nil, nil, fmt.Errorf("has the variable %q, which %w", name, ErrPresent)
		}
	}
	return slices.Concat(before, v.list), nil, nil
}

func (v *variables) delete(before []any) ([]any, []string, error) {
	return without(before, func(item any) bool { return v.byName[variableName(item)] != nil }), nil, nil
}

func variableName(item any) string {
	m, _ := item.(map[string]any)
	name, _ := m["name"].(string)
	return name
}
