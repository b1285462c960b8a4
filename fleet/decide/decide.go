// Package decide decides where an object of the hub goes: whether it requests propagation, on which clusters it has
// copies, which override policies apply, and which objects travel with it. The controllers and the offline commands
// decide with it, so their answers are the same.
//
// The package is pure: a decision depends on its arguments alone, and modifies none of them. Rendering the copies is the
// task of package variant.
package decide

import (
	"cmp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/variant"
	"refract.dev/tree"
)

// Object is an object to decide on.
type Object struct {
	// Content is nil if the hub does not have the object.
	Content *unstructured.Unstructured
	// Resource is the type of the object.
	Resource schema.GroupResource
	// Withdrawn is whether a watch has reported the object as gone because it no longer requests propagation.
	Withdrawn bool
}

// Previous is the former decision on an object; zero for a new object, also if an earlier object had the same name.
type Previous struct {
	// UID is the UID of the object; empty if unknown.
	UID types.UID
	// Placed are the clusters that have, or may have, a copy, by name. Unknown is whether Placed is not known, as in
	// offline commands.
	Placed  []placement.Target
	Unknown bool
	// Hash and ChosenBy are fields of the former [Desired].
	Hash     string
	ChosenBy tree.Policy
	// Rendered are the override policies of the copies, without generation.
	Rendered []tree.Policy
	// Asked is the question to users about a pending change; zero without one.
	Asked placement.Question
	// Follows is whether the object travelled with others. Gone is whether it already requested no propagation.
	Follows, Gone bool
}

// World is the input of a decision beside the object.
type World struct {
	// Clusters are all clusters of the fleet, by name.
	Clusters []placement.Cluster
	// Propagation and Override return a policy by its reference without generation; nil if it does not exist.
	Propagation func(tree.Policy) *placement.Policy
	Override    func(tree.Policy) *override.Policy
	// Resource returns the resource of a kind; false if the hub does not serve it.
	Resource func(schema.GroupKind) (schema.GroupResource, bool)
	// Leaders are the objects that this object travels with.
	Leaders Leaders
	// Together is the total loss of all objects of the namespace, if that total needs approval; otherwise nil.
	Together *placement.Loss
	// Approved is the token that approves a change of this object alone. ApproveAll approves all changes.
	Approved   string
	ApproveAll bool
	// Default are the targets of an object that requests no propagation and has no copies, as in a set of manifests
	// without a hub; nil for no targets.
	Default []placement.Target
	// Place replaces [placement.Policy.Place], to reuse results; it may be nil.
	Place func(*placement.Policy, *placement.Request) (placement.Decision, error)
}

// Leaders describes the leaders of an object: the objects that it travels with.
type Leaders struct {
	// Any is whether the object has a leader. Unsure is whether no leader is present, and the state of a missing one
	// was never known, as after a restart.
	Any, Unsure bool
	// Clusters are the clusters of the leaders, and those where the object stays because of them, in any order.
	Clusters []string
}

// Verdict is the kind of a decision.
type Verdict int

// Verdicts.
const (
	Placed  Verdict = iota // The object has copies on the clusters of Targets.
	Blocked                // Nothing may be written or removed, because of the Problems.
	Stays                  // The object no longer requests propagation. Its copies stay: in a dry run, or until Held is approved.
	Gone                   // The object requests no propagation, or does not exist. Its copies are removed.
)

// Reason is the cause of a finding, or of the verdict Gone. The reasons of findings appear in statuses.
type Reason string

// Reasons.
const (
	Missing      Reason = "Missing"      // The hub does not have the object.
	Deleting     Reason = "Deleting"     // The object is being deleted.
	NotPlaced    Reason = "NotPlaced"    // The kind is never placed on clusters.
	NotRequested Reason = "NotRequested" // The object has no label, and travels with no object.

	MadeByEachCluster Reason = "MadeByEachCluster" // Each cluster creates such an object itself.
	Unconverted       Reason = "Unconverted"       // The object lacks content that a conversion has set aside.
	InvalidLabel      Reason = "InvalidLabel"      // A label that names a policy is invalid.
	InvalidPolicy     Reason = "InvalidPolicy"     // The propagation policy cannot be evaluated.
	LeaderGone        Reason = "LeaderGone"        // The object that it travelled with is missing.
	PolicyNotFound    Reason = "PolicyNotFound"    // A named policy does not exist.
	PolicyDeleted     Reason = "PolicyDeleted"     // A policy that was in effect was deleted.
)

