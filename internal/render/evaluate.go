package render

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/manifest"
	"refract.dev/internal/manifest/nearest"
	"refract.dev/match"
	"refract.dev/override"
	"refract.dev/placement"
	"refract.dev/tree"
)

// Options say what to evaluate.
type Options struct {
	// Clusters are the names of those to show; none means all. Placement is
	// decided over all clusters all the same.
	Clusters []string
	// Select chooses the objects; nil chooses all.
	Select func(*manifest.Object) bool
	// Before is what was there before, nil if nothing is known of it: objects stay
	// where maxClusters leaves a choice, and the overrides of a policy that is no
	// longer there are taken back rather than waited for.
	Before *Evaluation
}

// Evaluation is what becomes of the objects of a set.
type Evaluation struct {
	// Clusters are those to show, by name.
	Clusters []placement.Cluster
	// Outcomes are in the order of the input.
	Outcomes []Outcome
	// Warnings are about clusters, and about policies whatever the object.
	Warnings []Finding

	byID map[manifest.Identity]int // Index in Outcomes.
}

// IDOf returns the name of an object.
func IDOf(o *manifest.Object) manifest.Identity { return o.Identity() }

// Outcome is what becomes of one object.
type Outcome struct {
	Object *manifest.Object
	ID     manifest.Identity
	// Propagation is the policy that places the object, without generation; nil
	// when it names none, or when the one it names is not there.
	Propagation *tree.Policy
	// Policies are those whose rules make the variants, in their order of effect.
	// Nil when there are no variants.
	Policies []*override.Policy
	// Clusters are those that the object is placed on, by name; shared with other
	// outcomes, not to be modified. It may be on clusters that are not shown.
	Clusters []match.Cluster
	// Variants are what the clusters get, by index in Clusters. There are none when
	// the object goes nowhere.
	Variants []override.Variant
	// Held is the annotation that keeps copies as they are; empty if none does.
	Held string

	deleted  []tree.Policy // Those that are no longer there, and whose changes are taken back.
	errors   []Finding     // About the object as a whole.
	warnings []Finding
	shown    map[string]bool // Nil when all clusters are.
}

// Find returns the outcome of an object, nil if it has none.
func (e *Evaluation) Find(id manifest.Identity) *Outcome {
	i, ok := e.byID[id]
	if !ok {
		return nil
	}
	return &e.Outcomes[i]
}

// Shows reports whether the cluster with this index in Clusters is one of those
// to show.
func (o *Outcome) Shows(cluster int) bool {
	return o.shown == nil || o.shown[o.Clusters[cluster].Name]
}

// Evaluate decides for every object of the set where it goes and what arrives
// there, as the controllers do, and with their engines. A cluster that says that
// it is not ready gets nothing new; one that says nothing is taken to be ready.
// Where the set has Propagations, they are what was there before.
//
// What is wrong with one object or on one cluster stops no other. Evaluate
// returns an error, and nothing else, when the clusters are not known:
// [ErrNoClusters], [*UnknownClusterError]. If the set has no clusters, those that
// the options name are taken to exist, without labels.
func Evaluate(set *manifest.Set, options Options) (*Evaluation, error) {
	clusters, err := clustersOf(set, options.Clusters)
	if err != nil {
		return nil, err
	}
	e := &evaluator{
		policies: policiesOf(set),
		clusters: clusters,
		placed:   map[placing]placed{},
		told:     map[tree.Policy]bool{},
		out:      &Evaluation{byID: make(map[manifest.Identity]int, len(set.Objects))},
	}
	e.before = e.remember(set, options.Before)
	e.show(options.Clusters)
	e.unready()
	for i := range set.Objects {
		if options.Select == nil || options.Select(&set.Objects[i]) {
			e.object(&set.Objects[i])
		}
	}
	return e.out, nil
}

// evaluator evaluates the objects of a set one after the other.
type evaluator struct {
	policies *policies
	clusters []placement.Cluster // All that are known, by name.
	all      []match.Cluster     // The same, once asked for.
	shown    map[string]bool     // Nil when all are.
	placed   map[placing]placed
	told     map[tree.Policy]bool // Propagation policies whose warnings have been given.
	before   func(*manifest.Object) memory
	out      *Evaluation
}

// placing is a question that many objects ask. Clusters are shared between
// outcomes, so that where they begin tells them apart.
type placing struct {
	policy tree.Policy
	from   *match.Cluster // The first of those before; nil for none.
	count  int
}

