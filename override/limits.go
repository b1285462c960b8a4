package override

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/match"
	"refract.dev/tree"
)

// What a policy may have. The schemas of the API say the same, but for values, which they
// cannot count; a policy may have been stored before they did, and is in a file without
// them. One with more fails every cluster, and none of it is compiled.
const (
	// MaxRules is how many rules a policy may have.
	MaxRules = 1000
	// MaxItems is how many items the overriders of a rule may have together.
	MaxItems = 1000
	// MaxPolicyItems is how many items all rules of a policy may have together.
	MaxPolicyItems = 5000
	// MaxValues is how many values all of a policy may have: entries of maps, elements of
	// lists, names of clusters, and what is inside the values of JSON patches. An item of
	// annotations may have thousands, and compiled each takes some hundred bytes.
	MaxValues = 10_000
	// MaxDepth is how many segments a path may have.
	MaxDepth = 100
)

// What the policies of an object may do. Beyond it the rule that would do more fails its
// variant.
const (
	// MaxChanges is how many changes and warnings one variant may have.
	MaxChanges = 20_000
	// MaxTotalChanges is how many all variants of an object may have together.
	MaxTotalChanges = 100_000
	// MaxWork is how much work one variant may be. It is counted and not timed, so that
	// the result is the same on every machine: an item is 50, to look at a container 10,
	// to change a component of an image 100, to look at an item of a list of a container
	// 20, at a label or annotation 50, and to copy is as [tree.Doc.Copied] says. A unit is
	// some nanoseconds.
	MaxWork = 10_000_000
	// MaxTotalWork is how much work all variants of an object may be together.
	MaxTotalWork = 50_000_000
	// MaxTotalBytes is how many bytes of JSON all variants of an object may have together:
	// for each those of the object, and those that rules have written to it, be it that
	// others overwrote them. A handful of variants are not weighed.
	MaxTotalBytes = 64 << 20
)

// fewVariants are not weighed: they are less than MaxTotalBytes, as no API server stores
// an object or a policy of more than 1.5 MiB.
const fewVariants = 8

const (
	workOfStep      = 50
	workOfContainer = 10
	workOfOperation = 100
	workOfItem      = 20
	workOfEntry     = 50
)

// ErrTooMuch is wrapped by the error for a policy that has, or does, more than the
// limits of this package let it.
var ErrTooMuch = errors.New("is too much")

var (
	errChanges      = fmt.Errorf("%w: the object has more than %d changes and warnings for one cluster: change fewer places", ErrTooMuch, MaxChanges)
	errTotalChanges = fmt.Errorf("%w: the object has more than %d changes and warnings for all clusters together: "+
		"change fewer places, or have fewer clusters with rules of their own", ErrTooMuch, MaxTotalChanges)
	errWork      = fmt.Errorf("%w: the object is more than %d units of work for one cluster: have fewer items, or smaller lists", ErrTooMuch, MaxWork)
	errTotalWork = fmt.Errorf("%w: the object is more than %d units of work for all clusters together: "+
		"have fewer items, or fewer clusters with rules of their own", ErrTooMuch, MaxTotalWork)
	errTotalBytes = fmt.Errorf("%w: the object is more than %d MiB for all clusters together: "+
		"have a smaller one, or fewer clusters with rules of their own", ErrTooMuch, MaxTotalBytes>>20)
)

// Budget is what is left for the variants of one object: who renders them in several
// goes renders them with one Budget. The zero value is whole. A Budget is for one
// goroutine.
type Budget struct {
	// Groups, if they are not nil, remember the clusters' groups for who has other objects rendered with the same Groups. Then the
	// clusters given must not be modified, nor Variant.Clusters, which such objects share.
	Groups *Groups

	changes, work, written int // Spent.

	variants int // That did not fail.
	size     int // Of the object; zero while there are few variants.
}

// weigh looks at the object if it has many variants. What it is once is enough: shares of
// replicas make it no larger.
func (b *Budget) weigh(object map[string]any) {
	if b.variants >= fewVariants && b.size == 0 {
		b.size = tree.Size(object)
	}
}

