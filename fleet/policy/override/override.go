// Package override renders the variant of an object for each cluster. [Compile] prepares a policy once. [Render]
// applies compiled policies to an object for many clusters, and names the policy, rule and item that made each change.
//
// The package does no I/O and never modifies its input. A variant shares with the input all parts that no policy
// changed.
//
// The semantics are those of KubeAdmiral's OverridePolicy, see docs/guide/override-policies.md.
// docs/design/overrides.md lists the differences.
package override

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/fleet/policy/match"
	"refract.dev/tree"
)

// Variant is the result for a set of clusters with the same applicable rules.
type Variant struct {
	// Clusters are indexes into the clusters given to [Render], ascending.
	Clusters []int
	// Object is the result, or nil if Err is set. It shares parts with the object given to [Render], so neither may be
	// modified.
	Object *unstructured.Unstructured
	// Changes are the modifications from the [Template] to Object, in order. Object omits labels, annotations,
	// finalizers and lists of containers that are empty after these changes.
	Changes []tree.Change
	// Warnings report overrides whose target was missing, in order.
	Warnings []Warning
	// Policies are the indexes of the policies given to [Render] with at least one rule for these clusters, ascending.
	Policies []int
	// Err is the error of the first rule that failed, a [*RuleError], or nil.
	Err error
}

// Warning reports that the target of an override was missing.
type Warning struct {
	tree.Author
	// Path is the JSON pointer of the missing target in the object; empty if the warning is not about a place.
	Path string
	// Message is one sentence without a period.
	Message string
}

// String returns the author and the message.
func (w Warning) String() string { return w.Author.String() + ": " + w.Message }

// RuleError names the rule that failed, the place, and the reason.
type RuleError struct {
	tree.Author
	// Path is the JSON pointer of the place in the object where the rule failed. It is empty if the error is not about
	// a place, as for most invalid rules.
	Path string
	// Err is the reason. An invalid rule has a [*field.Error], which names the place in the policy.
	Err error
}

// Error returns the author and the reason; the reason names the place.
func (e *RuleError) Error() string { return e.Author.String() + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *RuleError) Unwrap() error { return e.Err }

// Render returns one [Variant] for each set of rules that applies to at least one of the clusters, in the order of the
// first cluster of each variant. Rules that target no cluster cost nothing. Clusters with the same rules share one
// rendering.
//
// Policies take effect in the given order (see [Order]), and rules in the order of their policy. Each rule sees the
// result of the previous rules. A rule that fails makes its whole variant fail, because a half-overridden object is
// worse than none.
//
// The total work is bounded, see [Budget].
func Render(obj *unstructured.Unstructured, clusters []match.Cluster, policies ...*Policy) []Variant {
	return new(Budget).Render(obj, clusters, policies...)
}

// Apply is [Render] for one cluster.
func Apply(obj *unstructured.Unstructured, cluster match.Cluster, policies ...*Policy) Variant {
	return Render(obj, []match.Cluster{cluster}, policies...)[0]
}

// Template returns the object without the members that concern only the hub. It keeps the values that the hub assigned.
// The changes of a [Variant] begin with the Template. It shares parts with obj and does not modify it.
func Template(obj *unstructured.Unstructured) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: begin(obj).finish()}
}

// Requested returns the [Template] without the values that the hub assigned. A cluster without any rule gets this
// object.
func Requested(obj *unstructured.Unstructured) *unstructured.Unstructured {
	r := begin(obj)
	r.leave(obj.Object)
	return &unstructured.Unstructured{Object: r.finish()}
}
