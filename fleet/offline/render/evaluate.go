package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/decide"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/variant"
	"refract.dev/tree"
)

// Options are the options of an evaluation.
type Options struct {
	// Clusters are the names of the clusters to show; without any, all are shown. Placement considers all clusters in
	// any case.
	Clusters []string
	// Select chooses the objects; nil chooses all.
	Select func(*manifest.Object) bool
	// Before is the evaluation of the earlier state; nil if that state is not known. With it, objects stay on their
	// clusters where maxClusters leaves a choice, and the changes of an override policy that no longer exists are
	// rolled back. Without it, an object waits for the missing policy.
	Before *Evaluation
	// Approved evaluates as if all pending changes of placements were approved. Whole states that the set has all
	// objects of the namespaces after the change. Without it, it is not known how many objects would leave a cluster
	// together.
	Approved, Whole bool
	// Each is called with each outcome immediately. An error from Each ends the evaluation, for example because the
	// request was canceled or the result grows too large. A leader, an object that others travel with, may be passed
	// twice. Each may be nil.
	Each func(*Outcome) error
}

// Evaluation is the result of evaluating the objects of a set.
type Evaluation struct {
	// Clusters are the clusters to show, by name.
	Clusters []placement.Cluster
	// Outcomes are in the order of the input.
	Outcomes []Outcome
	// Warnings concern clusters, and policies independently of an object.
	Warnings []Finding

	byID map[manifest.Identity]int // Index in Outcomes.
}