// Render is the function [Render] with what is left.
func (b *Budget) Render(obj *unstructured.Unstructured, clusters []match.Cluster, policies ...*Policy) []Variant {
	groups := b.Groups.group(clusters, policies)
	variants := make([]Variant, len(groups))
	for i, g := range groups {
		variants[i] = render(b, obj, policies, g.rules)
		variants[i].Clusters = g.clusters
	}
	return variants
}

// spent returns what the rendering has taken of its budget so far.
func (r *rendering) spent() (changes, work int) {
	return r.record.Len() + len(r.warnings), r.work + r.doc.Copied()
}

// exceeded returns an error if the rendering has taken more than it may.
func (r *rendering) exceeded() error {
	changes, work := r.spent()
	switch {
	case changes > MaxChanges:
		return errChanges
	case work > MaxWork:
		return errWork
	case r.budget.changes+changes > MaxTotalChanges:
		return errTotalChanges
	case r.budget.work+work > MaxTotalWork:
		return errTotalWork
	case (r.budget.variants+1)*r.budget.size+r.budget.written+r.written > MaxTotalBytes:
		return errTotalBytes
	}
	return nil
}

// excessive returns a mistake if the policy has more than it may.
func excessive(spec *corev1alpha1.OverridePolicySpec) *field.Error {
	path := field.NewPath("spec", "overrideRules")
	if n := len(spec.OverrideRules); n > MaxRules {
		return field.TooMany(path, n, MaxRules)
	}
	all, values := 0, 0
	for i := range spec.OverrideRules {
		n := spec.OverrideRules[i].Overriders.Items()
		if n > MaxItems {
			return forbidden(path.Index(i).Child("overriders"),
				fmt.Errorf("%w: it has %d items, and a rule may have %d: make several rules of it, or several policies", ErrTooMuch, n, MaxItems))
		}
		all += n
		values += valuesOf(&spec.OverrideRules[i])
	}
	switch {
	case all > MaxPolicyItems:
		return forbidden(path, fmt.Errorf("%w: the rules have %d items together, and a policy may have %d: make several policies of it",
			ErrTooMuch, all, MaxPolicyItems))
	case values > MaxValues:
		return forbidden(path, fmt.Errorf("%w: the rules have %d values together (entries of maps, elements of lists, names of clusters), "+
			"and a policy may have %d: select clusters by labels, or make several policies of it", ErrTooMuch, values, MaxValues))
	}
	return nil
}

// valuesOf counts what is in the items of a rule, and the clusters that it names.
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
	o := rule.Overriders
	if o == nil {
		return n
	}
	for i := range o.Image {
		n += len(o.Image[i].ContainerNames) + len(o.Image[i].Operations)
	}
	for _, of := range [][]corev1alpha1.EntrypointOverrider{o.Command, o.Args} {
		for i := range of {
			n += len(of[i].Value)
		}
	}
	for i := range o.Envs {
		n += len(o.Envs[i].Value)
	}
	for _, of := range [][]corev1alpha1.StringMapOverrider{o.Annotations, o.Labels} {
		for i := range of {
			n += len(of[i].Value)
		}
	}
	for i := range o.JSONPatch {
		if v := o.JSONPatch[i].Value; v != nil {
			n += 1 + tree.Values(v.Raw) // What is no JSON is refused later.
		}
	}
	return n
}

// failing returns a policy that fails all clusters: nobody can say whom the rest of it
// was meant for, as nobody has looked.
func failing(ref tree.Policy, rules int, mistake *field.Error) *Policy {
	c := compiler{author: tree.Author{Policy: ref, Rule: tree.NoRule}}
	c.fail(c.author, field.ErrorList{mistake})
	return &Policy{Ref: ref, rules: slices.Repeat([]rule{c.rule}, rules), targets: match.NewIndex(make([]match.Clusters, rules))}
}
