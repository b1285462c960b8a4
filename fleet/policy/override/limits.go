package override

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/tree"
)

// Limits of the size of a policy. The schemas limit the rules and the items of a rule and of a policy, but cannot count
// values. For policies in files, and policies that were stored before the schemas had limits, only the limits below
// apply. A policy beyond a limit fails on every cluster, and no part of it is compiled.
const (
	// MaxRules is the maximum number of rules of a policy, as in the schemas.
	MaxRules = 1000
	// MaxValues is the maximum number of values of a policy: items of overriders, entries of maps, elements of lists,
	// names of clusters, and the values inside the values of JSON patches. An item of annotations may have thousands of
	// values, and each takes some hundred bytes when compiled. The schemas permit 5,000 items, which leaves 10,000 other
	// values.
	MaxValues = 15_000
	// MaxDepth is the maximum number of segments of a path. It bounds the levels that a JSON patch adds to an object.
	MaxDepth = 100
)

// Limits of the effect of policies on an object. A rule that would exceed a limit makes its variant fail.
const (
	// MaxChanges is the maximum number of changes and warnings of all variants of an object together.
	MaxChanges = 100_000
	// MaxWork is the maximum work for one variant. Work is counted and not timed, so that the result is the same on
	// every machine. An item counts 50, a visited container 10, a changed component of an image 100, a visited item in
	// a list of a container 20, a label or annotation 50, and copies count as [tree.Doc.Copied] says. A unit takes some
	// nanoseconds.
	MaxWork = 10_000_000
	// MaxTotalWork is the maximum work for all variants of an object together.
	MaxTotalWork = 50_000_000
	// MaxTotalBytes is the maximum number of bytes of JSON of all variants of an object together: for each variant the
	// bytes of the object, and the bytes that rules have written, also those that later rules overwrite. For at most
	// fewVariants variants, the bytes are not counted.
	MaxTotalBytes = 64 << 20
)

// fewVariants: for up to this many variants, bytes are not counted. So few variants never reach MaxTotalBytes, because
// no API server stores an object or a policy of more than 1.5 MiB.
const fewVariants = 8

const (
	workOfStep      = 50
	workOfContainer = 10
	workOfOperation = 100
	workOfItem      = 20
	workOfEntry     = 50
)

// ErrTooMuch is wrapped by the error for a policy that exceeds a limit of this package, by its size or by its effect.
var ErrTooMuch = errors.New("is too much")

var (
	errChanges = fmt.Errorf("%w: the object has more than %d changes and warnings for all clusters together: "+
		"change fewer places, or have fewer clusters with rules of their own", ErrTooMuch, MaxChanges)
	errWork      = fmt.Errorf("%w: the object is more than %d units of work for one cluster: have fewer items, or smaller lists", ErrTooMuch, MaxWork)
	errTotalWork = fmt.Errorf("%w: the object is more than %d units of work for all clusters together: "+
		"have fewer items, or fewer clusters with rules of their own", ErrTooMuch, MaxTotalWork)
	errTotalBytes = fmt.Errorf("%w: the object is more than %d MiB for all clusters together: "+
		"have a smaller one, or fewer clusters with rules of their own", ErrTooMuch, MaxTotalBytes>>20)
)

// Budget is the remaining allowance for the variants of one object. A caller that renders an object in several calls
// uses one Budget for all of them. The zero value is the full allowance. A Budget is for one goroutine.
type Budget struct {
	// Groups, if not nil, caches the groups of clusters across the rendering of several objects. Then the caller must
	// modify neither the given clusters nor Variant.Clusters, which these objects share.
	Groups *Groups

	changes, work, written int // The spent parts of the limits.

	variants int // Number of variants that did not fail.
	size     int // Size of the object; zero while there are few variants.
}

// weigh measures the object if it has many variants. One measurement is enough: the object in a later call differs only
// in its replicas, and is not larger.
func (b *Budget) weigh(object map[string]any) {
	if b.variants >= fewVariants && b.size == 0 {
		b.size = tree.Size(object)
	}
}

// Render is the function [Render] within the remaining allowance.
func (b *Budget) Render(obj *unstructured.Unstructured, clusters []match.Cluster, policies ...*Policy) []Variant {
	groups := b.Groups.group(clusters, policies)
	variants := make([]Variant, len(groups))
	for i, g := range groups {
		variants[i] = render(b, obj, policies, g.rules)
		variants[i].Clusters = g.clusters
	}
	return variants
}

// spent returns the part of the budget that the rendering has used so far.
func (r *rendering) spent() (changes, work int) {
	return r.record.Len() + len(r.warnings), r.work + r.doc.Copied()
}

// exceeded returns an error if the rendering has exceeded a limit.
func (r *rendering) exceeded() error {
	changes, work := r.spent()
	switch {
	case work > MaxWork:
		return errWork
	case r.budget.changes+changes > MaxChanges:
		return errChanges
	case r.budget.work+work > MaxTotalWork:
		return errTotalWork
	case (r.budget.variants+1)*r.budget.size+r.budget.written+r.written > MaxTotalBytes:
		return errTotalBytes
	}
	return nil
}

// excessive returns an error if the policy exceeds a limit; nil otherwise.
func excessive(spec *corev1alpha1.OverridePolicySpec) *field.Error {
	path := field.NewPath("spec", "overrideRules")
	if n := len(spec.OverrideRules); n > MaxRules {
		return field.TooMany(path, n, MaxRules)
	}
	values := 0
	for i := range spec.OverrideRules {
		values += valuesOf(&spec.OverrideRules[i])
	}
	if values > MaxValues {
		return forbidden(path, fmt.Errorf("%w: the rules have %d values together (items, entries of maps, elements of lists, names of clusters), "+
			"and a policy may have %d: select clusters by labels, or make several policies of it", ErrTooMuch, values, MaxValues))
	}
	return nil
}

// valuesOf counts the items of a rule, the values in them, and the clusters that the rule names.
func valuesOf(rule *corev1alpha1.OverrideRule) int {
	n := 0
	if t := rule.TargetClusters; t != nil {
		n += len(t.Clusters) + len(t.ClusterSelector)
		for i := range t.ClusterAffinity {
			for _, of := range [][]corev1alpha1.ClusterSelectorRequirement{t.ClusterAffinity[i].MatchExpressions, t.ClusterAffinity[i].MatchFields} {
				for j := range of {
					n += 1 + len(of[j].Values)
				}
			}
		}
	}
	if rule.Overriders == nil {
		return n
	}
	for i := range overriders {
		n += overriders[i].values(rule.Overriders)
	}
	return n
}

// failing returns a policy that fails on all clusters. Its rules are not compiled, so their target clusters are
// unknown.
func failing(ref tree.Policy, rules int, mistake *field.Error) *Policy {
	c := compiler{author: tree.Author{Policy: ref, Rule: tree.NoRule}}
	c.fail(c.author, field.ErrorList{mistake})
	return &Policy{Ref: ref, rules: slices.Repeat([]rule{c.rule}, rules), targets: match.NewIndex(make([]match.Clusters, rules))}
}
