package lint

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/preview"
	"refract.dev/internal/offline/render"
	"refract.dev/internal/offline/schema"
	"refract.dev/match"
	"refract.dev/override"
	"refract.dev/placement"
	"refract.dev/tree"
)

// fleet is what is known of the input. It is gathered once, for all checks.
type fleet struct {
	set  *manifest.Set
	lost lost

	// known is whether the input has clusters. If not, those that policies name are
	// taken to exist, and one without a name or labels.
	known    bool
	clusters []placement.Cluster // By name.
	labels   map[string][]string // Of the clusters: sorted values by key.

	overriding []*policy
	placing    []*placingPolicy
	outcomes   []render.Outcome
	injecting  []*injectionPolicy
	pods       []preview.Pod // None if nothing is injected.

	schemas     *schema.Schemas
	definitions []*Finding // Those of the input that cannot be used.
	// wrong is what is wrong with objects that name policies, as they are on the hub.
	wrong map[*render.Outcome][]schema.Mismatch

	// ended reports whether nobody waits for the result any more. What takes long asks it
	// again and again, and may end with half of its findings then.
	ended func() bool

	// named are the policies that an object names, or may have meant to.
	named map[tree.Policy]bool

	byCompiled map[*override.Policy]*policy
	byAuthor   map[tree.Author]*item
	holding    map[holding][]*rule
}

// placingPolicy is a propagation policy.
type placingPolicy struct {
	subject

	ref      tree.Policy // Without generation.
	spec     *corev1alpha1.PropagationPolicySpec
	compiled *placement.Policy
	reported bool
}

// holding is a question that many variants ask: which rules of the policy hold
// for the cluster.
type holding struct {
	policy  *policy
	cluster string
}

func gather(set *manifest.Set, problems []*manifest.Problem, each func(*render.Outcome) error) (*fleet, error) {
	f := &fleet{
		set: set, lost: lostIn(problems), known: len(set.Clusters) > 0,
		named:      map[tree.Policy]bool{},
		labels:     map[string][]string{},
		byCompiled: map[*override.Policy]*policy{},
		byAuthor:   map[tree.Author]*item{},
		holding:    map[holding][]*rule{},
		wrong:      map[*render.Outcome][]schema.Mismatch{},
		ended:      func() bool { return each(nil) != nil },
	}
	for i := range set.ClusterOverridePolicies {
		p := &set.ClusterOverridePolicies[i]
		f.addOverriding(p.Compiled, p.At, &p.Policy.ObjectMeta, &p.Policy.Spec)
	}
	for i := range set.OverridePolicies {
		p := &set.OverridePolicies[i]
		f.addOverriding(p.Compiled, p.At, &p.Policy.ObjectMeta, &p.Policy.Spec)
	}
	for i := range set.ClusterPropagationPolicies {
		p := &set.ClusterPropagationPolicies[i]
		f.addPlacing(p.Compiled, p.At, &p.Policy.Spec)
	}
	for i := range set.PropagationPolicies {
		p := &set.PropagationPolicies[i]
		f.addPlacing(p.Compiled, p.At, &p.Policy.Spec)
	}
	if err := f.evaluate(each); err != nil {
		return nil, err
	}
	f.compare()
	if err := each(nil); err != nil {
		return nil, err
	}
	f.observe()
	f.gatherInjections()
	return f, nil
}

func (f *fleet) addOverriding(compiled *override.Policy, at func(string) manifest.Place, meta *metav1.ObjectMeta, spec *corev1alpha1.OverridePolicySpec) {
	p := newPolicy(compiled, subject{policy: name(compiled.Ref), at: at}, meta, spec)
	f.overriding = append(f.overriding, p)
	f.byCompiled[compiled] = p
	for _, r := range p.rules {
		for _, it := range r.items {
			f.byAuthor[it.author] = it
		}
	}
}

func (f *fleet) addPlacing(compiled *placement.Policy, at func(string) manifest.Place, spec *corev1alpha1.PropagationPolicySpec) {
	f.placing = append(f.placing, &placingPolicy{
		subject: subject{policy: name(compiled.Ref), at: at}, ref: withoutGeneration(compiled.Ref), spec: spec, compiled: compiled,
	})
}

func name(ref tree.Policy) *render.Policy {
	return &render.Policy{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
}

func withoutGeneration(ref tree.Policy) tree.Policy {
	ref.Generation = 0
	return ref
}

// evaluate finds out what becomes of the objects. Its error is that of each.
func (f *fleet) evaluate(each func(*render.Outcome) error) error {
	var ended error
	options := render.Options{Each: func(o *render.Outcome) error {
		ended = each(o)
		return ended
	}}
	if !f.known {
		options.Clusters = f.clustersNamed()
	}
	e, err := render.Evaluate(f.set, options)
	if err != nil {
		return ended // If it is another, there is no cluster that anything could be said of.
	}
	f.clusters, f.outcomes = e.Clusters, e.Outcomes
	values := map[string]map[string]bool{}
	for i := range f.clusters {
		for key, value := range f.clusters[i].Labels {
			if values[key] == nil {
				values[key] = map[string]bool{}
			}
			values[key][value] = true
		}
	}
	for key := range values {
		f.labels[key] = slices.Sorted(maps.Keys(values[key]))
	}
	return nil
}

// clustersNamed are the clusters that policies name, and one without a name, for
// the rules that are for every cluster.
func (f *fleet) clustersNamed() []string {
	names := []string{""}
	for _, p := range f.overriding {
		for _, r := range p.rules {
			if t := r.spec.TargetClusters; t != nil {
				names = append(names, t.Clusters...)
			}
		}
	}
	for _, p := range f.placing {
		for _, c := range p.spec.Placements {
			names = append(names, c.Cluster)
		}
	}
	return names
}

// clusterNames returns the names of all clusters, sorted.
func (f *fleet) clusterNames() []string {
	names := make([]string, len(f.clusters))
	for i := range f.clusters {
		names[i] = f.clusters[i].Name
	}
	return names
}

// labelKeys returns the keys of all labels of clusters, sorted.
func (f *fleet) labelKeys() []string { return slices.Sorted(maps.Keys(f.labels)) }

// matching counts the clusters that are chosen.
func (f *fleet) matching(c *match.Clusters) int {
	n := 0
	for i := range f.clusters {
		if c.Match(&f.clusters[i].Cluster) {
			n++
		}
	}
	return n
}

// subjectOf returns an object as the subject of findings.
func subjectOf(o *manifest.Object) *subject {
	return &subject{object: objectOf(o), at: o.At}
}

func objectOf(o *manifest.Object) *render.Object {
	c := o.Content
	return &render.Object{APIVersion: c.GetAPIVersion(), Kind: c.GetKind(), Namespace: c.GetNamespace(), Name: c.GetName()}
}
