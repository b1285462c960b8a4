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

// What a policy may have. The schemas of the API say the same; a policy may have been
// stored before they did, and is in a file without them. One with more fails every
// cluster, and none of it is compiled.
const (
	// MaxRules is how many rules a policy may have.
	MaxRules = 1000
	// MaxItems is how many items the overriders of a rule may have together.
	MaxItems = 1000
	// MaxPolicyItems is how many items all rules of a policy may have together.
	MaxPolicyItems = 5000
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
)

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
)

// Budget is what is left for the variants of one object: who renders them in several
// goes renders them with one Budget. The zero value is whole. A Budget is for one
// goroutine.
type Budget struct {
	changes, work int // Spent.
}

// Render is the function [Render] with what is left.
func (b *Budget) Render(obj *unstructured.Unstructured, clusters []match.Cluster, policies ...*Policy) []Variant {
	groups := group(clusters, policies)
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
	}
	return nil
}

// excessive returns a mistake if the policy has more than it may.
func excessive(spec *corev1alpha1.OverridePolicySpec) *field.Error {
	path := field.NewPath("spec", "overrideRules")
	if n := len(spec.OverrideRules); n > MaxRules {
		return field.TooMany(path, n, MaxRules)
	}
	all := 0
	for i := range spec.OverrideRules {
		n := spec.OverrideRules[i].Overriders.Items()
		if n > MaxItems {
			return forbidden(path.Index(i).Child("overriders"),
				fmt.Errorf("%w: it has %d items, and a rule may have %d: make several rules of it, or several policies", ErrTooMuch, n, MaxItems))
		}
		all += n
	}
	if all > MaxPolicyItems {
		return forbidden(path, fmt.Errorf("%w: the rules have %d items together, and a policy may have %d: make several policies of it",
			ErrTooMuch, all, MaxPolicyItems))
	}
	return nil
}

// failing returns a policy that fails all clusters: nobody can say whom the rest of it
// was meant for, as nobody has looked.
func failing(ref tree.Policy, rules int, mistake *field.Error) *Policy {
	c := compiler{author: tree.Author{Policy: ref, Rule: tree.NoRule}}
	c.fail(c.author, field.ErrorList{mistake})
	return &Policy{Ref: ref, rules: slices.Repeat([]rule{c.rule}, rules), targets: match.NewIndex(make([]match.Clusters, rules))}
}
