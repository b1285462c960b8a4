package propagation

import (
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	decision "refract.dev/fleet/decide"
	"refract.dev/fleet/policy/placement"
	"refract.dev/internal/rescue"
	"refract.dev/tree"
)

// Reasons of the condition Synced and of cluster statuses.
const (
	reasonSynced            = "Synced"
	reasonProgressing       = "Progressing"
	reasonNoClusterMatches  = "NoClusterMatches"
	reasonMadeByEachCluster = "MadeByEachCluster"
	reasonPolicyNotFound    = "PolicyNotFound"
	reasonPolicyDeleted     = "PolicyDeleted"
	reasonInvalidPolicy     = "InvalidPolicy"
	reasonInvalidLabel      = "InvalidLabel"
	reasonDryRun            = "DryRun"
	reasonOverrideFailed    = "OverrideFailed"
	reasonAlreadyExists     = "AlreadyExists"
	reasonRejected          = "Rejected"
	reasonTypeNotServed     = "TypeNotServed"
	reasonWebhookFailed     = "WebhookFailed"
	reasonUnreachable       = "Unreachable"
	reasonUnreadable        = "Unreadable"
	reasonInternalError     = "InternalError"
	reasonWriteFailed       = "WriteFailed"
	reasonClusterNotReady   = "ClusterNotReady"
	reasonBeingDeleted      = "BeingDeleted"
	reasonLeaderGone        = "LeaderGone"
	reasonSourceGone        = "SourceGone"
	reasonNoLongerPlaced    = "NoLongerPlaced"
	reasonDeletionFailed    = "DeletionFailed"
	reasonAwaitingApproval  = refractv1alpha1.ReasonAwaitingApproval
	reasonClusterLeaves     = "ClusterLeaves"
	reasonChangedAgain      = "ChangedAgainAndAgain"
	reasonRolloutPolicy     = "RolloutPolicyNotUsable"
	reasonRevisionTooLarge  = "RevisionTooLarge"
	reasonWaitsForFollower  = "WaitsForFollower"
	reasonBackingOff        = "BackingOff"
	reasonUnconverted       = "Unconverted"
	reasonOutcomeUnknown    = "OutcomeUnknown"
	reasonKeepsContent      = "KeepsContent"
	reasonAwaitsRollout     = "AwaitsRollout"
)

// desiredState is what should be true of one object on all clusters.
type desiredState struct {
	seq        int64     // Grows with each desired state of the key.
	made       time.Time // The time of the decision.
	gvr        schema.GroupVersionResource
	kind       string
	uid        types.UID
	generation int64
	version    string // The resourceVersion of the object.

	// gone is whether the object is missing or does not ask for propagation, so its copies are removed, for the given
	// cause.
	gone  bool
	cause cause
	// of is the UID of the object that is gone; empty if unknown.
	of types.UID
	// among are the clusters that the decision considered, sorted by name; nil for all. The placement removes no copy
	// from any other cluster, or from a cluster that was not ready at the decision.
	among []placement.Cluster
	// naming is the number of renames and departures of clusters before the decision began.
	naming int64
	// blocked is the reason why nothing may be written or removed at present; empty if there is none.
	blocked, blockedMessage string
	// dryRun is whether nothing is written or removed; the report shows the changes that would be made.
	dryRun bool
	// keeping are the annotations of the object. Its Orphan also includes the annotations of the leaders, which are the
	// objects that it travels with. orphan is the object's own annotation. Followers inherit only orphan: otherwise,
	// two objects that travel with each other would keep an annotation forever after both have lost it.
	keeping placement.Keeping
	orphan  orphaning

	targets  map[string]*target // By cluster.
	variants []*variant
	text     int // Bytes of the text of all changes.
	warned   int // Bytes of the warnings of all variants.
	bodies   int // Bytes of the bodies of all variants, kept or not.
	warnings []string
	// propagation is the policy that placed the object. overrides are the policies that it was rendered with; deleted are
	// those that it names and that do not exist any more.
	propagation *refractv1alpha1.PolicyReference
	overrides   []refractv1alpha1.PolicyReference
	deleted     []refractv1alpha1.PolicyReference
	placed      []placement.Target // By cluster.
	hash        string             // The hash of the inputs of the placement.
	// chosenBy is the policy that chose the clusters by name or by label; nil if none did.
	chosenBy *refractv1alpha1.PolicyReference
	// held is a change of the placement that waits for approval; nil if none does.
	held *heldPlacement
	// follows are the leaders of the object: the objects that it travels with.
	follows []Key
	// scales is the workload that the object scales; zero if it is no autoscaler.
	scales Key
	// followers are the followers of the object, with their clusters.
	followers map[Key][]string
	// withheld are objects that would travel with the object to these clusters if that were authorized. Existing copies
	// stay.
	withheld map[Key][]string
	previous previous // The results of earlier decisions at the start of this one.
	// governed describes the rollout policy of the object; nil if it has none. rollout is the plan for the newest
	// revision, until every cluster has it.
	governed *governance
	rollout  *rolloutPlan
	// conversions are the object in other versions, for clusters that do not serve the hub's preferred version.
	conversions *conversions
}

