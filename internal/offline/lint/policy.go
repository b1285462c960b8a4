package lint

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/offline/render"
	"refract.dev/match"
	"refract.dev/override"
	"refract.dev/tree"
)

// policy is an override policy and what was observed of it.
type policy struct {
	subject

	ref      tree.Policy // Without generation.
	meta     *metav1.ObjectMeta
	spec     *corev1alpha1.OverridePolicySpec
	compiled *override.Policy
	rules    []*rule
	// users is how many objects name the policy, and unknown whether it is not known
	// what becomes of one of them.
	users   int
	unknown bool
}

// rule is a rule of an override policy and what was observed of it.
type rule struct {
	policy *policy
	index  int
	spec   *corev1alpha1.OverrideRule
	field  string
	items  []*item

	// runs are the variants that the rule holds for.
	runs []run
	// failed is whether one of them failed, because of whichever rule: what was
	// changed in it is not known.
	failed bool
	// reported is whether there is a finding that explains what else is strange.
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

// item is an item of an overrider and what was observed of it.
type item struct {
	effects

	rule   *rule
	author tree.Author
	field  string
	spec   any // A pointer to the item.
	// reported is whether there is a finding that explains what else is strange.
	reported bool
}

// effects are what an item did in the runs of its rule.
type effects struct {
	// ran is in how many of the runs the item took effect, and skipped whether there is
	// one in which an earlier failure kept it from that.
	ran     int
	skipped bool
	// changed is how many changes it made; hidden how many of them later ones hide,
	// and by whom.
	changed, hidden int
	hiders          map[tree.Author]bool
	// missed counts the runs that did not have what has this name, which runs may
	// have told; deleted are the names that a delete found.
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

// creation is a run in which a replace added something.
type creation struct {
	run

	path string
}

func newPolicy(compiled *override.Policy, s subject, meta *metav1.ObjectMeta, spec *corev1alpha1.OverridePolicySpec) *policy {
	p := &policy{subject: s, ref: withoutGeneration(compiled.Ref), meta: meta, spec: spec, compiled: compiled}
	for i := range spec.OverrideRules {
		r := &rule{policy: p, index: i, spec: &spec.OverrideRules[i], field: fmt.Sprintf("spec.overrideRules[%d]", i)}
		if o := r.spec.Overriders; o != nil {
			addItems(r, "image", o.Image)
			addItems(r, "command", o.Command)
			addItems(r, "args", o.Args)
			addItems(r, "envs", o.Envs)
			addItems(r, "annotations", o.Annotations)
			addItems(r, "labels", o.Labels)
			addItems(r, "jsonpatch", o.JSONPatch)
		}
		p.rules = append(p.rules, r)
	}
	return p
}

func addItems[T any](r *rule, overrider string, items []T) {
	for i := range items {
		r.items = append(r.items, &item{
			rule:    r,
			author:  tree.Author{Policy: r.policy.compiled.Ref, Rule: r.index, Overrider: overrider, Item: i},
			field:   fmt.Sprintf("%s.overriders.%s[%d]", r.field, overrider, i),
			spec:    &items[i],
			effects: effects{missed: map[string]int{}, deleted: map[string]bool{}, hiders: map[tree.Author]bool{}},
		})
	}
}

// quiet reports whether nothing is known of the item that would explain what it
// does or does not do, and it took effect wherever its rule holds.
func (it *item) quiet() bool { return it.ran > 0 && !it.skipped && !it.reported && !it.rule.reported }

// String names the item inside its policy.
func (it *item) String() string {
	return fmt.Sprintf("rule %d %s[%d]", it.author.Rule, it.author.Overrider, it.author.Item)
}

// affected returns the names of the objects and clusters of some runs. Those of a
// cluster that has no name are not.
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

// without returns the policy compiled without one of its rules, or without one of
// the rule's items.
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

func remove(o *corev1alpha1.Overriders, overrider string, i int) {
	switch overrider {
	case "image":
		o.Image = slices.Delete(o.Image, i, i+1)
	case "command":
		o.Command = slices.Delete(o.Command, i, i+1)
	case "args":
		o.Args = slices.Delete(o.Args, i, i+1)
	case "envs":
		o.Envs = slices.Delete(o.Envs, i, i+1)
	case "annotations":
		o.Annotations = slices.Delete(o.Annotations, i, i+1)
	case "labels":
		o.Labels = slices.Delete(o.Labels, i, i+1)
	case "jsonpatch":
		o.JSONPatch = slices.Delete(o.JSONPatch, i, i+1)
	}
}
