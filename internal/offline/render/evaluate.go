package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/manifest/nearest"
	"refract.dev/internal/variant"
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
	// Approved has changes of placements that wait for approval take place, as after the approval. Whole is whether
	// the set then has all objects of its namespaces, so that it is known what these leave together.
	Approved, Whole bool
	// Each is told what becomes of each object as soon as that is known, and may end the
	// evaluation by an error, as when nobody waits for it any more or it grows too large; an
	// object that others follow may come twice. Nil lets all go on.
	Each func(*Outcome) error
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
	// Follows are the objects that the object travels with, by resource and name.
	Follows []refractv1alpha1.FollowedObject
	// Leaders are those of them of which the set says where they go, in that order. They are not to be
	// modified.
	Leaders []*Outcome
	// Native says why the object is one that each cluster makes for itself, so that
	// none gets another; empty if it is not.
	Native string
	// Gone says why the object asks for nothing, so that copies go, unless they are
	// native; empty if it asks for something.
	Gone string
	// Waits is the change of the placement that waits for approval, and Approval what refract
	// approve is called with; nil and empty if none does. It is in Clusters if the options say that it is approved.
	Waits    *placement.Hold
	Approval string
	// Before are the clusters that had, or may have had, a copy; sorted, shared and
	// not to be modified.
	Before []string

	targets  []placement.Target // Of Clusters.
	author   tree.Policy        // Whose they are.
	policy   *placement.Policy  // The one that decided on where; nil if none did.
	request  *placement.Request
	decision *placement.Decision

	marks    map[tree.Policy]mark // Of all override policies.
	after    previous             // For who evaluates what comes then.
	errors   []Finding            // About the object as a whole.
	warnings []Finding
	shown    map[string]bool // Nil when all clusters are.
	refused  bool            // By its type, as it is on the hub.
	refusals map[override.Warning]bool
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

// Targets are the clusters with the shares of replicas that their policy gives
// them, in the order of Clusters.
func (o *Outcome) Targets() []placement.Target { return o.targets }

// Apply returns what one of the clusters, by index, would get by other override
// policies.
func (o *Outcome) Apply(cluster int, policies ...*override.Policy) override.Variant {
	return variant.Render(o.Object.Content, o.Clusters[cluster:cluster+1], o.targets[cluster:cluster+1], o.author, policies...)[0]
}

// Revised returns for which clusters, by index, the object and its override policies make another content than
// those of before would make there: what a rollout is about. Shares of replicas, labels of clusters and placement
// are those of now in both; what cannot be made is another content. Both must have variants.
func (o *Outcome) Revised(before *Outcome) []bool {
	revised := make([]bool, len(o.Clusters))
	if before.Object.Content == o.Object.Content && slices.Equal(before.Policies, o.Policies) {
		return revised
	}
	is := make([]*override.Variant, len(o.Clusters))
	for i := range o.Variants {
		for _, c := range o.Variants[i].Clusters {
			is[c] = &o.Variants[i]
		}
	}
	was := variant.Render(before.Object.Content, o.Clusters, o.targets, o.author, before.Policies...)
	for i := range was {
		differs := map[*override.Variant]bool{}
		for _, c := range was[i].Clusters {
			now := is[c]
			if _, known := differs[now]; !known {
				differs[now] = now == nil || now.Err != nil || was[i].Err != nil || !tree.Equal(was[i].Object.Object, now.Object.Object)
			}
			revised[c] = differs[now]
		}
	}
	return revised
}

// WhyNot returns why the policy that placed the object did not choose a cluster,
// as [placement.Policy.Why] does; ok is false if none placed it.
func (o *Outcome) WhyNot(c *placement.Cluster) (why string, ok bool) {
	if o.policy == nil {
		return "", false
	}
	return o.policy.Why(c, o.request, o.decision), true
}

