package override

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/tree"
)

// Policy is a compiled policy: pointers and selectors are parsed, values are checked. A Policy is immutable, and many
// goroutines may use it.
type Policy struct {
	// Ref identifies the policy.
	Ref     tree.Policy
	rules   []rule
	targets match.Index // By index of the rule.
}

type rule struct {
	steps []step
	err   error // A *RuleError when the rule is invalid.
}

// step is one item of an overrider.
type step struct {
	author *tree.Author
	action action
}

// action is the compiled effect of one item of an overrider. Its errors name the place in the object.
type action interface {
	apply(r *rendering, by *tree.Author) error
}

// Compile compiles an OverridePolicy. See [CompileCluster].
func Compile(p *corev1alpha1.OverridePolicy) (*Policy, field.ErrorList) {
	return compile(refer(corev1alpha1.KindOverridePolicy, &p.ObjectMeta), &p.Spec)
}

// CompileCluster compiles a ClusterOverridePolicy. It reports every mistake in the policy at its field path. The
// returned policy can be used even if it has mistakes: an invalid rule fails only on the clusters that it targets. If
// the targetClusters of the rule are invalid, it fails on all clusters, because its intended target is unknown. The
// policy keeps parts of p, so the caller may not modify p later.
func CompileCluster(p *corev1alpha1.ClusterOverridePolicy) (*Policy, field.ErrorList) {
	return compile(refer(corev1alpha1.KindClusterOverridePolicy, &p.ObjectMeta), &p.Spec)
}

func refer(kind string, m *metav1.ObjectMeta) tree.Policy {
	return tree.Policy{Kind: kind, Namespace: m.Namespace, Name: m.Name, Generation: m.Generation}
}

// Order compares policies by their order of effect on one object: the
// ClusterOverridePolicy comes before the OverridePolicy.
func Order(a, b *Policy) int {
	rank := func(p *Policy) int {
		if p.Ref.Kind == corev1alpha1.KindClusterOverridePolicy {
			return 0
		}
		return 1
	}
	return cmp.Compare(rank(a), rank(b))
}

// Rules returns the number of rules of the policy.
func (p *Policy) Rules() int { return len(p.rules) }

// Target returns the clusters that the rule with this index targets. A rule whose targetClusters are absent or invalid
// targets all clusters.
func (p *Policy) Target(rule int) *match.Clusters { return p.targets.Selector(rule) }

func compile(ref tree.Policy, spec *corev1alpha1.OverridePolicySpec) (*Policy, field.ErrorList) {
	if mistake := excessive(spec); mistake != nil {
		return failing(ref, len(spec.OverrideRules), mistake), field.ErrorList{mistake}
	}
	p := &Policy{Ref: ref, rules: make([]rule, len(spec.OverrideRules))}
	targets := make([]match.Clusters, len(spec.OverrideRules))
	var errs field.ErrorList
	for i := range spec.OverrideRules {
		c := compiler{author: tree.Author{Policy: ref, Rule: i}}
		c.compile(&spec.OverrideRules[i], field.NewPath("spec", "overrideRules").Index(i))
		p.rules[i], targets[i] = c.rule, c.target
		errs = append(errs, c.errs...)
	}
	p.targets = match.NewIndex(targets)
	return p, errs
}

// compiler compiles one rule.
type compiler struct {
	author tree.Author // The author for the rule as a whole.
	rule   rule
	target match.Clusters
	errs   field.ErrorList
}

func (c *compiler) compile(from *corev1alpha1.OverrideRule, path *field.Path) {
	target, errs := match.CompileTarget(from.TargetClusters, path.Child("targetClusters"))
	if len(errs) > 0 {
		c.fail(c.author, errs)
		target = match.Clusters{}
	}
	c.target = target
	if from.Overriders == nil {
		return
	}
	for i := range overriders {
		overriders[i].compile(c, from.Overriders, path.Child("overriders"))
	}
}

// fail records mistakes of a rule. The first mistake becomes the error of all clusters that the rule targets.
func (c *compiler) fail(author tree.Author, errs field.ErrorList) {
	c.errs = append(c.errs, errs...)
	if c.rule.err != nil {
		return
	}
	failure := &RuleError{Author: author, Err: errs[0]}
	if fact, ok := errs[0].BadValue.(error); ok {
		failure.Path, failure.Err = placeOf(fact), &mistake{in: errs[0], fact: fact}
	}
	c.rule.err = failure
}

// mistake is an error at a field of a policy. It wraps an error about the object, for callers that use errors.Is.
type mistake struct {
	in   *field.Error
	fact error
}

// Error names the field of the policy, and contains the text of both errors.
func (m *mistake) Error() string { return m.in.Error() }

// Unwrap returns the error about the policy and the error about the object.
func (m *mistake) Unwrap() []error { return []error{m.in, m.fact} }

// forbidden returns a field error for an error about the object. Its BadValue passes that error to [compiler.fail]; the
// text of a Forbidden error does not show it.
func forbidden(path *field.Path, fact error) *field.Error {
	err := field.Forbidden(path, fact.Error())
	err.BadValue = fact
	return err
}
