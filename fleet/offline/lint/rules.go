package lint

import (
	"reflect"
	"slices"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// checkEmpty finds policies, rules and overriders without content.
func checkEmpty(overriding []*policy, out *report) {
	for _, p := range overriding {
		if len(p.rules) == 0 {
			out.add(p.finding(EmptyPolicy, "spec", "has no rules, so it changes nothing"))
		}
		for _, r := range p.rules {
			if len(r.items) == 0 && !r.reported {
				r.reported = true
				out.add(p.finding(EmptyRule, r.field, "has no overriders, so it changes nothing"))
			}
			for _, it := range r.items {
				if what := it.empty(); what != "" && !r.reported {
					it.reported = true
					out.add(p.finding(EmptyOverrider, it.field+"."+what, "is empty, so nothing is changed"))
				}
			}
		}
	}
}

// empty returns the field of the item with the empty list; empty text if the item has content.
func (it *item) empty() string {
	switch spec := it.spec.(type) {
	case *corev1alpha1.ImageOverrider:
		if len(spec.Operations) == 0 {
			return "operations"
		}
	case *corev1alpha1.EntrypointOverrider:
		if len(spec.Value) == 0 && spec.Operator == corev1alpha1.OpDelete {
			return "value"
		}
	case *corev1alpha1.EnvOverrider:
		if len(spec.Value) == 0 {
			return "value"
		}
	case *corev1alpha1.StringMapOverrider:
		if len(spec.Value) == 0 {
			return "value"
		}
	}
	return ""
}

// checkDuplicates finds rules that are equal to an earlier one.
func checkDuplicates(overriding []*policy, out *report) {
	for _, p := range overriding {
		for _, r := range p.rules {
			if r.reported || slices.ContainsFunc(r.items, func(it *item) bool { return it.reported }) {
				continue
			}
			if other := r.duplicate(); other != nil {
				r.reported = true
				out.add(p.finding(DuplicateRule, r.field, "is the same as rule %d", other.index))
			}
		}
	}
	for it := range itemsOf(overriding) {
		it.reportContainerNames(out)
	}
}

// duplicate returns the first earlier rule of the policy that is equal; nil without one.
func (r *rule) duplicate() *rule {
	for _, other := range r.policy.rules[:r.index] {
		if reflect.DeepEqual(other.spec, r.spec) {
			return other
		}
	}
	return nil
}

// reportContainerNames reports containers that an image overrider names twice.
func (it *item) reportContainerNames(out *report) {
	spec, ok := it.spec.(*corev1alpha1.ImageOverrider)
	if !ok {
		return
	}
	for i, name := range spec.ContainerNames {
		if slices.Contains(spec.ContainerNames[:i], name) {
			out.add(it.rule.policy.finding(DuplicateName, it.containerField(i), "container %q is in the list twice", name))
		}
	}
}
