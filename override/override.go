// Package override makes of one object the variant that belongs on each
// cluster. [Compile] prepares a policy once; [Render] applies compiled policies
// to an object for many clusters, and for every difference names the policy,
// rule and item that made it.
//
// The package does no I/O and never modifies the object it is given: variants
// share every part with it that no policy touched.
//
// Semantics: docs/guide/override-policies.md. They are those of KubeAdmiral's
// OverridePolicy; where the two differ, docs/design/0001-override-semantics.md
// says so.
package override

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/match"
	"refract.dev/tree"
)

// Variant is what some clusters get: those for which the same rules hold.
type Variant struct {
	// Clusters are indexes into the clusters given to [Render], ascending.
	Clusters []int
	// Object is the result; nil when Err is not. It shares parts with the object
	// given, so neither may be modified.
	Object *unstructured.Unstructured
	// Changes are the modifications that made Object of its [Template], in the
	// order they were made. What they left empty of labels, annotations,
	// finalizers and lists of containers is not in Object.
	Changes []tree.Change
	// Warnings are about overrides that had nothing to act on, in order.
	Warnings []Warning
	// Policies are indexes into the policies given to [Render]: those of which
	// at least one rule holds for the clusters, ascending.
	Policies []int
	// Err is the first error that a rule met, a [*RuleError], or nil.
	Err error
}

// Warning says that an override had nothing to act on.
type Warning struct {
	tree.Author
	// Path is the JSON pointer of the place concerned; empty when there is none.
	Path string
	// Message is one sentence without an end mark.
	Message string
}

// String returns the author and the message.
func (w Warning) String() string { return w.Author.String() + ": " + w.Message }

// RuleError says which rule could not be applied, where, and why.
type RuleError struct {
	tree.Author
	// Path is the JSON pointer of the place in the object that the rule failed at;
	// empty when there is none, as for most invalid rules.
	Path string
	// Err is the reason. That of an invalid rule is a [*field.Error], which names
	// the place in the policy.
	Err error
}

// Error returns the author and the reason; the reason names the place.
func (e *RuleError) Error() string { return e.Author.String() + ": " + e.Err.Error() }

// Unwrap returns the reason.
func (e *RuleError) Unwrap() error { return e.Err }

// Render returns what each of the clusters gets: one [Variant] for each set of
// rules that holds for at least one of them, in the order of their first
// cluster. Rules that no cluster is chosen by cost nothing, and clusters with
// the same rules cost one rendering.
//
// Policies take effect in the order given (see [Order]), rules in the order of
// their policy, and each sees the result of the ones before it. A rule that
// fails, fails its variant: a half-overridden object is worse than none.
//
// What all of it may take together has a bound: see [Budget].
func Render(obj *unstructured.Unstructured, clusters []match.Cluster, policies ...*Policy) []Variant {
	return new(Budget).Render(obj, clusters, policies...)
}

// Apply is [Render] for one cluster.
func Apply(obj *unstructured.Unstructured, cluster match.Cluster, policies ...*Policy) Variant {
	return Render(obj, []match.Cluster{cluster}, policies...)[0]
}

// Template returns the object without what belongs to the hub alone, before what the hub
// assigned is left to each cluster: what the changes of a [Variant] begin with. It shares
// parts with obj and does not modify it.
func Template(obj *unstructured.Unstructured) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: begin(obj).finish()}
}

// Requested is [Template] without what the hub assigned: what a cluster gets for which no
// rule holds.
func Requested(obj *unstructured.Unstructured) *unstructured.Unstructured {
	r := begin(obj)
	r.leave(obj.Object)
	return &unstructured.Unstructured{Object: r.finish()}
}
