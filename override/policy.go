package override

import (
	"cmp"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/match"
	"refract.dev/tree"
)

// Policy is a compiled policy: pointers parsed, selectors compiled, values
// checked. It is immutable and may be used by many goroutines.
type Policy struct {
	// Ref names the policy.
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

// action is what an item of an overrider does. An error is at the place that
// the item is about.
type action interface {
	apply(r *rendering, by *tree.Author) error
}

// Compile compiles an OverridePolicy. See [CompileCluster].
func Compile(p *corev1alpha1.OverridePolicy) (*Policy, field.ErrorList) {
	return compile(refer(corev1alpha1.KindOverridePolicy, &p.ObjectMeta), &p.Spec)
}

// CompileCluster compiles a ClusterOverridePolicy. It reports every mistake in
// the policy at its field path. The policy that it returns can be used all the
// same: it fails the clusters that an invalid rule is for, and only those; where
// the targetClusters are invalid, all clusters, as nobody can say whom the rule
// was meant for. The result keeps parts of p, which may not be modified later.
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

// Rules returns how many rules the policy has.
func (p *Policy) Rules() int { return len(p.rules) }

// Target returns the clusters that the rule with this index is for: every
// cluster where its targetClusters are absent or invalid.
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
	author tree.Author // Of the rule as a whole.
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
	o := from.Overriders
	if o == nil {
		return
	}
	path = path.Child("overriders")
	// The order of effect.
	steps(c, "image", o.Image, path, compileImage)
	steps(c, "command", o.Command, path, compileEntrypoint)
	steps(c, "args", o.Args, path, compileEntrypoint)
	steps(c, "envs", o.Envs, path, compileEnvs)
	steps(c, "annotations", o.Annotations, path, compileStringMap)
	steps(c, "labels", o.Labels, path, compileStringMap)
	steps(c, "jsonpatch", o.JSONPatch, path, compileJSONPatch)
}

// steps compiles the items of one overrider, whose name is that of its list.
func steps[T any](c *compiler, name string, items []T, path *field.Path, compileItem func(*tree.Author, *T, *field.Path) (action, field.ErrorList)) {
	for i := range items {
		author := c.author
		author.Overrider, author.Item = name, i
		a, errs := compileItem(&author, &items[i], path.Child(name).Index(i))
		if len(errs) > 0 {
			c.fail(author, errs)
			continue
		}
		c.rule.steps = append(c.rule.steps, step{author: &author, action: a})
	}
}

// fail notes mistakes. The first of a rule is the one that its clusters see.
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

// mistake is a mistake in a policy that states a fact about a place of the
// object.
type mistake struct {
	in   *field.Error
	fact error
}

// Error returns the place in the policy and the fact.
func (m *mistake) Error() string { return m.in.Error() }

// Unwrap returns the mistake in the policy, and the fact.
func (m *mistake) Unwrap() []error { return []error{m.in, m.fact} }

// forbidden returns a mistake that states the fact. The bad value of a forbidden
// field is not shown, so it carries the fact to where the rule fails.
func forbidden(path *field.Path, fact error) *field.Error {
	err := field.Forbidden(path, fact.Error())
	err.BadValue = fact
	return err
}
