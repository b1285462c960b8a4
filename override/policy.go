package override

import (
	"cmp"
	"errors"

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
	Ref   tree.Policy
	rules []rule
}

type rule struct {
	target match.Clusters
	steps  []step
	err    error // A *RuleError when the rule is invalid.
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

// holds reports whether the rule is for c. A rule whose target is invalid is
// for every cluster: nobody can say whom it was meant for.
func (r *rule) holds(c *match.Cluster) bool { return r.target.Match(c) }

// Compile compiles an OverridePolicy. See [CompileCluster].
func Compile(p *corev1alpha1.OverridePolicy) (*Policy, field.ErrorList) {
	return compile(refer(corev1alpha1.KindOverridePolicy, &p.ObjectMeta), &p.Spec)
}

// CompileCluster compiles a ClusterOverridePolicy. It reports every mistake in
// the policy at its field path. The policy that it returns can be used all the
// same: it fails the clusters that an invalid rule is for, and only those; where
// the targetClusters are invalid, all clusters.
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

// compiler collects the steps and mistakes of one rule.
type compiler struct {
	policy tree.Policy
	rule   int
	steps  []step
	errs   field.ErrorList
	err    *RuleError // The first mistake.
}

func compile(ref tree.Policy, spec *corev1alpha1.OverridePolicySpec) (*Policy, field.ErrorList) {
	p := &Policy{Ref: ref, rules: make([]rule, len(spec.OverrideRules))}
	var errs field.ErrorList
	for i := range spec.OverrideRules {
		path := field.NewPath("spec", "overrideRules").Index(i)
		c := &compiler{policy: ref, rule: i}
		target, targetErrs := match.CompileTarget(spec.OverrideRules[i].TargetClusters, path.Child("targetClusters"))
		if len(targetErrs) > 0 {
			target = match.Clusters{}
			c.errs = append(c.errs, targetErrs...)
			c.err = &RuleError{Author: tree.Author{Policy: ref, Rule: i}, Err: targetErrs[0]}
		}
		if o := spec.OverrideRules[i].Overriders; o != nil {
			c.overriders(o, path.Child("overriders"))
		}
		p.rules[i] = rule{target: target, steps: c.steps}
		if c.err != nil {
			p.rules[i].err = c.err
		}
		errs = append(errs, c.errs...)
	}
	return p, errs
}

// overriders compiles in the order of effect.
func (c *compiler) overriders(o *corev1alpha1.Overriders, path *field.Path) {
	each(c, "image", o.Image, path, compileImage)
	each(c, "command", o.Command, path, compileEntrypoint)
	each(c, "args", o.Args, path, compileEntrypoint)
	each(c, "envs", o.Envs, path, compileEnvs)
	each(c, "annotations", o.Annotations, path, compileStringMap)
	each(c, "labels", o.Labels, path, compileStringMap)
	each(c, "jsonpatch", o.JSONPatch, path, compileJSONPatch)
}

// each compiles the items of one overrider, whose name is that of its list.
func each[T any](c *compiler, name string, items []T, path *field.Path, compileItem func(name string, item *T, path *field.Path) (action, field.ErrorList)) {
	for i := range items {
		author := &tree.Author{Policy: c.policy, Rule: c.rule, Overrider: name, Item: i}
		a, errs := compileItem(name, &items[i], path.Child(name).Index(i))
		if len(errs) == 0 {
			c.steps = append(c.steps, step{author: author, action: a})
			continue
		}
		c.errs = append(c.errs, errs...)
		if c.err == nil {
			c.err = &RuleError{Author: *author, Path: errs[0].Field, Err: errs[0]}
		}
	}
}

// pathOf returns the place that an error is about.
func pathOf(err error) string {
	var at *tree.PathError
	if errors.As(err, &at) {
		return at.Path
	}
	return ""
}

// failAt returns an error about a place of the object.
func failAt(path string, err error) error { return &tree.PathError{Path: path, Err: err} }
