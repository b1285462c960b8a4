package render

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	// Gone says why the object asks for nothing, so that copies go; empty if it asks
	// for something.
	Gone string
	// Before are the clusters that had, or may have had, a copy; sorted, shared and
	// not to be modified.
	Before []string

	after    memory    // For who evaluates what comes then.
	errors   []Finding // About the object as a whole.
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
// it is not ready gets nothing new; a manifest of one that says nothing, and was
// not read from a hub, is taken to be ready. Where the set has Propagations, they are what was there before.
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
		live:     set.Live,
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
	all      *placed             // The same, once asked for.
	live     bool                // Whether the set is what an API server holds.
	shown    map[string]bool     // Nil when all are.
	placed   map[placing]placed
	told     map[tree.Policy]bool // Propagation policies whose warnings have been given.
	before   func(*manifest.Object) memory
	out      *Evaluation
}

// placing is a question that many objects ask. Names are shared between outcomes,
// so that where they begin tells them apart.
type placing struct {
	policy tree.Policy
	from   *string // The first of the names before; nil for none.
	count  int
}

// placed is the answer: the clusters and their names, sorted.
type placed struct {
	clusters []match.Cluster
	names    []string
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

// object decides about one object, in the order in which the controllers do.
func (e *evaluator) object(m *manifest.Object) {
	o := Outcome{Object: m, ID: m.Identity(), Held: placement.Held(m.Content.GetAnnotations()), shown: e.shown}
	was := e.before(m)
	o.Before, o.after = was.placed, was
	e.decide(&o, was)
	e.out.byID[o.ID] = len(e.out.Outcomes)
	e.out.Outcomes = append(e.out.Outcomes, o)
}

func (e *evaluator) decide(o *Outcome, was memory) {
	content := o.Object.Content
	ref, labelled, warnings, err := placement.Named(content.GetLabels(), content.GetNamespace())
	switch {
	case content.GetDeletionTimestamp() != nil:
		o.leave("is being deleted: its copies go, too")
		return
	case !placement.Travels(o.ID.GroupKind):
		o.leave("is of a kind that is never placed on clusters")
		return
	case !labelled && len(was.placed) > 0:
		o.leave("has no propagation label any more: its copies go")
		return
	case !labelled && e.live:
		o.leave("has no propagation label: it goes nowhere")
		return
	}
	for _, w := range slices.Concat(warnings, placement.Ignored(content.GetAnnotations())) {
		o.warn(nil, w)
	}
	if err != nil {
		o.fail(nil, err.Error(), "")
	}
	if o.Held != "" {
		o.warn(nil, fmt.Sprintf("annotation %s: shown here, but nothing is written to clusters while it is there", o.Held))
	}
	at, goes := placed{}, false
	if err == nil {
		at, goes = e.place(o, ref, labelled, was)
	}
	policies, named, complete := e.overrides(o, was) // What is wrong with these is worth knowing anyway.
	if !goes || !complete {
		return
	}
	o.Policies, o.Clusters = policies, at.clusters
	o.Variants = override.Render(content, at.clusters, policies...)
	if o.Held == "" && labelled {
		o.after = memory{uid: content.GetUID(), placed: at.names, rendered: named}
	}
}

// leave says that the object asks for nothing.
func (o *Outcome) leave(why string) {
	o.Gone, o.after = why, memory{}
	o.warn(nil, why)
}

// missing says that a policy is not there. Offline there is nothing to wait for.
const missing = "is not in the input"

// place decides where the object belongs.
func (e *evaluator) place(o *Outcome, ref tree.Policy, labelled bool, was memory) (at placed, ok bool) {
	if !labelled {
		o.warn(nil, "has no propagation label: shown for every cluster")
		return e.every(), true
	}
	policy := e.policies.propagations[ref]
	switch {
	case policy == nil && len(was.placed) == 0:
		o.fail(&ref, missing, e.policies.hint(ref, o.ID.Namespace))
		return at, false
	case policy == nil: // To lose a policy is no reason to take workloads away.
		o.warn(&ref, "was deleted: the object stays on the clusters that have it")
		return placed{clusters: e.named(was.placed), names: was.placed}, true
	}
	o.Propagation = &ref
	if !e.told[ref] {
		e.told[ref] = true
		for _, w := range policy.Inert {
			e.out.Warnings = append(e.out.Warnings, Finding{Policy: policyOf(ref), Message: w})
		}
	}
	at = e.choose(ref, policy, was.placed)
	if at.err != nil {
		o.fail(&ref, at.err.Error(), "")
		return at, false
	}
	if len(at.clusters) == 0 {
		o.warn(&ref, "chooses no cluster for the object")
	}
	return at, true
}

// choose asks the policy, once for each question.
func (e *evaluator) choose(ref tree.Policy, policy *placement.Policy, was []string) placed {
	question := placing{policy: ref, count: len(was)}
	if len(was) > 0 {
		question.from = &was[0]
	}
	if at, ok := e.placed[question]; ok {
		return at
	}
	names, err := policy.Place(e.clusters, was)
	at := placed{clusters: e.named(names), names: names, err: err}
	e.placed[question] = at
	return at
}

// every returns all clusters, shared between those who ask.
func (e *evaluator) every() placed {
	if e.all == nil {
		e.all = &placed{}
		for i := range e.clusters {
			e.all.clusters = append(e.all.clusters, e.clusters[i].Cluster)
			e.all.names = append(e.all.names, e.clusters[i].Name)
		}
	}
	return *e.all
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

// ready reports whether a cluster takes objects. One that says nothing does if it
// was written by hand; on a hub, nobody has reached it yet.
func ready(c *corev1alpha1.FederatedCluster) bool {
	for _, condition := range c.Status.Conditions {
		if condition.Type == corev1alpha1.ClusterReady {
			return condition.Status == metav1.ConditionTrue
		}
	}
	return c.UID == ""
}

// overrides returns the override policies of the object in their order of effect,
// and those that it names; complete is false if one is missing.
func (e *evaluator) overrides(o *Outcome, was memory) (found []*override.Policy, named []tree.Policy, complete bool) {
	content := o.Object.Content
	refs, warnings, err := override.Named(content.GetLabels(), content.GetNamespace())
	for _, w := range warnings {
		o.warn(nil, w)
	}
	if err != nil {
		o.fail(nil, err.Error(), "")
		return nil, nil, false
	}
	complete = true
	for _, ref := range refs {
		policy := e.policies.overrides[ref]
		switch {
		case policy != nil:
			found = append(found, policy)
		case slices.Contains(was.rendered, ref):
			o.warn(&ref, "was deleted: what it changed is taken back")
		default:
			o.fail(&ref, missing, e.policies.hint(ref, o.ID.Namespace))
			complete = false
		}
	}
	return found, refs, complete
}

// memory is what is known of an object from before.
type memory struct {
	uid      types.UID     // Another object of the name begins anew. Empty if not known.
	placed   []string      // The clusters that have, or may have, a copy, sorted.
	rendered []tree.Policy // Override policies of those copies, without generation.
}

// remember returns what is known from before: what was evaluated then, or else what
// is reported. Clusters that are no more have nothing.
func (e *evaluator) remember(set *manifest.Set, before *Evaluation) func(*manifest.Object) memory {
	present := e.presence()
	if before != nil {
		return func(o *manifest.Object) memory {
			was := before.Find(o.Identity())
			if was == nil || another(was.after.uid, o.Content.GetUID()) {
				return memory{}
			}
			return memory{uid: was.after.uid, placed: present(was.after.placed), rendered: was.after.rendered}
		}
	}
	reports := make(map[manifest.Identity]*manifest.Propagation, len(set.Propagations))
	for i := range set.Propagations {
		reports[set.Propagations[i].Source] = &set.Propagations[i]
	}
	return func(o *manifest.Object) memory {
		r := reports[o.Identity()]
		if r == nil || another(r.UID, o.Content.GetUID()) {
			return memory{}
		}
		return memory{uid: r.UID, placed: present(r.Clusters), rendered: r.Rendered}
	}
}

// another reports whether two UIDs are known to be those of different objects.
func another(a, b types.UID) bool { return a != "" && b != "" && a != b }

// presence returns a function that leaves out of names, which are sorted, those of
// clusters that are not known. It returns the same slice for the same names.
func (e *evaluator) presence() func(names []string) []string {
	type list struct {
		first *string
		count int
	}
	seen := map[list][]string{}
	return func(names []string) []string {
		if len(names) == 0 {
			return nil
		}
		l := list{&names[0], len(names)}
		there, ok := seen[l]
		if !ok {
			for _, c := range e.named(names) {
				there = append(there, c.Name)
			}
			seen[l] = there
		}
		return there
	}
}

// clustersOf returns all clusters that are known, by name.
func clustersOf(set *manifest.Set, only []string) ([]placement.Cluster, error) {
	if len(set.Clusters) == 0 && set.Live {
		return nil, ErrNoClusters
	}
	if len(set.Clusters) == 0 {
		var clusters []placement.Cluster
		for _, name := range slices.Compact(slices.Sorted(slices.Values(only))) {
			// The page of KubeAdmiral has names with capitals.
			if msgs := validation.NameIsDNSSubdomain(strings.ToLower(name), false); len(msgs) > 0 {
				return nil, fmt.Errorf("%q is no name of a cluster: %s", name, msgs[0])
			}
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
