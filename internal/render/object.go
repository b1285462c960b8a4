package render

import (
	"errors"
	"fmt"
	"slices"

	"refract.dev/internal/manifest"
	"refract.dev/match"
	"refract.dev/override"
	"refract.dev/placement"
	"refract.dev/tree"
)

// renderer renders the objects of a set one after the other.
type renderer struct {
	policies *policies
	clusters []placement.Cluster // By name.
	result   *Result
	shown    map[string]*Cluster  // Those of the result, by name.
	told     map[tree.Policy]bool // Propagation policies whose warnings are in the result.
}

func newRenderer(set *manifest.Set, clusters []placement.Cluster, only []string) *renderer {
	r := &renderer{
		policies: policiesOf(set),
		clusters: clusters,
		result:   &Result{Clusters: []Cluster{}, Errors: []Finding{}, Warnings: []Finding{}},
		shown:    map[string]*Cluster{},
		told:     map[tree.Policy]bool{},
	}
	for i := range clusters {
		if len(only) == 0 || slices.Contains(only, clusters[i].Name) {
			r.result.Clusters = append(r.result.Clusters, Cluster{Name: clusters[i].Name, Objects: []map[string]any{}})
		}
	}
	for i := range r.result.Clusters {
		r.shown[r.result.Clusters[i].Name] = &r.result.Clusters[i]
	}
	return r
}

// object renders one object.
func (r *renderer) object(o *manifest.Object) {
	f := findings{about: &Object{
		APIVersion: o.Content.GetAPIVersion(), Kind: o.Content.GetKind(), Namespace: o.Content.GetNamespace(), Name: o.Content.GetName(),
	}}
	if clusters, ok := r.place(o, &f); ok {
		if policies, ok := r.overrides(o, &f); ok {
			r.render(o, clusters, policies, &f)
		}
	} else {
		r.overrides(o, &f) // What is wrong with these is worth knowing too.
	}
	r.result.Errors = append(r.result.Errors, r.visible(f.errors)...)
	r.result.Warnings = append(r.result.Warnings, r.visible(f.warnings)...)
}

// visible returns the findings that are not about clusters left out.
func (r *renderer) visible(all []Finding) []Finding {
	return slices.DeleteFunc(all, func(f Finding) bool { return f.Cluster != "" && r.shown[f.Cluster] == nil })
}

// place returns the clusters that the object is placed on, by name.
func (r *renderer) place(o *manifest.Object, f *findings) ([]match.Cluster, bool) {
	f.annotations(o.Content.GetAnnotations())
	ref, labelled, warnings, err := placement.Named(o.Content.GetLabels(), o.Content.GetNamespace())
	for _, w := range warnings {
		f.warn(nil, w)
	}
	switch {
	case err != nil:
		f.fail(nil, err.Error(), "")
		return nil, false
	case !labelled:
		f.warn(nil, "has no propagation label: shown for every cluster")
		return r.named(nil), true
	}
	policy := r.policies.propagations[ref]
	if policy == nil {
		f.fail(&ref, missing, r.policies.hint(ref, o.Content.GetNamespace()))
		return nil, false
	}
	if !r.told[ref] {
		r.told[ref] = true
		for _, w := range policy.Inert {
			r.result.Warnings = append(r.result.Warnings, Finding{Policy: policyOf(ref), Message: w})
		}
	}
	names, err := policy.Place(r.clusters, nil)
	if err != nil {
		f.fail(&ref, err.Error(), "")
		return nil, false
	}
	if len(names) == 0 {
		f.warn(&ref, "chooses no cluster for the object")
	}
	return r.named(func(name string) bool { _, found := slices.BinarySearch(names, name); return found }), true
}

// missing says that a policy is not there. Offline there is nothing to wait for.
const missing = "is not in the input"

// named returns the clusters with names that are chosen; nil chooses all.
func (r *renderer) named(chosen func(string) bool) []match.Cluster {
	var clusters []match.Cluster
	for i := range r.clusters {
		if chosen == nil || chosen(r.clusters[i].Name) {
			clusters = append(clusters, r.clusters[i].Cluster)
		}
	}
	return clusters
}