// Evaluate decides for every object of the set where it goes and what arrives
// there, as the controllers do, and with their engines. A cluster that says that
// it is not ready gets nothing new; a manifest of one that says nothing, and was
// not read from a hub, is taken to be ready. Where the set has Propagations, they are what was there before.
//
// What an object that has a propagation label refers to in its pod template, as it
// arrives at each cluster, or names in its annotation followers, travels with it to
// that cluster: beside the clusters that its own label gets it, and rendered by its
// own override labels. Nothing travels with the object, or it with nothing, if its
// annotation disable-following is "true"; nor if the leader's policy disables it.
// Only where a leader's own policy places it, others travel: nothing follows what
// follows. Where a leader cannot be made, or nothing is written of it for now, what
// travelled with it stays.
//
// An object that asks to stay where it is, of which it is not known where that is,
// is shown where its policy would place it, unless the set is that of a hub.
//
// What is wrong with one object or on one cluster stops no other. Evaluate
// returns an error, and nothing else, when the clusters are not known:
// [ErrNoClusters], [*UnknownClusterError]; and the error of options.Each. If the set has no clusters, those that
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
		each:     options.Each,
		approved: options.Approved,
		out:      &Evaluation{byID: make(map[manifest.Identity]int, len(set.Objects))},
	}
	e.before = e.remember(set, options.Before)
	e.show(options.Clusters)
	e.unready()
	if err := e.objects(set, options.Select); err != nil {
		return nil, err
	}
	if options.Approved && options.Whole {
		e.out.together()
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
	groups   override.Groups      // Of the clusters of placed.
	told     map[tree.Policy]bool // Propagation policies whose warnings have been given.
	before   func(*manifest.Object) previous
	each     func(*Outcome) error // May be nil.
	approved bool                 // Whether what waits for approval takes place.
	out      *Evaluation

	followers *followers
	quiet     bool // Whether the object is not one of those to show.
}

// placing is a question that many objects ask.
type placing struct {
	policy   tree.Policy
	from     *places
	replicas int64 // Negative if they do not matter.
	hash     string
	frozen   bool
	narrowed bool
	approved string
}

// places are clusters that an object is on. They are shared between outcomes and
// not to be modified.
type places struct {
	targets []placement.Target // By cluster.
	names   []string           // The same.
}

// nowhere are no places.
var nowhere = &places{}

func placesOf(targets []placement.Target) *places {
	if len(targets) == 0 {
		return nowhere
	}
	p := &places{targets: targets, names: make([]string, len(targets))}
	for i := range targets {
		p.names[i] = targets[i].Cluster
	}
	return p
}