// Finding is a problem or a warning. Policy is the policy of the finding, zero for none; Reason may be empty. After
// PolicyNotFound and PolicyDeleted, the message is a predicate of the policy, otherwise a sentence.
type Finding struct {
	Reason  Reason
	Policy  tree.Policy
	Message string
}

// String returns the message, after the policy if there is one.
func (f *Finding) String() string {
	switch {
	case f.Policy.Name == "":
		return f.Message
	case f.Reason == PolicyNotFound, f.Reason == PolicyDeleted:
		return f.Policy.String() + " " + f.Message
	default:
		return f.Policy.String() + ": " + f.Message
	}
}

// Companion is an object that travels with another one.
type Companion struct {
	schema.GroupKind

	Resource schema.GroupResource
	Name     string
}

// Desired is a decision. Slices may be shared with the arguments, and must not be modified.
type Desired struct {
	Verdict Verdict
	// Why is the reason of the verdict Gone.
	Why Reason
	// Problems are all reasons of the verdict Blocked, the most important first.
	Problems []Finding
	Warnings []Finding
	// Keeping has the annotations of the object.
	Keeping placement.Keeping
	// Native is why each cluster creates such an object itself; empty for other objects.
	Native string

	// Asks is whether the object names a propagation policy. Ref is that policy.
	Asks bool
	Ref  tree.Policy
	// Policy is the policy that Ref names; nil if it does not exist. Request and Decision are its input and answer.
	Policy   *placement.Policy
	Request  *placement.Request
	Decision placement.Decision
	// Own are the targets by the policy. Targets also include the clusters of the leaders. Both are sorted by cluster.
	Own, Targets []placement.Target
	// Hash and ChosenBy are for the next [Previous]. ChosenBy is the policy that chose the clusters by name or by label;
	// zero if none did.
	Hash     string
	ChosenBy tree.Policy
	// Held is a change that waits for approval, or that [World.ApproveAll] approved. Asked is the earlier question to
	// users about a change, as far as it still counts.
	Held  *placement.Hold
	Asked placement.Question

	// Named are the override policies that the object names, without generation. Overrides are those of them that
	// exist. Deleted are those that no longer exist, and were in effect before. All are in order of effect.
	Named     []tree.Policy
	Overrides []*override.Policy
	Deleted   []tree.Policy

	// Leads is whether objects travel with this one: those that its rendered pod templates refer to, and Companions,
	// which its annotation names.
	Leads      bool
	Companions []Companion
}

// ApproveArgument returns the argument of refract approve for a change of an object or of the objects of a policy.
func ApproveArgument(kind, namespace, name string) string {
	if namespace == "" {
		return strings.ToLower(kind) + "/" + name
	}
	return strings.ToLower(kind) + "/" + namespace + "/" + name
}

// Author returns the author of the shares of replicas.
func (d *Desired) Author() tree.Policy {
	if d.Policy != nil {
		return d.Policy.Ref
	}
	return d.Ref
}

func (d *Desired) warn(messages ...string) {
	for _, m := range messages {
		d.Warnings = append(d.Warnings, Finding{Message: m})
	}
}

func (d *Desired) fail(reason Reason, policy tree.Policy, message string) {
	d.Verdict = Blocked
	d.Problems = append(d.Problems, Finding{reason, policy, message})
}

func (d *Desired) goes(why Reason) *Desired {
	d.Verdict, d.Why = Gone, why
	return d
}

