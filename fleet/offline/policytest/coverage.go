package policytest

import (
	"errors"
	"fmt"
	"slices"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/override"
)

// Coverage counts the exercised rules of the override policies of the inputs.
type Coverage struct {
	// Rules is the number of rules.
	Rules int `json:"rules"`
	// Tested is the number of rules that apply to the object and a cluster of a case.
	Tested int `json:"tested"`
	// Used is the number of other rules that apply to an object of the inputs on one of its clusters.
	Used int `json:"used"`
	// Unexercised are the remaining rules, in the order of the inputs.
	Unexercised []Rule `json:"unexercised"`
}

// Rule is a rule of an override policy.
type Rule struct {
	Policy render.Policy `json:"policy"`
	// Index is the index of the rule.
	Index int `json:"rule"`
	// Place is the place of the rule.
	Place manifest.Place `json:"place"`
}

// String returns KIND NAMESPACE/NAME rule INDEX (FILE:LINE).
func (r *Rule) String() string {
	name := r.Policy.Name
	if r.Policy.Namespace != "" {
		name = r.Policy.Namespace + "/" + name
	}
	return fmt.Sprintf("%s %s rule %d (%s:%d)", r.Policy.Kind, name, r.Index, r.Place.File, r.Place.Line)
}

// Percent returns the percentage of tested rules, rounded down: 100 only if all rules are tested, or without rules.
func (c *Coverage) Percent() int {
	if c.Rules == 0 {
		return 100
	}
	return c.Tested * 100 / c.Rules
}

// coverage records the exercised rules. Policies that several inputs share count once.
type coverage struct {
	order []*policyCoverage
	of    map[*override.Policy]*policyCoverage
	at    map[policyPlace]*policyCoverage
}

type policyPlace struct {
	policy render.Policy
	place  manifest.Place
}

// policyCoverage has the rules of a policy that are not yet tested (untested) and not yet used (untapped), as ascending
// indexes.
type policyCoverage struct {
	policyPlace

	rules              int
	lineOf             func(field string) manifest.Place
	untested, untapped []int
}

func newCoverage() *coverage {
	return &coverage{of: map[*override.Policy]*policyCoverage{}, at: map[policyPlace]*policyCoverage{}}
}

// policies adds the policies of a set.
func (c *coverage) policies(set *manifest.Set) {
	for i := range set.ClusterOverridePolicies {
		p := &set.ClusterOverridePolicies[i]
		c.add(corev1alpha1.KindClusterOverridePolicy, p.Place, p.Compiled, p.At)
	}
	for i := range set.OverridePolicies {
		p := &set.OverridePolicies[i]
		c.add(corev1alpha1.KindOverridePolicy, p.Place, p.Compiled, p.At)
	}
}

func (c *coverage) add(kind string, place manifest.Place, p *override.Policy, at func(string) manifest.Place) {
	key := policyPlace{render.Policy{Kind: kind, Namespace: p.Ref.Namespace, Name: p.Ref.Name}, place}
	pc, ok := c.at[key]
	if !ok {
		pc = &policyCoverage{policyPlace: key, rules: p.Rules(), lineOf: at}
		for i := range pc.rules {
			pc.untested = append(pc.untested, i)
			pc.untapped = append(pc.untapped, i)
		}
		c.at[key] = pc
		c.order = append(c.order, pc)
	}
	c.of[p] = pc
}

// tested records the rules that apply to the object of a case.
func (c *coverage) tested(a *arrival) {
	if a.variant == nil {
		return
	}
	c.exercise(a.outcome, a.variant, func(pc *policyCoverage) *[]int { return &pc.untested })
}

// used records the rules that apply to the objects of the inputs.
func (c *coverage) used(e *render.Evaluation) {
	if e == nil {
		return
	}
	for i := range e.Outcomes {
		o := &e.Outcomes[i]
		for j := range o.Variants {
			c.exercise(o, &o.Variants[j], func(pc *policyCoverage) *[]int { return &pc.untapped })
		}
	}
}

// exercise removes the rules that apply to a variant from a list. Rules behind a failed one stay in the list.
func (c *coverage) exercise(o *render.Outcome, v *override.Variant, list func(*policyCoverage) *[]int) {
	cluster := &o.Clusters[v.Clusters[0]]
	var failed *override.RuleError
	errors.As(v.Err, &failed)
	for _, i := range v.Policies {
		p := o.Policies[i]
		rest := list(c.of[p])
		last := p.Rules()
		here := failed != nil && failed.Policy == p.Ref
		if here {
			last = failed.Rule
		}
		*rest = slices.DeleteFunc(*rest, func(rule int) bool { return rule <= last && p.Target(rule).Match(cluster) })
		if here {
			return
		}
	}
}

func (c *coverage) result() Coverage {
	out := Coverage{Unexercised: []Rule{}}
	for _, pc := range c.order {
		out.Rules += pc.rules
		out.Tested += pc.rules - len(pc.untested)
		for _, i := range pc.untested {
			if _, untapped := slices.BinarySearch(pc.untapped, i); untapped {
				out.Unexercised = append(out.Unexercised, Rule{Policy: pc.policy, Index: i, Place: pc.lineOf(fmt.Sprintf("spec.overrideRules[%d]", i))})
				continue
			}
			out.Used++
		}
	}
	return out
}