// overrides returns the override policies of the object in their order of effect.
func (r *renderer) overrides(o *manifest.Object, f *findings) ([]*override.Policy, bool) {
	refs, warnings, err := override.Named(o.Content.GetLabels(), o.Content.GetNamespace())
	if err != nil {
		f.fail(nil, err.Error(), "")
		return nil, false
	}
	for _, w := range warnings {
		f.warn(nil, w)
	}
	ok := true
	var found []*override.Policy
	for _, ref := range refs {
		policy := r.policies.overrides[ref]
		if policy == nil {
			f.fail(&ref, missing, r.policies.hint(ref, o.Content.GetNamespace()))
			ok = false
			continue
		}
		found = append(found, policy)
	}
	return found, ok
}

// render adds what each of the clusters gets to the result.
func (r *renderer) render(o *manifest.Object, clusters []match.Cluster, policies []*override.Policy, f *findings) {
	variants := override.Render(o.Content, clusters, policies...)
	byCluster := make([]*override.Variant, len(clusters))
	for i := range variants {
		for _, c := range variants[i].Clusters {
			byCluster[c] = &variants[i]
		}
	}
	f.shared(variants)
	for i, v := range byCluster {
		f.cluster(clusters[i].Name, v)
		if to := r.shown[clusters[i].Name]; to != nil && v.Err == nil {
			to.Objects = append(to.Objects, v.Object.Object)
		}
	}
}

// findings are what there is to say about one object.
type findings struct {
	about    *Object
	errors   []Finding
	warnings []Finding
	common   map[override.Warning]bool // Said about all clusters at once.
}

func (f *findings) fail(policy *tree.Policy, message, hint string) {
	finding := Finding{Object: f.about, Message: message, Hint: hint}
	if policy != nil {
		finding.Policy = policyOf(*policy)
	}
	f.errors = append(f.errors, finding)
}

func (f *findings) warn(policy *tree.Policy, message string) {
	finding := Finding{Object: f.about, Message: message}
	if policy != nil {
		finding.Policy = policyOf(*policy)
	}
	f.warnings = append(f.warnings, finding)
}

// by returns a finding about what an item of a rule did.
func (f *findings) by(cluster string, author tree.Author, path, message string) Finding {
	if author.Overrider != "" {
		message = fmt.Sprintf("%s[%d]: %s", author.Overrider, author.Item, message)
	}
	rule := author.Rule
	return Finding{Cluster: cluster, Object: f.about, Policy: policyOf(author.Policy), Rule: &rule, Path: path, Message: message}
}

// shared adds the warnings that all variants have.
func (f *findings) shared(variants []override.Variant) {
	f.common = map[override.Warning]bool{}
	for i := range variants {
		for _, w := range variants[i].Warnings {
			everywhere := !slices.ContainsFunc(variants, func(v override.Variant) bool { return !slices.Contains(v.Warnings, w) })
			if everywhere && !f.common[w] {
				f.common[w] = true
				f.warnings = append(f.warnings, f.by("", w.Author, w.Path, w.Message))
			}
		}
	}
}

// cluster adds what there is to say about one cluster.
func (f *findings) cluster(name string, v *override.Variant) {
	for _, w := range v.Warnings {
		if !f.common[w] {
			f.warnings = append(f.warnings, f.by(name, w.Author, w.Path, w.Message))
		}
	}
	var rule *override.RuleError
	switch {
	case v.Err == nil:
	case errors.As(v.Err, &rule):
		f.errors = append(f.errors, f.by(name, rule.Author, rule.Path, rule.Err.Error()))
	default:
		f.errors = append(f.errors, Finding{Cluster: name, Object: f.about, Message: v.Err.Error()})
	}
}

// annotations warns of annotations that do not do what KubeAdmiral does, and of
// those that keep the object from being written.
func (f *findings) annotations(a map[string]string) {
	for _, w := range placement.Ignored(a) {
		f.warn(nil, w)
	}
	if key := placement.Held(a); key != "" {
		f.warn(nil, fmt.Sprintf("annotation %s: shown here, but nothing is written to clusters while it is there", key))
	}
}