// Decide decides on an object. It reports all problems of the object, although the controllers report only the first
// one.
func Decide(o *Object, was *Previous, w *World) *Desired {
	d := &Desired{}
	if o.Content == nil {
		return d.goes(Missing)
	}
	annotations, namespace := o.Content.GetAnnotations(), o.Content.GetNamespace()
	keeping, doubts := placement.KeepingOf(annotations)
	ref, asks, warnings, invalid := placement.Named(o.Content.GetLabels(), namespace)
	d.Native, d.Ref, d.Asks = placement.Native(o.Resource, o.Content), ref, asks && !o.Withdrawn
	if keeping.DisableFollowing || o.Withdrawn {
		apart := *w
		apart.Leaders = Leaders{}
		w = &apart
	}
	switch {
	case o.Content.GetDeletionTimestamp() != nil:
		return d.goes(Deleting)
	case !placement.Travels(o.Content.GroupVersionKind().GroupKind()):
		return d.goes(NotPlaced)
	case d.Asks || w.Leaders.Any || w.Default != nil && len(was.Placed) == 0 && d.Native == "":
	case d.stays(o, was, w, &keeping):
		return d
	default:
		d.Keeping.Keep = keeping.Keep
		return d.goes(NotRequested)
	}
	d.Keeping = keeping
	d.warn(slices.Concat(warnings, doubts, placement.Ignored(annotations))...)
	switch lacking := placement.Lacking(annotations); {
	case d.Native != "":
		d.fail(MadeByEachCluster, tree.Policy{}, d.Native)
		return d
	case lacking != "":
		d.fail(Unconverted, tree.Policy{}, lacking)
		return d
	case invalid != nil:
		d.fail(InvalidLabel, tree.Policy{}, invalid.Error())
	case !d.Asks && w.Leaders.Unsure:
		d.fail(LeaderGone, tree.Policy{},
			"the object that it travelled with is not on the hub; the copies stay unchanged for a minute, in case it returns")
	}
	switch {
	case invalid != nil:
	case d.Asks:
		d.place(o, was, w)
	case !w.Leaders.Any:
		d.Own = w.Default
	}
	d.override(o, was, w)
	d.Targets = Joined(d.Own, w.Leaders.Clusters)
	if d.Leads = d.Asks && !keeping.DisableFollowing && (d.Policy == nil || !d.Policy.DisableFollowers); d.Leads && namespace != "" {
		d.name(o, w)
	}
	return d
}

// stays reports whether the copies of an object that no longer requests propagation stay, until an approval or the end
// of a dry run. The label may be missing by mistake: a tool wrote the object without it, or removed it from many
// objects at once.
//
// The copies of an object that only followed other objects are deleted without an approval. It is rarely a mistake if a
// workload no longer refers to the object, and the guard of each member counts the deletions.
func (d *Desired) stays(o *Object, was *Previous, w *World, keeping *placement.Keeping) bool {
	there := present(was.Placed, w.Clusters)
	switch {
	case was.Gone:
		return false
	case keeping.DryRun && len(there) > 0:
		d.Verdict, d.Keeping = Stays, *keeping
		return true
	case was.Follows, keeping.Orphan == placement.OrphanAll, d.Native != "":
		return false
	}
	hold := placement.Withdrawal(cmp.Or(o.Content.GetUID(), was.UID), there)
	if hold == nil || hold.Number == was.Asked.Approved(w.Approved) {
		return false
	}
	d.Held, d.Asked = hold, was.Asked
	if w.ApproveAll {
		return false
	}
	d.Verdict, d.Keeping = Stays, *keeping
	return true
}

// override finds the override policies.
func (d *Desired) override(o *Object, was *Previous, w *World) {
	refs, warnings, err := override.Named(o.Content.GetLabels(), o.Content.GetNamespace())
	d.Named = refs
	d.warn(warnings...)
	if err != nil {
		d.fail(InvalidLabel, tree.Policy{}, err.Error())
		return
	}
	for _, ref := range refs {
		policy := w.Override(ref)
		switch {
		case policy != nil:
			d.Overrides = append(d.Overrides, policy)
		case slices.Contains(was.Rendered, ref):
			d.Deleted = append(d.Deleted, ref)
			d.Warnings = append(d.Warnings, Finding{PolicyDeleted, ref, "was deleted: its changes are reverted"})
		default:
			d.fail(PolicyNotFound, ref, "does not exist; the object waits for it, so that no copy lacks its overrides")
		}
	}
}

