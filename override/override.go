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
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/match"
	"refract.dev/podtemplate"
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
	// order they were made.
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
	// Path is the JSON pointer of the place concerned; empty when there is none.
	Path string
	Err  error
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
func Render(obj *unstructured.Unstructured, clusters []match.Cluster, policies ...*Policy) []Variant {
	groups := group(clusters, policies)
	if len(groups) == 0 {
		return nil
	}
	// One template serves all variants but the last to need it: a Doc that owns
	// its maps writes to them.
	variants := make([]Variant, len(groups))
	for i, g := range groups {
		variants[i] = renderOne(obj, policies, g.rules)
		variants[i].Clusters = g.clusters
	}
	return variants
}

// Apply is [Render] for one cluster.
func Apply(obj *unstructured.Unstructured, cluster match.Cluster, policies ...*Policy) Variant {
	return Render(obj, []match.Cluster{cluster}, policies...)[0]
}

// ruleSet are the rules that hold for a cluster: a bit for each rule of each
// policy, in the order of effect.
type ruleSet []uint64

func (s ruleSet) has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

type clusterGroup struct {
	rules    ruleSet
	clusters []int
}

// group brings together the clusters for which the same rules hold.
func group(clusters []match.Cluster, policies []*Policy) []clusterGroup {
	n := 0
	for _, p := range policies {
		n += len(p.rules)
	}
	scratch := make(ruleSet, (n+63)/64)
	var groups []clusterGroup
	var index map[string]int // Of a rule set in groups; only made when there are several.
	last := -1
	for i := range clusters {
		holding(scratch, &clusters[i], policies)
		if last < 0 || !equal(groups[last].rules, scratch) {
			last = -1
			if len(groups) > 0 {
				if index == nil {
					index = map[string]int{groups[0].rules.key(): 0}
				}
				if at, ok := index[scratch.key()]; ok {
					last = at
				}
			}
		}
		if last < 0 {
			last = len(groups)
			rules := append(make(ruleSet, 0, len(scratch)), scratch...)
			groups = append(groups, clusterGroup{rules: rules, clusters: make([]int, 0, 1)})
			if index != nil {
				index[rules.key()] = last
			}
		}
		groups[last].clusters = append(groups[last].clusters, i)
	}
	return groups
}

// holding sets the bits of the rules that hold for c.
func holding(into ruleSet, c *match.Cluster, policies []*Policy) {
	clear(into)
	bit := 0
	for _, p := range policies {
		for i := range p.rules {
			if p.rules[i].holds(c) {
				into[bit/64] |= 1 << (bit % 64)
			}
			bit++
		}
	}
}

func equal(a, b ruleSet) bool {
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

func (s ruleSet) key() string {
	b := make([]byte, 0, 8*len(s))
	for _, w := range s {
		b = append(b, byte(w), byte(w>>8), byte(w>>16), byte(w>>24), byte(w>>32), byte(w>>40), byte(w>>48), byte(w>>56))
	}
	return string(b)
}

// rendering is one object on its way through the rules.
type rendering struct {
	doc      *tree.Doc
	kind     string              // For messages.
	pods     *podtemplate.Places // Nil for a kind without a pod template.
	changes  []tree.Change
	warnings []Warning
	emptied  bool // Whether an overrider left a list of a container empty.
}

func renderOne(obj *unstructured.Unstructured, policies []*Policy, rules ruleSet) Variant {
	r := newRendering(obj)
	var v Variant
	bit := 0
	for i, p := range policies {
		holds := false
		for j := range p.rules {
			if rules.has(bit) {
				holds = true
				if v.Err == nil {
					v.Err = r.apply(&p.rules[j])
				}
			}
			bit++
		}
		if holds {
			v.Policies = append(v.Policies, i)
		}
	}
	v.Warnings = r.warnings
	if v.Err != nil {
		return v
	}
	v.Changes = r.changes
	v.Object = &unstructured.Unstructured{Object: r.finish()}
	return v
}

func (r *rendering) apply(rule *rule) error {
	if rule.err != nil {
		return rule.err
	}
	for i := range rule.steps {
		s := &rule.steps[i]
		if err := s.action.apply(r, s.author); err != nil {
			return &RuleError{Author: *s.author, Path: pathOf(err), Err: err}
		}
	}
	return nil
}

// record adds a change that was made, unless it changed nothing.
func (r *rendering) record(c tree.Change, by *tree.Author) {
	if c.Op == tree.OpReplace && same(c.Before, c.After) {
		return
	}
	c.By = by
	if r.changes == nil {
		r.changes = make([]tree.Change, 0, 16)
	}
	r.changes = tree.Record(r.changes, c)
}

func (r *rendering) warn(by *tree.Author, path, format string, args ...any) {
	r.warnings = append(r.warnings, Warning{Author: *by, Path: path, Message: fmt.Sprintf(format, args...)})
}
