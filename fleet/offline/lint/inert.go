package lint

import (
	"fmt"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// checkIgnored finds fields of items that have no effect.
func checkIgnored(overriding []*policy, out *report) {
	for it := range itemsOf(overriding) {
		if field, fact, hint := it.ignored(); field != "" {
			out.add(it.rule.policy.finding(InertField, it.field+"."+field, "%s", fact).hint("%s", hint))
		}
	}
}

// ignored returns the first field of the item without effect, the reason, and a hint; empty texts if all fields have an
// effect.
func (it *item) ignored() (field, fact, hint string) {
	switch spec := it.spec.(type) {
	case *corev1alpha1.JSONPatchOverrider:
		if spec.Operator == corev1alpha1.OpRemove && spec.Value != nil {
			return "value", "has no effect: operator remove uses no value", "to set the value, use operator replace; else leave it out"
		}
	case *corev1alpha1.ImageOverrider:
		if spec.ImagePath != "" && len(spec.ContainerNames) > 0 {
			return "containerNames", "has no effect: imagePath selects the image", "leave one of the two out"
		}
		for i, op := range spec.Operations {
			if op.Operator == corev1alpha1.OpDelete && op.Value != "" {
				return fmt.Sprintf("operations[%d].value", i), "has no effect: operator delete uses no value",
					"to set the value, use operator overwrite; else leave it out"
			}
		}
	case *corev1alpha1.EnvOverrider:
		return ignoredVariable(spec)
	}
	return "", "", ""
}

func ignoredVariable(spec *corev1alpha1.EnvOverrider) (field, fact, hint string) {
	if spec.Operator != corev1alpha1.OpDelete {
		return "", "", ""
	}
	for i := range spec.Value {
		var key string
		switch v := &spec.Value[i]; {
		case v.Value != "":
			key = "value"
		case v.ValueFrom != nil:
			key = "valueFrom"
		default:
			continue
		}
		return fmt.Sprintf("value[%d].%s", i, key), "has no effect: operator delete uses only the name", "leave out all but the names"
	}
	return "", "", ""
}
