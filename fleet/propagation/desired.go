package propagation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	variants "refract.dev/fleet/variant"
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

	// gone: the object is missing or asks for nothing, so its copies are removed, for the given cause.
	gone  bool
	cause cause
	// of is the UID of the object that is gone; empty if unknown. recalled is whether the cause is from before a
	// restart.
	of       types.UID
	recalled bool
	// among are the clusters that the decision considered, by name; nil for all. No copy is removed for its placement
	// from another cluster, or from one that was not ready then.
	among []placement.Cluster
	// naming is how many times clusters had been renamed when the decision began.
	naming int64
	// blocked is the reason why nothing may be written or removed for now; empty if it may.
	blocked, blockedMessage string
	// dryRun: nothing is written or removed; the report shows the changes that would be made.
	dryRun bool
	// keeping are the annotations of the object; its Orphan includes that of the leaders. orphan is the object's own
	// annotation, and the one that its followers inherit: otherwise, two objects that follow each other would keep up
	// an annotation forever that neither has any more.
	keeping placement.Keeping
	orphan  orphaning

	targets  map[string]*target // By cluster.
	variants []*variant
	text     int // Bytes of the text of all changes.
	warned   int // Bytes of the warnings of all variants.
	bodies   int // Bytes of the bodies of all variants, kept or not.
	warnings []string
	// propagation is the policy that placed the object, overrides are those that it was rendered with, and deleted
	// those that it names and that were deleted.
	propagation *refractv1alpha1.PolicyReference
	overrides   []refractv1alpha1.PolicyReference
	deleted     []refractv1alpha1.PolicyReference
	placed      []placement.Target // By cluster.
	hash        string             // Of the inputs of the placement.
	// chosenBy is the policy that chose the clusters by name or by label; nil if none did.
	chosenBy *refractv1alpha1.PolicyReference
	// held is a change of the placement that waits for approval; nil if none does.
	held *heldPlacement
	// follows are the leaders of the object.
	follows []Key
	// scales is the workload that the object scales; zero if it is no autoscaler.
	scales Key
	// followers are the followers of the object, with their clusters.
	followers map[Key][]string
	// withheld are objects that would travel with the object to these clusters if that were authorized. Existing copies
	// stay.
	withheld map[Key][]string
	previous previous // The former state that the decision started from.
	// governed describes the rollout policy of the object; nil if it has none. rollout is the plan of the changes by
	// the newest revision, while not every cluster has it.
	governed *governance
	rollout  *rolloutPlan
	// conversions are the object in other versions, for clusters that do not serve the hub's preferred version.
	conversions *conversions
}

// considers reports whether the decision considered a cluster and the cluster was ready. A cluster that is not ready
// gets no new object, and an object that was deleted and created again is new: the copy of the former object stays
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
	// err is why the object could not be rendered for the cluster, which keeps its copy.
	err      error
	replicas *int64 // The cluster's share, if the object is divided.
	policies []refractv1alpha1.PolicyReference
	warnings []string
	// from is the revision that the target is rendered from, if it is not the newest. generation is the generation of
	// the object in that revision.
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
	obj := src.object
	p := &desiredState{gvr: src.gvr, kind: src.kind, targets: map[string]*target{}, among: s.clusters}
	if src.withdrawn != nil && p.staysWithdrawn(src.withdrawn, src, was, s) {
		return p
	}
	if obj == nil || obj.GetDeletionTimestamp() != nil {
		p.gone = true
		return p
	}
	annotations := obj.GetAnnotations()
	keeping, doubts := placement.KeepingOf(annotations)
	leaders := s.followed
	if keeping.DisableFollowing {
		leaders = followed{}
	}
	ref, asks, warnings, err := placement.Named(obj.GetLabels(), obj.GetNamespace())
	if !asks && len(leaders.by)+len(leaders.unknown) == 0 {
		if !p.staysWithdrawn(obj, src, was, s) {
			p.gone, p.keeping.Keep = true, keeping.Keep
		}
		return p
	}
	p.uid, p.generation, p.version = obj.GetUID(), obj.GetGeneration(), obj.GetResourceVersion()
	p.keeping, p.follows = keeping, slices.Concat(leaders.by, leaders.unknown)
	p.dryRun = keeping.DryRun
	p.orphan = orphaning(keeping.Orphan)
	p.keeping.Orphan = string(max(p.orphan, leaders.orphan))
	if was.uid != p.uid {
		was = previous{uid: p.uid}
	}
	p.previous, p.governed = was, s.governed
	p.warnings = slices.Concat(warnings, doubts, placement.Ignored(annotations), s.governed.warned())
	if reason, why := hindrance(src, err, !asks && leaders.unsure); reason != "" {
		return p.block(reason, why)
	}
	policies, blocked := p.findOverrides(obj, was, s)
	if blocked {
		return p
	}
	switch g := s.governed; {
	case g == nil:
	case g.blocked != "":
		return p.block(g.blocked, g.hold)
	case g.policy == nil && g.recorded == nil && g.led == nil:
		// How the object is to change, and its former content, are unknown.
		return p.block(reasonRolloutPolicy, g.hold)
	}
	var policy *placement.Policy
	if asks {
		policy = s.propagation(ref)
	}
	if blocked := p.place(obj, ref, asks, policy, was, s); blocked {
		return p
	}
	own := p.placed
	p.scales = scaledKey(obj, s)
	p.addFollowed(leaders.on(was.placed))
	author := ref
	if policy != nil {
		author = policy.Ref
	}
	now := &material{object: obj, policies: policies, generation: p.generation}
	rendered := p.render(now, author, s)
	if p.governed != nil {
		p.rollout = p.plan(now, sourceOf(s.hub, p.uid, p.gvr.GroupResource(), obj.GetNamespace(), obj.GetName()), s)
		p.governed.target.Allowed = now.allowed
	}
	if asks && !keeping.DisableFollowing && (policy == nil || !policy.DisableFollowers) {
		p.findFollowers(obj, own, rendered, s)
	}
	return p
}