// considers reports whether the decision considered a cluster and the cluster was ready. A cluster that is not ready
// gets no new object. An object that was deleted and created again counts as new: the copy of the former object stays
// until the cluster is ready and the object is decided again.
func (p *desiredState) considers(name string) bool {
	if p.gone || p.among == nil {
		return true
	}
	at, found := slices.BinarySearchFunc(p.among, name, func(c placement.Cluster, name string) int { return strings.Compare(c.Name, name) })
	return found && p.among[at].Ready
}

// target is what should be true on one cluster.
type target struct {
	variant *variant // Nil if err is set.
	// err is the reason for which the object could not be rendered for the cluster. The cluster keeps its copy.
	err      error
	replicas *int64 // The cluster's share, if the object is divided.
	policies []refractv1alpha1.PolicyReference
	warnings []string
	// from is the revision that the target is rendered from; nil if it is the newest. generation is the generation of the
	// object in that revision.
	from       *material
	generation int64
}

// fails reports whether the object belongs on the cluster and cannot be rendered for it.
func (t *target) fails() bool { return t != nil && t.err != nil }

// variant is one of the distinct contents that the clusters of an object get.
type variant struct {
	*content

	changes []string // In the form of the report; only the first variants have them.
}

// decideSafely is decide with a recovery: if the input of a user causes a panic, the object is blocked, keeps its
// copies, and reports the error.
func decideSafely(key Key, src source, was previous, s *inputs, log logr.Logger) *desiredState {
	p, err := func() (p *desiredState, err error) {
		defer rescue.To(&err, log, "decide", "key", key)
		return decide(src, was, s), nil
	}()
	obj := src.object
	switch {
	case err == nil:
		p.warnings = fewer(p.warnings)
		return p
	case obj == nil:
		return p
	}
	if was.uid != obj.GetUID() {
		was = previous{uid: obj.GetUID()}
	}
	keeping, _ := placement.KeepingOf(obj.GetAnnotations())
	p = &desiredState{
		gvr: src.gvr, kind: src.kind, targets: map[string]*target{}, uid: obj.GetUID(), generation: obj.GetGeneration(), orphan: orphaning(keeping.Orphan),
		placed: was.placed, hash: was.hash, chosenBy: was.chosenBy, follows: was.follows, previous: was, governed: s.governed,
	}
	return p.block(reasonInternalError, err.Error())
}

