package generate

import (
	"maps"
	"reflect"
	"slices"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// Mutate returns an edited copy of a fleet of [Random]. The edits are a few of those of a typical pull request: to
// objects, policies, placements and clusters. The result depends only on the arguments, and f is not modified. The copy
// differs from f in at least one place, contains only valid manifests, and has at least one cluster.
func Mutate(f Fleet, seed uint64) Fleet {
	c := choose(seed, streamMutate)
	b := &builder{choices: c, fleet: f.Clone(), layout: pick(c, layouts...)}
	for left := b.between(1, 4); left > 0 || reflect.DeepEqual(f, b.fleet); left-- {
		pick(c, edits...)(b)
	}
	return b.fleet
}

// edits are the kinds of edits. An edit without a suitable document does nothing.
var edits = []func(b *builder){
	(*builder).addCluster, (*builder).editCluster, (*builder).removeCluster,
	(*builder).addObject, (*builder).editObject, (*builder).editObject, (*builder).editNames, (*builder).removeObject,
	(*builder).addRule, (*builder).editTarget, (*builder).editTarget, (*builder).editOverriders, (*builder).editPatch, (*builder).editPatch,
	(*builder).moveRule, (*builder).removeRule, (*builder).removePolicy,
	(*builder).editPlacement,
}

func (b *builder) editCluster() {
	cluster := pick(b.choices, b.all(isCluster)...)
	if b.chance(25) {
		member(cluster, "spec")["taints"] = copied([]any{Document{"key": "maintenance", "effect": "NoExecute"}})
		return
	}
	member(cluster, "metadata")["labels"] = b.clusterLabels()
}

// removeCluster keeps the last cluster, because nothing can be rendered without one.
func (b *builder) removeCluster() {
	if clusters := b.find(isCluster); len(clusters) > 1 {
		b.remove(pick(b.choices, clusters...))
	}
}

// editObject changes values in an object.
func (b *builder) editObject() {
	objects := b.all(isObject)
	if len(objects) == 0 {
		return
	}
	o := pick(b.choices, objects...)
	for range b.between(1, 3) {
		change(b.choices, member(o, pick(b.choices, "spec", "spec", "data")))
	}
	if annotations := member(member(o, "metadata"), "annotations"); annotations != nil && b.chance(20) {
		annotations["example.com/revision"] = b.fresh("r")
	}
}

// change changes a value inside d, except the values of keys in [structure].
func change(c choices, d Document) {
	for len(d) > 0 {
		key := pick(c, slices.Sorted(maps.Keys(d))...)
		next := member(d, key)
		if list := items(d, key); len(list) > 0 && c.chance(90) {
			next = pick(c, list...)
		}
		if next == nil && !slices.Contains(structure, key) {
			d[key] = similar(c, d[key])
		}
		d = next
	}
}

// editNames changes or removes a policy label of an object.
func (b *builder) editNames() {
	objects := b.all(isObject)
	if len(objects) == 0 {
		return
	}
	labels := labelsOf(pick(b.choices, objects...))
	keys := []string{
		corev1alpha1.OverridePolicyLabel, corev1alpha1.ClusterOverridePolicyLabel,
		corev1alpha1.PropagationPolicyLabel, corev1alpha1.ClusterPropagationPolicyLabel,
	}
	key := pick(b.choices, keys...)
	policies := b.all(isPolicy)
	if _, there := labels[key]; len(policies) == 0 || (there && b.chance(50)) {
		delete(labels, key)
		return
	}
	labels[key] = nameOf(pick(b.choices, policies...)) // The label may name a policy of the wrong kind.
}

func (b *builder) removeObject() {
	if objects := b.find(isObject); len(objects) > 1 {
		b.remove(pick(b.choices, objects...))
	}
}

// overridePolicy returns an override policy, its rules, and an author for an object, preferably for one that names the
// policy. It returns false if there are no policies or objects.
func (b *builder) overridePolicy() (Document, []any, *author, bool) {
	policies, objects := b.all(isOverride), b.all(isObject)
	if len(policies) == 0 || len(objects) == 0 {
		return nil, nil, nil, false
	}
	policy := pick(b.choices, policies...)
	o := pick(b.choices, objects...)
	if i := slices.IndexFunc(objects, func(o Document) bool { return names(o, policy) }); i >= 0 {
		o = objects[i]
	}
	rules, _ := member(policy, "spec")["overrideRules"].([]any)
	return policy, rules, b.authorFor(kindOf(policy), o), true
}

// names reports whether an object names the override policy.
func names(o, policy Document) bool {
	if kindOf(policy) == corev1alpha1.KindClusterOverridePolicy {
		return labelsOf(o)[corev1alpha1.ClusterOverridePolicyLabel] == nameOf(policy)
	}
	return labelsOf(o)[corev1alpha1.OverridePolicyLabel] == nameOf(policy) && defaulted(namespaceOf(o)) == namespaceOf(policy)
}

func (b *builder) addRule() {
	if policy, rules, a, ok := b.overridePolicy(); ok {
		member(policy, "spec")["overrideRules"] = slices.Insert(slices.Clone(rules), b.IntN(len(rules)+1), any(a.rule()))
	}
}

// editRule calls the function edit with a rule of an override policy, if there is one.
func (b *builder) editRule(edit func(rule Document, a *author)) {
	policy, _, a, ok := b.overridePolicy()
	if !ok {
		return
	}
	if rules := items(member(policy, "spec"), "overrideRules"); len(rules) > 0 {
		edit(pick(b.choices, rules...), a)
	}
}

func (b *builder) editTarget() {
	b.editRule(func(rule Document, a *author) { rule["targetClusters"] = copied(a.target()) })
}

func (b *builder) editOverriders() {
	b.editRule(func(rule Document, a *author) { rule["overriders"] = copied(a.overriders()) })
}

// editPatch replaces the values of jsonpatch items by values of the same type.
func (b *builder) editPatch() {
	b.editRule(func(rule Document, a *author) {
		for _, item := range items(member(rule, "overriders"), "jsonpatch") {
			switch v := item["value"].(type) {
			case string, bool, int64, float64:
				item["value"] = similar(a.choices, v)
			}
		}
	})
}

func (b *builder) moveRule() {
	if _, rules, _, ok := b.overridePolicy(); ok && len(rules) > 1 {
		last := len(rules) - 1
		rules[0], rules[last] = rules[last], rules[0]
	}
}

func (b *builder) removeRule() {
	if policy, rules, _, ok := b.overridePolicy(); ok && len(rules) > 0 {
		i := b.IntN(len(rules))
		member(policy, "spec")["overrideRules"] = slices.Delete(slices.Clone(rules), i, i+1)
	}
}

func (b *builder) removePolicy() {
	if policies := b.find(isPolicy); len(policies) > 0 {
		b.remove(pick(b.choices, policies...))
	}
}

func (b *builder) editPlacement() {
	if policies := b.all(isPropagation); len(policies) > 0 {
		pick(b.choices, policies...)["spec"] = copied(b.placement())
	}
}
