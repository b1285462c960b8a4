package lint

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/render"
	"refract.dev/tree"
)

// checkShadows finds rules and items without effect: later changes of the same policy hide all of their changes, and
// the results are the same without them.
func checkShadows(overriding []*policy, ended func() bool, out *report) {
	for _, p := range overriding {
		for _, r := range p.rules {
			if r.reported || r.failed {
				continue
			}
			hidden, all := r.hidden()
			if len(hidden) > 0 && all && r.needless(nil, ended) {
				r.reported = true
				finding := p.finding(ShadowedRule, r.field, "has no effect: all its changes are overwritten by %s", hidersOf(hidden, r))
				out.add(finding.on(affected(r.runs)))
				continue
			}
			for _, it := range hidden {
				if len(r.items) > 1 && r.needless(it, ended) {
					it.reported = true
					finding := p.finding(ShadowedOverrider, it.field, "has no effect: its changes are overwritten by %s", hidersOf([]*item{it}, nil))
					out.add(finding.on(affected(r.runs)))
				}
			}
		}
	}
}

// hidden returns the items of the rule that have no effect: later changes hide all of their changes, and some of the
// later changes are by the same policy. The result all reports whether every other item of the rule changes nothing.
func (r *rule) hidden() (items []*item, all bool) {
	all = true
	for _, it := range r.items {
		own := slices.ContainsFunc(slices.Collect(maps.Keys(it.hiders)), func(a tree.Author) bool { return a.Policy == it.author.Policy })
		switch {
		case it.changed == 0:
		case it.hidden == it.changed && own && !it.reported:
			items = append(items, it)
		default:
			all = false
		}
	}
	return items, all
}

// hidersOf names the rules that hide the items, without the rule in the argument except. If that is nil, it names
// single items instead of rules, as far as they are in the same policy.
func hidersOf(items []*item, except *rule) string {
	names := map[string]bool{}
	for _, it := range items {
		for by := range it.hiders {
			switch {
			case except == nil && by.Policy == it.author.Policy:
				names[fmt.Sprintf("rule %d %s[%d]", by.Rule, by.Overrider, by.Item)] = true
			case by.Policy != it.author.Policy:
				names[fmt.Sprintf("%s rule %d", withoutGeneration(by.Policy), by.Rule)] = true
			case by.Rule != except.index:
				names[fmt.Sprintf("rule %d", by.Rule)] = true
			}
		}
	}
	return strings.Join(slices.Sorted(maps.Keys(names)), " and ")
}

// needless reports whether all objects would be the same on all clusters without the rule, or without one of its items.
// It compiles the policy and renders each object for each cluster once more. It returns false after ended returns true.
func (r *rule) needless(only *item, ended func() bool) bool {
	if ended() {
		return false
	}
	without := r.without(only)
	for _, at := range r.runs {
		if ended() {
			return false
		}
		policies := slices.Clone(at.outcome.Policies)
		policies[slices.Index(policies, r.policy.compiled)] = without
		v := at.outcome.Apply(at.variant.Clusters[0], policies...)
		if v.Err != nil || at.variant.Err != nil || !tree.Equal(v.Object.Object, at.variant.Object.Object) {
			return false
		}
	}
	return true
}

// pair is an item of a ClusterOverridePolicy and an item of an OverridePolicy that overrules it.
type pair struct{ first, second *item }

// checkBoth finds fields with a value from each of an object's two override policies.
func checkBoth(outcomes []render.Outcome, items map[tree.Author]*item, ended func() bool, out *report) {
	paths := map[pair][]string{}
	runs := map[pair][]run{}
	var order []pair
	for i := range outcomes {
		o := &outcomes[i]
		if len(o.Policies) < 2 || ended() {
			continue
		}
		for j := range o.Variants {
			at := run{outcome: o, variant: &o.Variants[j]}
			for both, path := range pairsOf(at.variant.Changes, items) {
				if paths[both] == nil {
					order = append(order, both)
				}
				paths[both] = union(paths[both], []string{path})
				runs[both] = append(runs[both], at)
			}
		}
	}
	for _, both := range order {
		first, second := both.first, both.second
		if first.reported || first.rule.reported || second.reported || second.rule.reported {
			continue
		}
		finding := second.rule.policy.finding(BothPoliciesSetField, second.field, "sets %s, which %s %s also sets: the later one wins",
			paths[both][0], first.rule.policy.ref, first)
		finding.Path = paths[both][0]
		out.add(finding.on(affected(runs[both])))
	}
}

// mostHidden is the maximum number of examined pairs of changes of one variant. If policies repeatedly change the same
// places, there are too many pairs, all with the same result.
const mostHidden = 1_000_000

// pairsOf iterates over pairs of items of different policies in which the second item overrules the first. Each pair
// comes with the place of the second item's change.
func pairsOf(changes []tree.Change, items map[tree.Author]*item) func(yield func(pair, string) bool) {
	return func(yield func(pair, string) bool) {
		looked := 0
		for i := range changes {
			for j := range tree.Hidden(changes, i) {
				if looked++; looked > mostHidden {
					return
				}
				first, second := items[*changes[j].By], items[*changes[i].By]
				if first == nil || second == nil || first.rule.policy == second.rule.policy || !second.overrules(first) {
					continue
				}
				if !yield(pair{first, second}, changes[i].Path) {
					return
				}
			}
		}
	}
}

// overrules reports whether the item replaces a value that an earlier item has set, instead of building on the value.
func (it *item) overrules(earlier *item) bool {
	switch spec := it.spec.(type) {
	case *corev1alpha1.ImageOverrider:
		before, ok := earlier.spec.(*corev1alpha1.ImageOverrider)
		return ok && slices.ContainsFunc(spec.Operations, func(op corev1alpha1.ImageOperation) bool {
			return slices.ContainsFunc(before.Operations, func(b corev1alpha1.ImageOperation) bool { return b.ImageComponent == op.ImageComponent })
		})
	case *corev1alpha1.EntrypointOverrider:
		return spec.Operator == "" || spec.Operator == corev1alpha1.OpOverwrite
	case *corev1alpha1.EnvOverrider:
		before, ok := earlier.spec.(*corev1alpha1.EnvOverrider)
		if !ok {
			return false
		}
		for i := range spec.Value {
			for j := range before.Value {
				if spec.Value[i].Name == before.Value[j].Name {
					return true
				}
			}
		}
		return false
	default:
		return true
	}
}
