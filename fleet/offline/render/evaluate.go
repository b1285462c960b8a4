package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
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
	// Approved evaluates as if all pending changes of placements were approved. Whole reports whether the set then has
	// all objects of its namespaces. Only then can their common losses of clusters be counted.
	Approved, Whole bool
	// Each is called with each outcome immediately. An error from Each ends the evaluation, for example
	// because the request was canceled or the result grows too large. An object that others follow may be passed twice.
	// Each may be nil.
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
// An object with a propagation label has followers: for each cluster, the objects that its rendered pod template refers
// to, and the objects named in its annotation followers. A follower goes to the clusters of its leaders in addition
// to the clusters of its own propagation label, and is rendered with its own override labels. An object whose
// annotation disable-following is "true" has no followers and follows nothing. The propagation policy of the leader can
// disable followers, too. A follower has followers of its own only on the clusters of its own policy. Where a leader
// cannot be rendered, or an annotation keeps the controllers from writing it, its former followers stay.
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
	groups   override.Groups      // Of the clusters in placed.
	told     map[tree.Policy]bool // Propagation policies whose warnings are already in the result.
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

// object evaluates one object, in the order of the controllers.
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
	var taken []string // The clusters of the leaders.
	if !keeping.DisableFollowing {
		o.Follows, taken = e.followers.with(o.ID, was)
		o.Leaders = e.followers.of(o.ID.Namespace, o.Follows)
	}
	switch {
	case o.Native != "" && (!labelled || content.GetDeletionTimestamp() != nil):
		o.leave(o.Native)
		return
	case content.GetDeletionTimestamp() != nil:
		o.leave("is being deleted: its copies are deleted, too")
		return
	case !placement.Travels(o.ID.GroupKind):
		o.leave("is of a kind that is never placed on clusters")
		return
	case labelled || len(o.Follows) > 0:
	case o.Held != "" && len(was.placed.names) > 0:
		o.warn(nil, fmt.Sprintf("has no propagation label any more, and its copies stay while annotation %s is there", o.Held))
		return
	case e.keepsWithdrawn(o, was, &keeping):
		return
	case len(was.placed.names) > 0:
		o.leave("has no propagation label any more: " + e.leaves(o, &keeping))
		return
	case e.live:
		o.leave("has no propagation label: it is placed on no cluster")
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
		o.warn(nil, fmt.Sprintf("annotation %s: shown here, but nothing is written to clusters while it is set", o.Held))
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
	policies, named, complete := e.overrides(o, was) // Evaluated in any case, so that errors of the override policies are reported.
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
		o.after.chosenBy = chosenBy(&at, ref, was, labelled && o.policy == nil)
	}
}

// chosenBy returns the policy that chose the clusters by name or by label. orphaned reports that the policy named by
// the object is missing; the answer is then that of the earlier decision.
func chosenBy(at *placed, ref tree.Policy, was previous, orphaned bool) (policy tree.Policy) {
	switch {
	case at.decision.Narrowed:
		return ref
	case orphaned:
		return was.chosenBy
	default:
		return policy
	}
}

// leaves describes the fate of the copies of an object that no longer asks for propagation.
func (e *evaluator) leaves(o *Outcome, keeping *placement.Keeping) string {
	if keeping.Keep || placement.IsVolume(e.followers.resource(o.ID.GroupKind)) {
		return "its copies hold data, and wait for refract approve CLUSTER --delete-volumes"
	}
	return "its copies are deleted"
}

// leave records that the object does not ask for propagation.
func (o *Outcome) leave(why string) {
	o.Gone, o.after = why, previous{placed: nowhere}
	o.warn(nil, why)
}

// keepsWithdrawn reports whether an object that no longer asks for propagation stays on its clusters, because its
// removal awaits approval. It records the pending change.
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

// approvalOf returns the argument of refract approve for an object or policy.
func approvalOf(kind, namespace, name string) string {
	if namespace == "" {
		return strings.ToLower(kind) + "/" + name
	}
	return strings.ToLower(kind) + "/" + namespace + "/" + name
}

// missing is the error of a policy that does not exist. Offline, it cannot appear later.
const missing = "is not in the input"

// overrides returns the existing override policies of the object in their order of effect, and the references of all
// that the object names. complete is false if one is missing.
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
			o.warn(&ref, "was deleted: its changes are reverted")
		default:
			o.fail(&ref, missing, e.policies.hint(ref, o.ID.Namespace))
			complete = false
		}
	}
	return found, refs, complete
}

// clustersOf returns all clusters, by name, and the sorted names of clusters that leave the fleet. The latter are not
// among the former, so they get no share of replicas.
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