// decide returns the desired state of one object. It is pure, except that the inputs read caches.
func decide(src source, was previous, s *inputs) *desiredState {
	p := &desiredState{gvr: src.gvr, kind: src.kind, targets: map[string]*target{}, among: s.clusters}
	object := decision.Object{Content: src.object, Resource: src.gvr.GroupResource()}
	if src.object == nil {
		object.Content, object.Withdrawn = src.withdrawn, src.withdrawn != nil
	}
	obj := object.Content
	if obj != nil && was.uid != obj.GetUID() {
		was = previous{uid: obj.GetUID()}
	}
	d := decision.Decide(&object, was.decided(), s.world(&was))
	if d.Verdict == decision.Gone {
		p.gone, p.keeping.Keep = true, d.Keeping.Keep
		return p
	}
	p.uid, p.generation, p.version = obj.GetUID(), obj.GetGeneration(), obj.GetResourceVersion()
	p.previous, p.governed, p.keeping, p.orphan = was, s.governed, d.Keeping, orphaning(d.Keeping.Orphan)
	if d.Verdict == decision.Stays {
		return p.stays(d, obj)
	}
	leaders := s.followed
	if d.Keeping.DisableFollowing {
		leaders = followed{}
	}
	p.follows = slices.Concat(leaders.by, leaders.unknown)
	p.dryRun = d.Keeping.DryRun
	p.keeping.Orphan = string(max(p.orphan, leaders.orphan))
	p.warnings = slices.Concat(texts(d.Warnings), s.governed.warned())
	if d.Policy != nil {
		p.propagation = policyReference(d.Policy.Ref)
		p.warnings = append(p.warnings, prefixed(d.Policy.Ref, d.Policy.Inert)...)
	}
	if d.Verdict == decision.Blocked {
		return p.block(string(d.Problems[0].Reason), d.Problems[0].String())
	}
	switch g := s.governed; {
	case g == nil:
	case g.blocked != "":
		return p.block(g.blocked, g.hold)
	case g.policy == nil && g.recorded == nil && g.led == nil:
		// The former content and the rollout of the change are unknown.
		return p.block(reasonRolloutPolicy, g.hold)
	}
	for _, policy := range d.Overrides {
		p.overrides = append(p.overrides, *policyReference(policy.Ref))
	}
	for _, ref := range d.Deleted {
		p.deleted = append(p.deleted, *policyReference(ref))
	}
	p.placed, p.hash = d.Targets, d.Hash
	if d.ChosenBy.Name != "" {
		p.chosenBy = policyReference(d.ChosenBy)
	}
	if d.Held != nil && !s.unguarded {
		p.held = heldFor(d.Held, decision.ApproveArgument(d.Ref.Kind, d.Ref.Namespace, d.Ref.Name), d.Asked)
	}
	p.scales = scaledKey(obj, s)
	now := &material{object: obj, policies: d.Overrides, generation: p.generation}
	rendered := p.render(now, d.Author(), s)
	if p.governed != nil {
		p.rollout = p.plan(now, sourceOf(s.hub, p.uid, p.gvr.GroupResource(), obj.GetNamespace(), obj.GetName()), s)
		p.governed.target.Allowed = now.allowed
	}
	if d.Leads {
		p.findFollowers(obj, d, rendered, s)
	}
	return p
}

// decided converts the remembered state to the type that decisions take.
func (was *previous) decided() *decision.Previous {
	is := &decision.Previous{
		UID: was.uid, Placed: was.placed, Hash: was.hash, Rendered: was.rendered, Asked: was.asked, Follows: len(was.follows) > 0, Gone: was.cause != "",
	}
	if c := was.chosenBy; c != nil {
		is.ChosenBy = tree.Policy{Kind: c.Kind, Namespace: c.Namespace, Name: c.Name}
	}
	return is
}

// world converts the inputs to the type that decisions take.
func (s *inputs) world(was *previous) *decision.World {
	leaders := &s.followed
	return &decision.World{
		Clusters: s.clusters, Propagation: s.propagation, Override: s.override, Resource: s.resource,
		Leaders:  decision.Leaders{Any: len(leaders.by)+len(leaders.unknown) > 0, Unsure: leaders.unsure, Clusters: leaders.on(was.placed)},
		Together: s.together, Approved: s.approved, ApproveAll: s.unguarded,
	}
}