// place decides on the clusters of an object that names a propagation policy.
func (d *Desired) place(o *Object, was *Previous, w *World) {
	d.Policy = w.Propagation(d.Ref)
	switch {
	case d.Policy == nil && len(was.Placed) == 0:
		d.fail(PolicyNotFound, d.Ref, "does not exist; the object waits for it")
		return
	case d.Policy == nil:
		// A deleted policy is no reason to remove workloads.
		d.Warnings = append(d.Warnings, Finding{PolicyDeleted, d.Ref, "was deleted: the object stays on the clusters that have it"})
		d.Own, d.Hash, d.ChosenBy = present(was.Placed, w.Clusters), was.Hash, was.ChosenBy
		return
	}
	d.Asked = d.Policy.Standing(was.Asked)
	if d.Keeping.DryRun {
		d.Asked = placement.Question{} // The change waits for the end of the dry run; the question is asked then.
	}
	d.Request = request(o, was, w, &d.Keeping, d.Ref)
	d.Request.Together, d.Request.Approved = w.Together, d.Policy.Approved(d.Asked, w.Approved)
	answer := w.Place
	if answer == nil {
		answer = (*placement.Policy).Place
	}
	var err error
	if d.Decision, err = answer(d.Policy, d.Request); err == nil && d.Decision.Held != nil && len(w.Leaders.Clusters) > 0 {
		// The object stays on the clusters of its leaders, so these clusters are not lost.
		alone := *d.Request
		alone.Besides = w.Leaders.Clusters
		d.Request = &alone
		d.Decision, err = d.Policy.Place(&alone)
	}
	if err != nil {
		d.fail(InvalidPolicy, d.Policy.Ref, err.Error())
		return
	}
	if d.Held = d.Decision.Held; d.Held != nil && w.ApproveAll {
		d.Decision = d.Held.Approved()
	}
	d.Own, d.Hash = d.Decision.Targets, d.Decision.Hash
	if d.Decision.Narrowed {
		d.ChosenBy = d.Ref
	}
	for _, remark := range d.Decision.Remarks() {
		d.Warnings = append(d.Warnings, Finding{Policy: d.Policy.Ref, Message: remark})
	}
}

func request(o *Object, was *Previous, w *World, keeping *placement.Keeping, ref tree.Policy) *placement.Request {
	return &placement.Request{
		Clusters: w.Clusters, Previous: was.Placed, Replicas: variant.Replicas(o.Content), Hash: was.Hash, Frozen: keeping.Frozen && !was.Unknown,
		Narrowed: was.ChosenBy == ref && ref.Name != "",
	}
}

// Ask returns the question to the propagation policy of an object, for [placement.Together]; ok is false if the object
// names no policy, or is being deleted.
func Ask(o *Object, was *Previous, w *World) (asked placement.Asked, ok bool) {
	if o.Content == nil || o.Content.GetDeletionTimestamp() != nil {
		return asked, false
	}
	ref, asks, _, err := placement.Named(o.Content.GetLabels(), o.Content.GetNamespace())
	if !asks || err != nil {
		return asked, false
	}
	keeping, _ := placement.KeepingOf(o.Content.GetAnnotations())
	asked = placement.Asked{Policy: w.Propagation(ref), Request: request(o, was, w, &keeping, ref)}
	asked.Request.Besides = w.Leaders.Clusters
	return asked, true
}

// Joined adds clusters to targets that are sorted by cluster. It modifies no argument.
func Joined(targets []placement.Target, clusters []string) []placement.Target {
	joined := targets
	for _, name := range clusters {
		at, there := placement.Find(joined, name)
		switch {
		case there:
			continue
		case len(joined) == len(targets):
			joined = slices.Clone(joined)
		}
		joined = slices.Insert(joined, at, placement.Target{Cluster: name})
	}
	return joined
}

// present returns the targets whose clusters exist.
func present(targets []placement.Target, clusters []placement.Cluster) []placement.Target {
	exists := func(t placement.Target) bool {
		_, there := slices.BinarySearchFunc(clusters, t.Cluster, func(c placement.Cluster, name string) int { return strings.Compare(c.Name, name) })
		return there
	}
	if !slices.ContainsFunc(targets, func(t placement.Target) bool { return !exists(t) }) {
		return targets
	}
	return slices.DeleteFunc(slices.Clone(targets), func(t placement.Target) bool { return !exists(t) })
}