// hindrance returns why an object that asks for propagation may not be written; empty if it may. invalid is the error
// of its labels. unsure is whether the object only follows leaders that are gone and were not known.
func hindrance(src source, invalid error, unsure bool) (reason, why string) {
	if why := placement.Native(src.gvr.GroupResource(), src.object); why != "" {
		return reasonMadeByEachCluster, why
	}
	if why := placement.Lacking(src.object.GetAnnotations()); why != "" {
		return reasonUnconverted, why
	}
	switch {
	case invalid != nil:
		return reasonInvalidLabel, invalid.Error()
	case unsure:
		return reasonLeaderGone, "the object that it travelled with is not on the hub; the copies stay unchanged for a minute, in case it returns"
	default:
		return "", ""
	}
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

// place decides on the clusters of an object that names a propagation policy.
func (p *desiredState) place(obj *unstructured.Unstructured, ref tree.Policy, asks bool, policy *placement.Policy, was previous, s *inputs) (blocked bool) {
	switch {
	case !asks:
		return false
	case policy == nil && len(was.placed) == 0:
		p.block(reasonPolicyNotFound, fmt.Sprintf("%s does not exist; the object waits for it", ref))
		return true
	case policy == nil:
		// The loss of a policy is no reason to remove workloads.
		p.warnings = append(p.warnings, fmt.Sprintf("%s was deleted: the object stays on the clusters that have it", ref))
		p.placed, p.hash, p.chosenBy = present(was.placed, s.clusters), was.hash, was.chosenBy
		return false
	}
	p.propagation = policyReference(policy.Ref)
	p.warnings = append(p.warnings, prefixed(policy.Ref, policy.Inert)...)
	by := policyReference(ref)
	asked := policy.Standing(was.asked)
	if p.dryRun {
		// The change waits for the end of the dry run; the question is asked then.
		asked = placement.Question{}
	}
	decision, err := policy.Place(&placement.Request{
		Clusters: s.clusters, Previous: was.placed, Replicas: variants.Replicas(obj), Hash: was.hash, Frozen: p.keeping.Frozen,
		Narrowed: was.chosenBy != nil && *was.chosenBy == *by, Besides: s.followed.on(was.placed), Together: s.together,
		Approved: policy.Approved(asked, s.approved),
	})
	if err != nil {
		p.block(reasonInvalidPolicy, fmt.Sprintf("%s: %v", policy.Ref, err))
		return true
	}
	if decision.Held != nil && s.unguarded {
		decision = decision.Held.Approved()
	}
	p.placed, p.hash = decision.Targets, decision.Hash
	if decision.Narrowed {
		p.chosenBy = by
	}
	if decision.Held != nil {
		p.held = heldFor(decision.Held, approvalOf(ref.Kind, ref.Namespace, ref.Name), asked)
	}
	p.warnings = append(p.warnings, prefixed(policy.Ref, decision.Remarks())...)
	return false
}

// present returns the targets whose clusters exist.
func present(targets []placement.Target, clusters []placement.Cluster) []placement.Target {
	return slices.DeleteFunc(slices.Clone(targets), func(t placement.Target) bool {
		_, there := slices.BinarySearchFunc(clusters, t.Cluster, func(c placement.Cluster, name string) int { return strings.Compare(c.Name, name) })
		return !there
	})
}

// findOverrides returns the override policies in their order of effect.
func (p *desiredState) findOverrides(obj *unstructured.Unstructured, was previous, s *inputs) (policies []*override.Policy, blocked bool) {
	refs, warnings, err := override.Named(obj.GetLabels(), obj.GetNamespace())
	p.warnings = append(p.warnings, warnings...)
	if err != nil {
		p.block(reasonInvalidLabel, err.Error())
		return nil, true
	}
	for _, ref := range refs {
		policy := s.override(ref)
		switch {
		case policy != nil:
			policies = append(policies, policy)
			p.overrides = append(p.overrides, *policyReference(policy.Ref))
		case slices.Contains(was.rendered, ref):
			p.deleted = append(p.deleted, *policyReference(ref))
			p.warnings = append(p.warnings, fmt.Sprintf("%s: %s was deleted: its changes are reverted", reasonPolicyDeleted, ref))
		default:
			p.block(reasonPolicyNotFound, fmt.Sprintf("%s does not exist; the object waits for it, so that no copy lacks its overrides", ref))
			return nil, true
		}
	}
	return policies, false
}

// sourceOf returns the source annotation of a copy, which names the hub, the object on the hub, and the copy itself. So
// an object that a controller of the member derives from the copy, with the same annotations, is no copy.
func sourceOf(hub string, uid types.UID, resource schema.GroupResource, namespace, name string) string {
	return hub + "/" + string(uid) + copyName(resource, namespace, name)
}

func copyName(resource schema.GroupResource, namespace, name string) string {
	return "/" + resource.String() + "/" + namespace + "/" + name
}

// remember returns the memory after this desired state.
func (p *desiredState) remember(was previous) previous {
	if p.gone {
		was.cause, was.recalled, was.follows = p.cause, p.recalled, nil
		was.asked = placement.Question{}
		return was
	}
	if p.blocked != "" {
		// Copies of a former object of the name may still exist.
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