// placed is the answer.
type placed struct {
	clusters []match.Cluster
	err      error
}

func (e *evaluator) show(only []string) {
	e.out.Clusters = e.clusters
	if len(only) == 0 {
		return
	}
	e.shown = make(map[string]bool, len(only))
	for _, name := range only {
		e.shown[name] = true
	}
	e.out.Clusters = slices.DeleteFunc(slices.Clone(e.clusters), func(c placement.Cluster) bool { return !e.shown[c.Name] })
}

func (e *evaluator) object(m *manifest.Object) {
	o := Outcome{Object: m, ID: m.Identity(), Held: placement.Held(m.Content.GetAnnotations()), shown: e.shown}
	was := e.before(m)
	for _, w := range placement.Ignored(m.Content.GetAnnotations()) {
		o.warn(nil, w)
	}
	if o.Held != "" {
		o.warn(nil, fmt.Sprintf("annotation %s: shown here, but nothing is written to clusters while it is there", o.Held))
	}
	clusters, goes := e.place(&o, was)
	policies, complete := e.overrides(&o, was) // What is wrong with these is worth knowing anyway.
	if goes && complete {
		o.Policies, o.Clusters = policies, clusters
		o.Variants = override.Render(m.Content, clusters, policies...)
	}
	e.out.byID[o.ID] = len(e.out.Outcomes)
	e.out.Outcomes = append(e.out.Outcomes, o)
}

// missing says that a policy is not there. Offline there is nothing to wait for.
const missing = "is not in the input"

// place returns the clusters that the object belongs on, by name.
func (e *evaluator) place(o *Outcome, was memory) (clusters []match.Cluster, ok bool) {
	content := o.Object.Content
	if content.GetDeletionTimestamp() != nil {
		o.warn(nil, "is being deleted: its copies go, too")
		return nil, false
	}
	ref, labelled, warnings, err := placement.Named(content.GetLabels(), content.GetNamespace())
	for _, w := range warnings {
		o.warn(nil, w)
	}
	switch {
	case err != nil:
		o.fail(nil, err.Error(), "")
		return nil, false
	case !labelled:
		o.warn(nil, "has no propagation label: shown for every cluster")
		return e.every(), true
	}
	policy := e.policies.propagations[ref]
	switch {
	case policy == nil && len(was.placed) == 0:
		o.fail(&ref, missing, e.policies.hint(ref, content.GetNamespace()))
		return nil, false
	case policy == nil: // To lose a policy is no reason to take workloads away.
		o.warn(&ref, "was deleted: the object stays on the clusters that have it")
		return was.placed, true
	}
	o.Propagation = &ref
	if !e.told[ref] {
		e.told[ref] = true
		for _, w := range policy.Inert {
			e.out.Warnings = append(e.out.Warnings, Finding{Policy: policyOf(ref), Message: w})
		}
	}
	at := e.choose(ref, policy, was.placed)
	if at.err != nil {
		o.fail(&ref, at.err.Error(), "")
		return nil, false
	}
	if len(at.clusters) == 0 {
		o.warn(&ref, "chooses no cluster for the object")
	}
	return at.clusters, true
}

// choose asks the policy, once for each question.
func (e *evaluator) choose(ref tree.Policy, policy *placement.Policy, was []match.Cluster) placed {
	question := placing{policy: ref, count: len(was)}
	if len(was) > 0 {
		question.from = &was[0]
	}
	if at, ok := e.placed[question]; ok {
		return at
	}
	names, err := policy.Place(e.clusters, namesOf(was))
	at := placed{clusters: e.named(names), err: err}
	e.placed[question] = at
	return at
}

func namesOf(clusters []match.Cluster) []string {
	names := make([]string, len(clusters))
	for i := range clusters {
		names[i] = clusters[i].Name
	}
	return names
}

// every returns all clusters, as the same slice each time.
func (e *evaluator) every() []match.Cluster {
	if e.all == nil {
		for i := range e.clusters {
			e.all = append(e.all, e.clusters[i].Cluster)
		}
	}
	return e.all
}

// named returns the clusters with these names, which are sorted.
func (e *evaluator) named(names []string) []match.Cluster {
	var clusters []match.Cluster
	for i := range e.clusters {
		if _, found := slices.BinarySearch(names, e.clusters[i].Name); found {
			clusters = append(clusters, e.clusters[i].Cluster)
		}
	}
	return clusters
}