// Evaluate decides for every object of the set its clusters and their content, with the engines of the controllers and
// in their order. A cluster that reports that it is not ready gets nothing new. A cluster without a condition Ready
// counts as ready, unless it was read from a hub. A cluster that is deleted and leaves the fleet gets nothing. The
// Propagations of the set, if any, are the earlier state.
//
// An object with a propagation label is the leader of its followers: for each cluster, the objects that its rendered
// pod template refers to, and the objects named in its annotation followers. A follower goes to the clusters of its
// leaders in addition to the clusters of its own propagation label, and is rendered with its own override labels. An
// object whose annotation disable-following is "true" has no followers and follows nothing. The propagation policy of
// the leader can disable followers, too. A follower has followers of its own only on the clusters of its own policy.
// Where a leader cannot be rendered, or an annotation keeps the controllers from writing it, its former followers stay.
//
// An object with the annotation no-scheduling stays on its clusters. If these are not known, the object is shown on the
// clusters that its policy would choose, unless the set is that of a hub.
//
// An error in one object or on one cluster does not affect the others. Evaluate returns an error, and no result, if the
// clusters are not known ([ErrNoClusters], [*UnknownClusterError]), and the error of options.Each. If the set has no
// clusters, those named in the options are assumed to exist, without labels.
func Evaluate(set *manifest.Set, options Options) (*Evaluation, error) {
	clusters, leaving, err := clustersOf(set, options.Clusters)
	if err != nil {
		return nil, err
	}
	e := &evaluator{
		policies: policiesOf(set),
		live:     set.Live,
		clusters: clusters,
		placed:   map[placing]placed{},
		places:   map[*placement.Target]placed{},
		told:     map[tree.Policy]bool{},
		each:     options.Each,
		approved: options.Approved,
		out:      &Evaluation{byID: make(map[manifest.Identity]int, len(set.Objects))},
	}
	e.before = e.remember(set, options.Before)
	e.show(options.Clusters)
	e.unready()
	e.leaving(leaving)
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
	clusters []placement.Cluster // All known clusters, by name.
	all      *placed             // The placement on all clusters, computed on first use.
	live     bool                // Whether the set is the state of a hub.
	shown    map[string]bool     // Nil if all clusters are shown.
	placed   map[placing]placed
	places   map[*placement.Target]placed // By the first target.
	groups   override.Groups              // Of the clusters in placed.
	told     map[tree.Policy]bool         // Propagation policies whose warnings are already in the result.
	before   func(*manifest.Object) previous
	each     func(*Outcome) error // May be nil.
	approved bool                 // Whether pending changes of placements count as approved.
	out      *Evaluation

	followers *followers
	quiet     bool // Whether the current object is not selected.
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

// object evaluates one object.
func (e *evaluator) object(m *manifest.Object) (*Outcome, error) {
	o := &Outcome{Object: m, ID: m.Identity(), Held: placement.Held(m.Content.GetAnnotations()), shown: e.shown}
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
	object := decide.Object{Content: content, Resource: e.followers.resource(o.ID.GroupKind)}
	var taken []string // The clusters of the leaders.
	o.Follows, taken = e.followers.with(o.ID, was)
	d := decide.Decide(&object, was.decided(e.live), e.world(was, len(o.Follows) > 0, taken))
	o.Native, o.Waits = d.Native, d.Held
	if o.Waits != nil {
		o.Approval = decide.ApproveArgument(o.ID.Kind, o.ID.Namespace, o.ID.Name)
		if d.Asks {
			o.Approval = decide.ApproveArgument(d.Ref.Kind, d.Ref.Namespace, d.Ref.Name)
		}
	}
	if d.Keeping.DisableFollowing || d.Verdict == decide.Gone {
		o.Follows = nil
	}
	o.Leaders = e.followers.of(o.ID.Namespace, o.Follows)
	switch d.Verdict {
	case decide.Gone:
		o.leave(e.leaves(o, d, was))
		return
	case decide.Stays:
		if d.Held == nil {
			o.warn(nil, fmt.Sprintf("has no propagation label any more, and its copies stay while annotation %s is there", o.Held))
			return
		}
		o.fail(nil, "has no propagation label any more, and waits for approval: "+d.Held.String(), "")
		return
	case decide.Placed, decide.Blocked:
	}
	e.tell(o, d, was)
	if d.Verdict == decide.Blocked {
		return
	}
	requests := d.Asks || len(o.Follows) > 0
	at := e.placesOf(d.Targets)
	o.author = d.Author()
	o.Policies, o.Clusters, o.targets, o.marks = d.Overrides, at.clusters, at.targets, e.policies.marks
	o.Variants = variant.RenderGrouped(&e.groups, content, at.clusters, at.targets, o.author, d.Overrides...)
	o.leads, o.companions = d.Leads || !requests, d.Companions
	if o.Held == "" && requests {
		o.after = previous{uid: content.GetUID(), placed: at.places, hash: d.Hash, rendered: d.Named, following: o.Follows, chosenBy: d.ChosenBy}
	}
}

// world returns the inputs of a decision. taken are the clusters of the leaders.
func (e *evaluator) world(was previous, follows bool, taken []string) *decide.World {
	w := &decide.World{
		Clusters:    e.clusters,
		Propagation: func(ref tree.Policy) *placement.Policy { return e.policies.propagations[ref] },
		Override:    func(ref tree.Policy) *override.Policy { return e.policies.overrides[ref] },
		Resource:    func(kind schema.GroupKind) (schema.GroupResource, bool) { return e.followers.resource(kind), true },
		Leaders:     decide.Leaders{Any: follows, Clusters: taken},
		Approved:    was.approved, ApproveAll: e.approved,
		Place: e.place,
	}
	if !e.live {
		w.Default = e.every().targets
	}
	return w
}

// tell records the findings of a decision in the outcome.
func (e *evaluator) tell(o *Outcome, d *decide.Desired, was previous) {
	for i := range d.Warnings {
		o.warn(policyIn(&d.Warnings[i]), d.Warnings[i].Message)
	}
	for i := range d.Problems {
		p := &d.Problems[i]
		message, hint := p.Message, ""
		if p.Reason == decide.PolicyNotFound {
			message, hint = missing, e.policies.hint(p.Policy, o.ID.Namespace)
		}
		o.fail(policyIn(p), message, hint)
	}
	if o.Held != "" {
		o.warn(nil, fmt.Sprintf("annotation %s: shown here, but nothing is written to clusters while it is set", o.Held))
	}
	switch {
	case d.Policy != nil:
		e.tellPlacing(o, d, was)
	case !d.Asks && len(o.Follows) == 0 && len(d.Targets) > 0:
		o.warn(nil, "has no propagation label: shown for every cluster")
	}
}

// tellPlacing records the findings about the placement by a policy.
func (e *evaluator) tellPlacing(o *Outcome, d *decide.Desired, was previous) {
	ref := d.Ref
	o.Propagation, o.policy, o.request, o.decision = &ref, d.Policy, d.Request, &d.Decision
	if !e.told[ref] && !e.quiet {
		e.told[ref] = true
		for _, w := range d.Policy.Inert {
			e.out.Warnings = append(e.out.Warnings, Finding{Policy: policyOf(ref), Message: w})
		}
	}
	if d.Keeping.Frozen {
		says := "the object is added to no cluster and removed from none"
		if !was.known && !e.live {
			says = "the clusters of the object are unknown here; shown where its policy would place it"
		}
		o.warn(nil, fmt.Sprintf("annotation %s: %s", corev1alpha1.NoSchedulingAnnotation, says))
	}
	if d.Held != nil && !e.approved {
		o.warn(&ref, "waits for approval: "+d.Held.String())
	}
	if len(d.Own) == 0 && !slices.ContainsFunc(d.Problems, func(p decide.Finding) bool { return p.Reason == decide.InvalidPolicy }) {
		o.warn(&ref, "chooses no cluster for the object")
	}
}

func policyIn(f *decide.Finding) *tree.Policy {
	if f.Policy.Name == "" {
		return nil
	}
	return &f.Policy
}

// leaves describes why an object requests no propagation, and what happens to its copies.
func (e *evaluator) leaves(o *Outcome, d *decide.Desired, was previous) string {
	switch {
	case o.Native != "":
		return o.Native
	case d.Why == decide.Deleting:
		return "is being deleted: its copies are deleted, too"
	case d.Why == decide.NotPlaced:
		return "is of a kind that is never placed on clusters"
	case len(was.placed.names) == 0:
		return "has no propagation label: it is placed on no cluster"
	case d.Keeping.Keep || placement.IsVolume(e.followers.resource(o.ID.GroupKind)):
		return "has no propagation label any more: its copies hold data, and wait for refract approve CLUSTER --delete-volumes"
	default:
		return "has no propagation label any more: its copies are deleted"
	}
}

// leave records that the object does not ask for propagation.
func (o *Outcome) leave(why string) {
	o.Gone, o.after = why, previous{placed: nowhere}
	o.warn(nil, why)
}

// missing is the error of a policy that does not exist. Offline, it cannot appear later.
const missing = "is not in the input"

// clustersOf returns all clusters that stay in the fleet, by name, and the sorted names of the clusters that leave it.
// Clusters that leave get no share of replicas.
func clustersOf(set *manifest.Set, only []string) (clusters []placement.Cluster, leaving []string, err error) {
	if len(set.Clusters) == 0 && set.Live {
		return nil, nil, ErrNoClusters
	}
	if len(set.Clusters) == 0 {
		for _, name := range slices.Compact(slices.Sorted(slices.Values(only))) {
			// KubeAdmiral's documentation has cluster names with capital letters.
			if msgs := validation.NameIsDNSSubdomain(strings.ToLower(name), false); len(msgs) > 0 {
				return nil, nil, fmt.Errorf("%q is not a valid name of a cluster: %s", name, msgs[0])
			}
			clusters = append(clusters, placement.Cluster{Cluster: match.Cluster{Name: name}, Ready: true})
		}
		if len(clusters) == 0 {
			return nil, nil, ErrNoClusters
		}
		return clusters, nil, nil
	}
	clusters = make([]placement.Cluster, 0, len(set.Clusters))
	names := make([]string, len(set.Clusters))
	for i := range set.Clusters {
		c := set.Clusters[i].Cluster
		names[i] = c.Name
		if isLeaving(c, set) {
			leaving = append(leaving, c.Name)
			continue
		}
		clusters = append(clusters, placement.Cluster{
			Cluster: match.Cluster{Name: c.Name, Labels: c.Labels},
			Taints:  c.Spec.Taints,
			Ready:   ready(c),
		})
	}
	slices.Sort(leaving)
	slices.SortFunc(clusters, func(a, b placement.Cluster) int { return strings.Compare(a.Name, b.Name) })
	for _, name := range only {
		if !slices.Contains(names, name) {
			return nil, nil, &UnknownClusterError{Name: name, Near: nearest.To(name, names)}
		}
	}
	return clusters, leaving, nil
}

// isLeaving reports whether a cluster leaves the fleet: its FederatedCluster is being deleted, and no other
// FederatedCluster stands for the same cluster.
func isLeaving(c *corev1alpha1.FederatedCluster, set *manifest.Set) bool {
	return !c.DeletionTimestamp.IsZero() && !slices.ContainsFunc(set.Clusters, func(o manifest.Cluster) bool { return placement.Contests(o.Cluster, c) })
}