// placed is the answer.
type placed struct {
	*places

	clusters []match.Cluster // Those of the places.
	request  *placement.Request
	decision placement.Decision
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
func (e *evaluator) object(m *manifest.Object) (*Outcome, error) {
	o := &Outcome{Object: m, ID: m.Identity(), Held: placement.Held(m.Content.GetAnnotations()), shown: e.shown}
	o.Native = placement.Native(e.followers.resource(o.ID.GroupKind), m.Content)
	was := e.before(m)
	o.Before, o.after = was.placed.names, was
	e.decide(o, was)
	for _, name := range slices.Sorted(maps.Keys(was.waiting)) {
		if e.shown == nil || e.shown[name] {
			o.warn(nil, name+": "+was.waiting[name])
		}
	}
	if e.each == nil {
		return o, nil
	}
	return o, e.each(o)
}

func (e *evaluator) decide(o *Outcome, was previous) {
	content := o.Object.Content
	annotations := content.GetAnnotations()
	keeping, doubts := placement.KeepingOf(annotations)
	ref, labelled, warnings, err := placement.Named(content.GetLabels(), content.GetNamespace())
	var taken []string // Where the object follows to.
	if !keeping.DisableFollowing {
		o.Follows, taken = e.followers.with(o.ID, was)
		o.Leaders = e.followers.of(o.ID.Namespace, o.Follows)
	}
	switch {
	case o.Native != "" && (!labelled || content.GetDeletionTimestamp() != nil):
		o.leave(o.Native)
		return
	case content.GetDeletionTimestamp() != nil:
		o.leave("is being deleted: its copies go, too")
		return
	case !placement.Travels(o.ID.GroupKind):
		o.leave("is of a kind that is never placed on clusters")
		return
	case labelled || len(o.Follows) > 0:
	case e.keepsWithdrawn(o, was, &keeping):
		return
	case len(was.placed.names) > 0:
		o.leave("has no propagation label any more: " + e.leaves(o, &keeping))
		return
	case e.live:
		o.leave("has no propagation label: it goes nowhere")
		return
	}
	for _, w := range slices.Concat(warnings, doubts, placement.Ignored(annotations)) {
		o.warn(nil, w)
	}
	for _, f := range keeping.Followers {
		named := &metav1.ObjectMeta{Namespace: content.GetNamespace(), Name: f.Name}
		if why := placement.Native(e.followers.resource(schema.GroupKind{Group: f.Group, Kind: f.Kind}), named); why != "" {
			o.warn(nil, fmt.Sprintf("annotation %s: %s %s does not travel: %s", corev1alpha1.FollowersAnnotation, f.Kind, f.Name, why))
		}
	}
	switch {
	case o.Native != "":
		o.fail(nil, o.Native, "")
		return
	case placement.Lacking(annotations) != "":
		o.fail(nil, placement.Lacking(annotations), "")
		return
	case err != nil:
		o.fail(nil, err.Error(), "")
	}
	if o.Held != "" {
		o.warn(nil, fmt.Sprintf("annotation %s: shown here, but nothing is written to clusters while it is there", o.Held))
	}
	at, goes := placed{places: nowhere}, false
	switch {
	case err != nil:
	case labelled:
		at, goes = e.place(o, ref, keeping.Frozen, was, taken)
	case len(o.Follows) > 0:
		goes = true
	default:
		o.warn(nil, "has no propagation label: shown for every cluster")
		at, goes = e.every(), true
	}
	policies, named, complete := e.overrides(o, was) // What is wrong with these is worth knowing anyway.
	if !goes || !complete {
		return
	}
	at = e.joined(at, taken)
	o.author = ref
	if o.policy != nil {
		o.author = o.policy.Ref
	}
	o.Policies, o.Clusters, o.targets, o.marks = policies, at.clusters, at.targets, e.policies.marks
	o.Variants = variant.RenderGrouped(&e.groups, content, at.clusters, at.targets, o.author, policies...)
	if o.Held == "" && (labelled || len(o.Follows) > 0) {
		o.after = previous{uid: content.GetUID(), placed: at.places, hash: at.decision.Hash, rendered: named, following: o.Follows}
		switch {
		case at.decision.Narrowed:
			o.after.chosenBy = ref
		case labelled && o.policy == nil:
			o.after.chosenBy = was.chosenBy
		}
	}
}

// leaves says what becomes of the copies of an object that asks for nothing any more.
func (e *evaluator) leaves(o *Outcome, keeping *placement.Keeping) string {
	if keeping.Keep || placement.IsVolume(e.followers.resource(o.ID.GroupKind)) {
		return "its copies hold data, and wait for refract approve CLUSTER --delete-volumes"
	}
	return "its copies go"
}

// leave says that the object asks for nothing.
func (o *Outcome) leave(why string) {
	o.Gone, o.after = why, previous{placed: nowhere}
	o.warn(nil, why)
}

// keepsWithdrawn reports whether an object that asks for nothing any more stays where it is, as that waits for
// approval. It says what waits.
func (e *evaluator) keepsWithdrawn(o *Outcome, was previous, keeping *placement.Keeping) bool {
	if len(was.following) > 0 || keeping.Orphan == placement.OrphanAll {
		return false
	}
	held := placement.Withdrawal(was.uid, was.placed.targets)
	if held == nil || held.Number == was.asked.Approved(was.approved) {
		return false
	}
	o.Waits, o.Approval = held, approvalOf(o.ID.Kind, o.ID.Namespace, o.ID.Name)
	if e.approved {
		return false
	}
	o.fail(nil, "has no propagation label any more, and waits for approval: "+held.String(), "")
	return true
}

// approvalOf returns how refract approve names what is approved.
func approvalOf(kind, namespace, name string) string {
	if namespace == "" {
		return strings.ToLower(kind) + "/" + name
	}
	return strings.ToLower(kind) + "/" + namespace + "/" + name
}

// missing says that a policy is not there. Offline there is nothing to wait for.
const missing = "is not in the input"

// place decides where an object belongs that has a label.
func (e *evaluator) place(o *Outcome, ref tree.Policy, frozen bool, was previous, taken []string) (at placed, ok bool) {
	policy := e.policies.propagations[ref]
	switch {
	case policy == nil && len(was.placed.names) == 0:
		o.fail(&ref, missing, e.policies.hint(ref, o.ID.Namespace))
		return at, false
	case policy == nil: // To lose a policy is no reason to take workloads away.
		o.warn(&ref, "was deleted: the object stays on the clusters that have it")
		return placed{places: was.placed, clusters: e.named(was.placed.names), decision: placement.Decision{Hash: was.hash}}, true
	}
	o.Propagation = &ref
	if !e.told[ref] && !e.quiet {
		e.told[ref] = true
		for _, w := range policy.Inert {
			e.out.Warnings = append(e.out.Warnings, Finding{Policy: policyOf(ref), Message: w})
		}
	}
	if frozen {
		frozen = was.known || e.live
		says := "the object comes to no cluster and leaves none"
		if !frozen {
			says = "where the object is nobody knows here; shown where its policy would place it"
		}
		o.warn(nil, fmt.Sprintf("annotation %s: %s", corev1alpha1.NoSchedulingAnnotation, says))
	}
	at = e.choose(ref, policy, o.Object.Content, frozen, was, taken)
	if at.err != nil {
		o.fail(&ref, at.err.Error(), "")
		return at, false
	}
	if held := at.decision.Held; held != nil {
		o.Waits, o.Approval = held, approvalOf(ref.Kind, ref.Namespace, ref.Name)
		if e.approved {
			at.decision = held.Approved()
			at.places = placesOf(at.decision.Targets)
			at.clusters = e.named(at.names)
		} else {
			o.warn(&ref, "waits for approval: "+held.String())
		}
	}
	o.policy, o.request, o.decision = policy, at.request, &at.decision
	if len(at.clusters) == 0 {
		o.warn(&ref, "chooses no cluster for the object")
	}
	for _, w := range at.decision.Remarks() {
		o.warn(&ref, w)
	}
	return at, true
}

// choose asks the policy, once for each question.
func (e *evaluator) choose(ref tree.Policy, policy *placement.Policy, content *unstructured.Unstructured, frozen bool, was previous, taken []string) placed {
	request := &placement.Request{
		Clusters: e.clusters, Previous: was.placed.targets, Hash: was.hash, Frozen: frozen, Narrowed: was.chosenBy == ref,
		Approved: policy.Approved(was.asked, was.approved),
	}
	question := placing{
		policy: ref, from: was.placed, replicas: -1, hash: was.hash, frozen: frozen, narrowed: request.Narrowed, approved: request.Approved,
	}
	if policy.Divides {
		if request.Replicas = variant.Replicas(content); request.Replicas != nil {
			question.replicas = *request.Replicas
		}
	}
	at, ok := e.placed[question]
	if !ok {
		at = e.ask(policy, request)
		e.placed[question] = at
	}
	if at.decision.Held != nil && len(taken) > 0 { // What it is on for others is not lost.
		alone := *request
		alone.Besides = taken
		return e.ask(policy, &alone)
	}
	return at
}

func (e *evaluator) ask(policy *placement.Policy, request *placement.Request) placed {
	at := placed{request: request}
	at.decision, at.err = policy.Place(request)
	at.places = placesOf(at.decision.Targets)
	at.clusters = e.named(at.names)
	return at
}

// every returns all clusters, shared between those who ask.
func (e *evaluator) every() placed {
	if e.all == nil {
		e.all = &placed{}
		targets := make([]placement.Target, len(e.clusters))
		for i := range e.clusters {
			e.all.clusters = append(e.all.clusters, e.clusters[i].Cluster)
			targets[i].Cluster = e.clusters[i].Name
		}
		e.all.places = placesOf(targets)
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
func (e *evaluator) overrides(o *Outcome, was previous) (found []*override.Policy, named []tree.Policy, complete bool) {
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

// previous is what is known of an object from before.
type previous struct {
	known     bool                             // Whether anything is.
	uid       types.UID                        // Another object of the name begins anew. Empty if not known.
	placed    *places                          // The clusters that have, or may have, a copy.
	hash      string                           // Of what that was decided on.
	chosenBy  tree.Policy                      // The policy that chose them by name or by label; zero if none did.
	asked     placement.Question               // What users were asked about a change that waits; zero if none does.
	approved  string                           // The token by which that was approved for the object alone.
	waiting   map[string]string                // Why copies wait for approval to be deleted, by cluster.
	rendered  []tree.Policy                    // Override policies of those copies, without generation.
	following []refractv1alpha1.FollowedObject // What it travelled with.
}

// remember returns what is known from before: what was evaluated then, or else what
// is reported. Clusters that are no more have nothing.
func (e *evaluator) remember(set *manifest.Set, before *Evaluation) func(*manifest.Object) previous {
	present := e.presence()
	if before != nil {
		return func(o *manifest.Object) previous {
			was := before.Find(o.Identity())
			if was == nil || another(was.after.uid, o.Content.GetUID()) {
				return previous{known: true, placed: nowhere}
			}
			is := was.after
			is.known, is.placed = true, present(is.placed)
			return is
		}
	}
	reports := make(map[manifest.Identity]*manifest.Propagation, len(set.Propagations))
	for i := range set.Propagations {
		reports[set.Propagations[i].Source] = &set.Propagations[i]
	}
	return func(o *manifest.Object) previous {
		r := reports[o.Identity()]
		if r == nil || another(r.UID, o.Content.GetUID()) {
			return previous{placed: nowhere}
		}
		return previous{
			known: true, uid: r.UID, placed: present(reported(r)), hash: r.PlacementHash, rendered: r.Rendered, following: r.Follows,
			chosenBy: r.ChosenBy, asked: r.Asked, approved: r.Approved, waiting: r.Waiting,
		}
	}
}

// reported returns where a report says that the object is.
func reported(r *manifest.Propagation) *places {
	targets := make([]placement.Target, len(r.Clusters))
	for i, name := range r.Clusters {
		targets[i].Cluster = name
		if n, divided := r.Replicas[name]; divided {
			targets[i].Replicas = &n
		}
	}
	return placesOf(targets)
}

// another reports whether two UIDs are known to be those of different objects.
func another(a, b types.UID) bool { return a != "" && b != "" && a != b }

// presence returns a function that leaves out of places those on clusters that are
// not known. It returns the same for the same.
func (e *evaluator) presence() func(*places) *places {
	known := make(map[string]bool, len(e.clusters))
	for i := range e.clusters {
		known[e.clusters[i].Name] = true
	}
	seen := map[*places]*places{nil: nowhere, nowhere: nowhere}
	return func(was *places) *places {
		there, ok := seen[was]
		if !ok {
			there = was
			if slices.ContainsFunc(was.names, func(name string) bool { return !known[name] }) {
				there = placesOf(slices.DeleteFunc(slices.Clone(was.targets), func(t placement.Target) bool { return !known[t.Cluster] }))
			}
			seen[was] = there
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