// unready warns of clusters that say that they are not ready.
func (e *evaluator) unready() {
	for i := range e.out.Clusters {
		if c := &e.out.Clusters[i]; !c.Ready {
			e.out.Warnings = append(e.out.Warnings, Finding{
				Cluster: c.Name, Message: "is not ready: it keeps what it has and gets nothing new",
			})
		}
	}
}

// ready reports whether a cluster takes objects. One that says nothing, such as
// a manifest written by hand, is taken to.
func ready(c *corev1alpha1.FederatedCluster) bool {
	for _, condition := range c.Status.Conditions {
		if condition.Type == corev1alpha1.ClusterReady {
			return condition.Status == metav1.ConditionTrue
		}
	}
	return true
}

// overrides returns the override policies of the object in their order of effect.
func (e *evaluator) overrides(o *Outcome, was memory) (found []*override.Policy, complete bool) {
	content := o.Object.Content
	refs, warnings, err := override.Named(content.GetLabels(), content.GetNamespace())
	if err != nil {
		o.fail(nil, err.Error(), "")
		return nil, false
	}
	for _, w := range warnings {
		o.warn(nil, w)
	}
	complete = true
	for _, ref := range refs {
		policy := e.policies.overrides[ref]
		switch {
		case policy != nil:
			found = append(found, policy)
		case slices.Contains(was.rendered, ref):
			o.deleted = append(o.deleted, ref)
			o.warn(&ref, "was deleted: what it changed is taken back")
		default:
			o.fail(&ref, missing, e.policies.hint(ref, content.GetNamespace()))
			complete = false
		}
	}
	return found, complete
}

// memory is what is known of an object from before.
type memory struct {
	placed   []match.Cluster // The clusters that have, or may have, a copy, by name.
	rendered []tree.Policy   // Override policies of those copies, without generation.
}

// remember returns what is known from before: what was evaluated then, or else what
// is reported.
func (e *evaluator) remember(set *manifest.Set, before *Evaluation) func(*manifest.Object) memory {
	reports := make(map[manifest.Identity]*manifest.Propagation, len(set.Propagations))
	for i := range set.Propagations {
		reports[set.Propagations[i].Source] = &set.Propagations[i]
	}
	return func(o *manifest.Object) memory {
		id := o.Identity()
		if before != nil {
			if was := before.Find(id); was != nil {
				return memory{placed: was.Clusters, rendered: was.renderedWith()}
			}
			return memory{}
		}
		r := reports[id]
		if uid := o.Content.GetUID(); r == nil || (uid != "" && r.UID != "" && uid != r.UID) {
			return memory{} // It is about another object that had this name.
		}
		return memory{placed: e.named(r.Clusters), rendered: r.Rendered}
	}
}

// renderedWith returns the policies that made the variants, without generation.
func (o *Outcome) renderedWith() []tree.Policy {
	refs := slices.Clone(o.deleted)
	for _, p := range o.Policies {
		ref := p.Ref
		ref.Generation = 0
		refs = append(refs, ref)
	}
	return refs
}

// clustersOf returns all clusters that are known, by name.
func clustersOf(set *manifest.Set, only []string) ([]placement.Cluster, error) {
	if len(set.Clusters) == 0 {
		var clusters []placement.Cluster
		for _, name := range slices.Compact(slices.Sorted(slices.Values(only))) {
			clusters = append(clusters, placement.Cluster{Cluster: match.Cluster{Name: name}, Ready: true})
		}
		if len(clusters) == 0 {
			return nil, ErrNoClusters
		}
		return clusters, nil
	}
	clusters := make([]placement.Cluster, len(set.Clusters))
	names := make([]string, len(set.Clusters))
	for i := range set.Clusters {
		c := set.Clusters[i].Cluster
		names[i] = c.Name
		clusters[i] = placement.Cluster{
			Cluster: match.Cluster{Name: c.Name, Labels: c.Labels},
			Taints:  c.Spec.Taints,
			Ready:   ready(c),
		}
	}
	slices.SortFunc(clusters, func(a, b placement.Cluster) int { return strings.Compare(a.Name, b.Name) })
	for _, name := range only {
		if !slices.Contains(names, name) {
			return nil, &UnknownClusterError{Name: name, Near: nearest.To(name, names)}
		}
	}
	return clusters, nil
}
