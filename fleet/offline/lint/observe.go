package lint

import (
	"errors"
	"fmt"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/podtemplate"
	"refract.dev/tree"
)

// observer records the effects of each policy, rule and item.
type observer struct {
	policies *policies
	types    *types
	holding  map[holding][]*rule
}

// holding identifies the rules of a policy that apply to a cluster. Many variants have it in common, so the result is
// cached.
type holding struct {
	policy  *policy
	cluster string
}

// observe records the effects of policies on the objects, until ended returns true.
func observe(outcomes []render.Outcome, policies *policies, types *types, ended func() bool) {
	b := &observer{policies: policies, types: types, holding: map[holding][]*rule{}}
	b.countUsers(outcomes)
	for i := range outcomes {
		o := &outcomes[i]
		if types.misshapen(o) || ended() {
			continue
		}
		for j := range o.Variants {
			b.observeRun(run{outcome: o, variant: &o.Variants[j]})
		}
	}
}

// countUsers counts the objects that name each override policy.
func (b *observer) countUsers(outcomes []render.Outcome) {
	byRef := make(map[tree.Policy]*policy, len(b.policies.overriding))
	for _, p := range b.policies.overriding {
		byRef[p.ref] = p
	}
	for i := range outcomes {
		o := &outcomes[i]
		content := o.Object.Content
		refs, _, _ := override.Named(content.GetLabels(), content.GetNamespace()) // checkLabels reports mistakes.
		for _, ref := range refs {
			if p := byRef[ref]; p != nil {
				p.users++
				p.unknown = p.unknown || len(o.Variants) == 0 || b.types.misshapen(o)
			}
		}
	}
}

func (b *observer) observeRun(at run) {
	var failed *override.RuleError
	errors.As(at.variant.Err, &failed)
	passed := false // True from the failed item on.
	for _, compiled := range at.outcome.Policies {
		for _, r := range b.holds(b.policies.byCompiled[compiled], at) {
			r.runs = append(r.runs, at)
			r.failed = r.failed || at.variant.Err != nil
			for _, it := range r.items {
				if failed != nil && it.author == failed.Author {
					passed = true
					it.failures = append(it.failures, failure{run: at, err: failed})
				}
				if passed {
					it.skipped = true
				} else {
					it.ran++
				}
			}
		}
	}
	for i := range at.variant.Warnings {
		b.observeWarning(at, &at.variant.Warnings[i])
	}
	b.observeChanges(at)
}

// holds returns the rules of the policy that apply to a run.
func (b *observer) holds(p *policy, at run) []*rule {
	cluster := at.cluster()
	question := holding{policy: p, cluster: cluster.Name}
	if rules, ok := b.holding[question]; ok {
		return rules
	}
	var rules []*rule
	for i, r := range p.rules {
		if p.compiled.Target(i).Match(&cluster) {
			rules = append(rules, r)
		}
	}
	b.holding[question] = rules
	return rules
}

// The keys for names that an item may not find: the names of containers, and the names of variables and keys of maps.
// The prefixes distinguish equal names.
func containerKey(name string) string { return "container " + name }
func memberKey(name string) string    { return "member " + name }

// noContainers is the key for an item that applies to all containers and finds none.
const noContainers = ""

// observeWarning records the names that an item did not find. A warning has them only in its text, so the names of the
// item are searched in the text.
func (b *observer) observeWarning(at run, w *override.Warning) {
	it := b.policies.byAuthor[w.Author]
	if it == nil {
		return
	}
	switch spec := it.spec.(type) {
	case *corev1alpha1.ImageOverrider:
		if len(spec.ContainerNames) == 0 {
			it.missed[noContainers]++
		}
		for _, name := range spec.ContainerNames {
			it.miss(w, containerKey(name), name)
		}
	case *corev1alpha1.EntrypointOverrider:
		it.missed[containerKey(spec.ContainerName)]++
	case *corev1alpha1.EnvOverrider:
		if strings.HasSuffix(w.Path, "/"+podtemplate.ListKeys[1]) { // The path ends at the list of containers, not of variables.
			it.missed[containerKey(spec.ContainerName)]++
			return
		}
		for i := range spec.Value {
			it.miss(w, memberKey(spec.Value[i].Name), spec.Value[i].Name)
		}
	case *corev1alpha1.StringMapOverrider:
		it.missed[memberKey(lastKey(w.Path))]++
	case *corev1alpha1.JSONPatchOverrider:
		it.created = append(it.created, creation{run: at, path: w.Path})
	}
}

