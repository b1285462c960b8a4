package lint

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/tree"
)

// policy is an override policy with its observed effects.
type policy struct {
	subject

	ref      tree.Policy // Without generation.
	meta     *metav1.ObjectMeta
	spec     *corev1alpha1.OverridePolicySpec
	compiled *override.Policy
	rules    []*rule
	// users is the number of objects that name the policy. unknown reports whether the result for at least one of these
	// objects is not known.
	users   int
	unknown bool
}

// rule is a rule of an override policy with its observed effects.
type rule struct {
	policy *policy
	index  int
	spec   *corev1alpha1.OverrideRule
	field  string
	items  []*item

	// runs are the variants that the rule applies to.
	runs []run
	// failed reports whether a rule failed in one of the runs, this one or another. The changes in such a run are not
	// known.
	failed bool
	// reported reports whether a finding explains all further anomalies of the rule.
	reported bool
}

// run is one variant of one object.
type run struct {
	outcome *render.Outcome
	variant *override.Variant
}

// object returns the name of the object.
func (r run) object() string { return objectOf(r.outcome.Object).String() }

// cluster returns the first of the variant's clusters.
func (r run) cluster() match.Cluster { return r.outcome.Clusters[r.variant.Clusters[0]] }

// item is an item of an overrider with its observed effects.
type item struct {
	effects

	rule   *rule
	author tree.Author
	field  string
	spec   any // A pointer to the item.
	// reported reports whether a finding explains all further anomalies of the item.
	reported bool
}

// effects are the effects of an item in the runs of its rule.
type effects struct {
	// ran counts the runs where the item took effect. skipped reports whether an earlier failure prevented the item in
	// a run.
	ran     int
	skipped bool
	// changed is the number of changes by the item, hidden the number of those that later changes hide. hiders are the
	// authors of the later changes.
	changed, hidden int
	hiders          map[tree.Author]bool
	// missed counts, for each name in the item, the runs in which no object has the name; see containerKey and
	// memberKey. deleted are the names that a delete operation found.
	missed  map[string]int
	deleted map[string]bool

	failures []failure
	created  []creation
}

// failure is a run that failed because of an item.
type failure struct {
	run

	err *override.RuleError
}

// creation is a run with a replace operation that added a value.
type creation struct {
	run

	path string
}

func newPolicy(compiled *override.Policy, s subject, meta *metav1.ObjectMeta, spec *corev1alpha1.OverridePolicySpec) *policy {
	p := &policy{subject: s, ref: withoutGeneration(compiled.Ref), meta: meta, spec: spec, compiled: compiled}
	for i := range spec.OverrideRules {
		r := &rule{policy: p, index: i, spec: &spec.OverrideRules[i], field: fmt.Sprintf("spec.overrideRules[%d]", i)}
		r.addItems()
		p.rules = append(p.rules, r)
	}
	return p
}

func (r *rule) addItems() {
	if r.spec.Overriders == nil {
		return
	}
	for _, o := range override.Overriders() {
		for i, spec := range o.Items(r.spec.Overriders) {
			r.items = append(r.items, &item{
				rule:    r,
				author:  tree.Author{Policy: r.policy.compiled.Ref, Rule: r.index, Overrider: o.Name, Item: i},
				field:   fmt.Sprintf("%s.overriders.%s[%d]", r.field, o.Name, i),
				spec:    spec,
				effects: effects{missed: map[string]int{}, deleted: map[string]bool{}, hiders: map[tree.Author]bool{}},
			})
		}
	}
}

// quiet reports whether no finding or failure explains the effects of the item: it took effect wherever its rule
// applies, and neither it nor its rule is reported.
func (it *item) quiet() bool { return it.ran > 0 && !it.skipped && !it.reported && !it.rule.reported }

// String names the item inside its policy.
func (it *item) String() string {
	return fmt.Sprintf("rule %d %s[%d]", it.author.Rule, it.author.Overrider, it.author.Item)
}

// affected returns the names of the objects and clusters of some runs, without clusters that have no name.
func affected(runs []run) (objects, clusters []string) {
	seen := map[string]bool{}
	for _, r := range runs {
		if id := r.outcome.ID.String(); !seen["o"+id] {
			seen["o"+id] = true
			objects = append(objects, r.object())
		}
		for _, c := range r.variant.Clusters {
			if name := r.outcome.Clusters[c].Name; name != "" && !seen["c"+name] {
				seen["c"+name] = true
				clusters = append(clusters, name)
			}
		}
	}
	slices.Sort(clusters)
	return objects, clusters
}

// without returns the policy compiled without one of its rules, or without one of the rule's items.
func (r *rule) without(only *item) *override.Policy {
	spec := r.policy.spec.DeepCopy()
	changed := &spec.OverrideRules[r.index]
	if only == nil {
		changed.Overriders = nil
	} else {
		remove(changed.Overriders, only.author.Overrider, only.author.Item)
	}
	if r.policy.ref.Kind == corev1alpha1.KindClusterOverridePolicy {
		compiled, _ := override.CompileCluster(&corev1alpha1.ClusterOverridePolicy{ObjectMeta: *r.policy.meta, Spec: *spec})
		return compiled
	}
	compiled, _ := override.Compile(&corev1alpha1.OverridePolicy{ObjectMeta: *r.policy.meta, Spec: *spec})
	return compiled
}

func remove(from *corev1alpha1.Overriders, overrider string, i int) {
	for _, o := range override.Overriders() {
		if o.Name == overrider {
			o.Remove(from, i)
		}
	}
}
