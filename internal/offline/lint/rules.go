package lint

import (
	"slices"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// checkEmpty looks for policies, rules and overriders that say nothing.
func checkEmpty(f *fleet, out *report) {
	for _, p := range f.overriding {
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

// empty returns the list of the item that would have to say something and does
// not; nothing if it does.
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

// checkDuplicates looks for rules that are the same as an earlier one.
func checkDuplicates(f *fleet, out *report) {
	for _, p := range f.overriding {
		for i, r := range p.rules {
			if r.reported || slices.ContainsFunc(r.items, func(it *item) bool { return it.reported }) {
				continue
			}
			same := slices.IndexFunc(p.rules[:i], func(other *rule) bool { return equalRules(other, r) })
			if same >= 0 {
				r.reported = true
				out.add(p.finding(DuplicateRule, r.field, "is the same as rule %d", same))
			}
		}
		f.checkContainerNames(out, p)
	}
}

// checkContainerNames looks for containers that an image overrider names twice.
func (f *fleet) checkContainerNames(out *report, p *policy) {
	for _, r := range p.rules {
		for _, it := range r.items {
			spec, ok := it.spec.(*corev1alpha1.ImageOverrider)
			if !ok {
				continue
			}
			for i, name := range spec.ContainerNames {
				if slices.Contains(spec.ContainerNames[:i], name) {
					out.add(p.finding(DuplicateName, it.containerField(i), "container %q stands in the list twice", name))
				}
			}
		}
	}
}