// miss records a warning that contains the name.
func (it *item) miss(w *override.Warning, key, name string) {
	if strings.Contains(w.Message, fmt.Sprintf("%q", name)) {
		it.missed[key]++
	}
}

// lastKey returns the last segment of a JSON pointer; empty for the root.
func lastKey(path string) string {
	p, err := tree.Parse(path)
	if keys := p.Keys(); err == nil && len(keys) > 0 {
		return keys[len(keys)-1]
	}
	return ""
}

// observeChanges records the changes by each item, and those that later changes hide.
func (b *observer) observeChanges(at run) {
	changes := at.variant.Changes
	hider := lastHiders(changes)
	for i := range changes {
		it := b.policies.byAuthor[*changes[i].By]
		if it == nil {
			continue
		}
		it.changed++
		it.noteDeleted(&changes[i])
		if by := hider[i]; by != nil {
			it.hidden++
			it.hiders[*by] = true
		}
	}
}

// lastHiders returns, for each change, the author of the last change that hides it; nil if there is none. Changes by
// the author of the hidden change do not count.
func lastHiders(changes []tree.Change) []*tree.Author {
	// In a chain, each change hides the one before. last is the author of the last change of a chain. other is the
	// author of the last change that is not by this author.
	type end struct{ last, other *tree.Author }
	ends := make([]end, len(changes)) // Of the chain that begins with the change.
	hiders := make([]*tree.Author, len(changes))
	for i := len(changes) - 1; i >= 0; i-- {
		if ends[i].last == nil {
			ends[i].last = changes[i].By
		} else if ends[i].other == nil && *ends[i].last != *changes[i].By {
			ends[i].other = changes[i].By
		}
		for _, j := range changes[i].Shadows { // No other change hides these directly.
			ends[j] = ends[i]
			if hiders[j] = ends[i].last; *hiders[j] == *changes[j].By {
				hiders[j] = ends[i].other
			}
		}
	}
	return hiders
}

// noteDeleted records the names of the entries that a delete operation has found and removed.
func (it *item) noteDeleted(c *tree.Change) {
	before, _ := c.Before.([]any)
	switch spec := it.spec.(type) {
	case *corev1alpha1.StringMapOverrider:
		it.deleted[lastKey(c.Path)] = true
	case *corev1alpha1.EntrypointOverrider:
		for _, argument := range before {
			if s, ok := argument.(string); ok && spec.Operator == corev1alpha1.OpDelete {
				it.deleted[s] = true
			}
		}
	case *corev1alpha1.EnvOverrider:
		for _, variable := range before {
			it.deleted[nameOf(variable)] = true
		}
	}
}

// nameOf returns the field "name" of an element of a list; empty without one.
func nameOf(element any) string {
	m, _ := element.(map[string]any)
	name, _ := m["name"].(string)
	return name
}

// template returns the content of a run's object for a cluster without applying rules.
func (r run) template() map[string]any { return override.Template(r.outcome.Object.Content).Object }

// objects returns the known states of a run's object: on the hub, and with all overrides.
func (r run) objects() []map[string]any {
	all := []map[string]any{r.template()}
	if r.variant.Object != nil {
		all = append(all, r.variant.Object.Object)
	}
	return all
}

// containersIn returns the containers of an object.
func containersIn(o *render.Outcome, object map[string]any) []any {
	places := podtemplate.Of(o.ID.GroupKind)
	if places == nil {
		return nil
	}
	var found []any
	for _, at := range places.Lists() {
		if list, err := tree.Lookup(object, at); err == nil {
			containers, _ := list.([]any)
			found = append(found, containers...)
		}
	}
	return found
}