// texts returns findings as sentences.
func texts(found []decision.Finding) []string {
	var all []string
	for i := range found {
		text := found[i].String()
		if f := &found[i]; f.Reason == decision.PolicyDeleted && strings.HasSuffix(f.Policy.Kind, corev1alpha1.KindOverridePolicy) {
			text = reasonPolicyDeleted + ": " + text
		}
		all = append(all, text)
	}
	return all
}

// stays returns the desired state of an object that no longer requests propagation, but keeps its previous placement.
func (p *desiredState) stays(d *decision.Desired, obj *unstructured.Unstructured) *desiredState {
	if d.Held == nil {
		return p.block(reasonDryRun, "annotation "+corev1alpha1.DryRunAnnotation+": the copies stay, though the object no longer requests propagation")
	}
	p.held = heldFor(d.Held, decision.ApproveArgument(p.kind, obj.GetNamespace(), obj.GetName()), d.Asked)
	return p.block(reasonAwaitingApproval, p.held.message())
}

func (p *desiredState) block(reason, message string) *desiredState {
	p.blocked, p.blockedMessage = reason, message
	// The copies are still those that were rendered with these policies.
	p.overrides, p.deleted = nil, nil
	for _, ref := range p.previous.rendered {
		p.overrides = append(p.overrides, *policyReference(ref))
	}
	return p
}

// sourceOf returns the source annotation of a copy, which names the hub, the object on the hub, and the copy itself. So
// an object that a controller of the member derives from the copy, with the same annotations, does not count as a copy.
func sourceOf(hub string, uid types.UID, resource schema.GroupResource, namespace, name string) string {
	return hub + "/" + string(uid) + copyName(resource, namespace, name)
}

func copyName(resource schema.GroupResource, namespace, name string) string {
	return "/" + resource.String() + "/" + namespace + "/" + name
}

// remember returns the results that the next decision needs, including this desired state.
func (p *desiredState) remember(was previous) previous {
	if p.gone {
		was.uid, was.cause, was.follows = p.of, p.cause, nil
		was.asked = placement.Question{}
		return was
	}
	if p.blocked != "" {
		// Copies of a former object of the same name may still exist.
		return previous{
			uid: p.uid, placed: was.placed, hash: p.previous.hash, chosenBy: p.previous.chosenBy,
			rendered: p.previous.rendered, follows: p.previous.follows, rollout: p.governed.own(was.rollout),
			asked: p.held.question(),
		}
	}
	now := previous{
		uid: p.uid, placed: p.placed, hash: p.hash, chosenBy: p.chosenBy, follows: p.follows, rollout: p.governed.own(was.rollout),
		asked: p.held.question(),
	}
	if p.dryRun {
		now.placed, now.hash, now.chosenBy = was.placed, was.hash, was.chosenBy
	}
	for _, refs := range [][]refractv1alpha1.PolicyReference{p.overrides, p.deleted} {
		for _, r := range refs {
			now.rendered = append(now.rendered, tree.Policy{Kind: r.Kind, Namespace: r.Namespace, Name: r.Name})
		}
	}
	return now
}

// uses reports whether the desired state was made with the policy at this generation.
func (p *desiredState) uses(ref tree.Policy, generation int64) bool {
	ref.Generation = generation
	is := *policyReference(ref)
	return (p.propagation != nil && *p.propagation == is) || slices.Contains(p.overrides, is)
}

func policyReference(p tree.Policy) *refractv1alpha1.PolicyReference {
	return &refractv1alpha1.PolicyReference{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name, Generation: p.Generation}
}

func prefixed(policy tree.Policy, warnings []string) []string {
	out := make([]string, len(warnings))
	for i, w := range warnings {
		out[i] = policy.String() + ": " + w
	}
	return out
}
