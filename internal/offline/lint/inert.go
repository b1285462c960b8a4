package lint

import (
	"fmt"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// checkIgnored looks for what items of overriders say in vain.
func checkIgnored(overriding []*policy, out *report) {
	for it := range itemsOf(overriding) {
		if field, fact, hint := it.ignored(); field != "" {
			out.add(it.rule.policy.finding(InertField, it.field+"."+field, "%s", fact).hint("%s", hint))
		}
	}
}

// ignored returns the first field of the item that is not acted on, why, and what
// to do; nothing if there is none.
func (it *item) ignored() (field, fact, hint string) {
	switch spec := it.spec.(type) {
	case *corev1alpha1.JSONPatchOverrider:
		if spec.Operator == corev1alpha1.OpRemove && spec.Value != nil {
			return "value", "is not acted on: operator remove takes no value", "to set the value, use operator replace; else leave it out"
		}
	case *corev1alpha1.ImageOverrider:
		if spec.ImagePath != "" && len(spec.ContainerNames) > 0 {
			return "containerNames", "is not acted on: imagePath says where the image is", "leave one of the two out"
		}
		for i, op := range spec.Operations {
			if op.Operator == corev1alpha1.OpDelete && op.Value != "" {
				return fmt.Sprintf("operations[%d].value", i), "is not acted on: operator delete takes no value",
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
		return fmt.Sprintf("value[%d].%s", i, key), "is not acted on: operator delete goes by the name alone", "leave all but the names out"
	}
	return "", "", ""
}
