// Package placement decides on which clusters an object is placed, and how its
// replicas are divided among them. It is pure: the same policy, clusters and
// previous placement give the same answer.
package placement

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"refract.dev/match"
	"refract.dev/tree"
)

// Cluster is what placement knows of a cluster.
type Cluster struct {
	match.Cluster
	// Taints keep objects that do not tolerate them away.
	Taints []corev1.Taint
	// Ready is whether the cluster can take objects now. One that is not ready
	// gets nothing new and keeps what it has.
	Ready bool
}

// Policy is a compiled PropagationPolicy or ClusterPropagationPolicy. It is
// immutable and may be used by many goroutines.
type Policy struct {
	// Ref names the policy.
	Ref tree.Policy
	// Inert are warnings about fields that are accepted and not acted on.
	Inert []string
	// Divides is whether replicas are divided among the clusters.
	Divides bool
	// DisableFollowers is whether nothing travels with the objects.
	DisableFollowers bool

	selector    match.Clusters
	listed      map[string]preference // Nil when every cluster may be chosen.
	tolerations []corev1.Toleration
	max         int // Negative means no bound.
	binpack     bool
	disrupts    bool        // Whether replicas move to where they would be put anew.
	reschedule  *reschedule // Nil when everything counts.
	uid         string      // Empty if it is not known.
	answer      string      // The token that the policy has as an annotation,
	approved    string      // and which approves a change; empty if it approves none.
	err         error
}

// Target is a cluster that an object belongs on.
type Target struct {
	Cluster string
	// Replicas is the cluster's share; nil if the object is not divided.
	Replicas *int64
}

// Request is what a placement depends on besides the policy. Place modifies and
// keeps nothing of it.
type Request struct {
	// Clusters are all that there are, by name.
	Clusters []Cluster
	// Previous is where the object is now, by cluster.
	Previous []Target
	// Replicas is spec.replicas of the object; nil if it has none.
	Replicas *int64
	// Hash is that of the decision that led to Previous; empty if it is not known.
	Hash string
	// Frozen keeps the object on the clusters that it is on.
	Frozen bool
	// Narrowed is whether the policy chose the clusters of Previous by name or by label:
	// [Decision.Narrowed] of the decision that led to it.
	Narrowed bool
	// Besides are clusters that the object keeps, or gets, whatever the policy chooses, as it
	// travels with others.
	Besides []string
	// Together is what the objects of the namespace would leave together; nil if they may.
	Together *Loss
	// Approved is the number of the change that is approved for the object ([Policy.Approved]); empty if none is.
	Approved string
}

// Decision is where an object belongs.
type Decision struct {
	// Targets are sorted by cluster.
	Targets []Target
	// Hash is to be given with the next request. It is empty for a policy without
	// reschedulePolicy, which always decides anew.
	Hash string
	// Waiting are clusters that would be among the targets if it were decided anew
	// now, and are not: the object is frozen, reschedulePolicy keeps a placement, or
	// replicas stay where they are. Sorted.
	Waiting []string
	// Kept says what keeps the object from the clusters that wait: a field of the
	// policy or an annotation. Empty if none waits.
	Kept string
	// Warnings are sentences without an end mark.
	Warnings []string
	// Narrowed is whether the clusters were chosen by name or by label. It is to be given
	// with the next request.
	Narrowed bool
	// Held is the change that waits for approval, and is not in Targets; nil if none does.
	Held *Hold
}

// Place decides on which clusters the object belongs.
//
// A cluster can be chosen if the policy's selector, affinity and placement list all
// choose it, its taints are tolerated, and it is ready. One that the object is on
// stays chosen though it is not ready or a NoSchedule taint keeps new objects away.
// Where maxClusters leaves a choice, clusters that the object is on are kept; then,
// with Divide, greater weights or priorities decide, and last the names.
//
// With Divide the shares add up to the object's replicas if the bounds allow it;
// if not, a warning says so. Weights are of the object's replicas as a whole:
// minReplicas and maxReplicas bound what they give, rounded by the largest
// remainders and the names. If any cluster of the list has a weight, one without
// has none, and gets no more than its minReplicas. Unless avoidDisruption is
// switched off, no more replicas move than the bounds and the difference of the
// total ask for. A cluster without a replica is no target, except when the object
// has none at all. Clusters that are not ready, or have a NoSchedule taint, get no
// more than they have. An object without replicas is not divided.
//
// A policy with reschedulePolicy keeps a placement until something happens that it
// names ([Decision.Hash]), the object's replicas change, or a cluster of it is gone
// or has a NoExecute taint that is not tolerated.
//
// A decision by which the object loses more than 30 % and more than two of the clusters that it is
// on, or comes to further clusters because the policy names and selects none any more, waits for
// approval: the object stays where it is, with the shares that it has ([Decision.Held]). Fewer clusters
// because of fewer replicas are no loss. So does a decision by which the object leaves clusters that too many of the
// objects of its namespace would leave together.
//
// The answer is a fixed point: placing with the decision as Previous decides the
// same. Place returns an error, and no placement, for a policy with mistakes; the
// object then stays where it is.
func (p *Policy) Place(r *Request) (Decision, error) {
	if p.err != nil {
		return Decision{}, p.err
	}
	r = r.sorted()
	hash := p.hash(r)
	d := p.decide(r, hash)
	d.Hash, d.Narrowed = hash, p.narrows() || (r.Narrowed && len(d.Waiting) > 0)
	if r.Frozen {
		d.Hash = r.Hash // What is decided when the object is free again is not this.
	}
	if held := p.hold(r, &d); held != nil {
		d = p.waits(r, held)
	}
	if p.Divides && r.Replicas == nil {
		d.Warnings = append(d.Warnings,
			"schedulingMode Divide: the object has no spec.replicas, so each cluster gets all of it")
	}
	return d, nil
}

// rounds is how often replicas are divided at most until the division, taken as
// what was before, stays as it is. Nearly always the second is like the first.
const rounds = 8

// decide takes the steps of a decision in order: what keeps the object where it is, which
// clusters are candidates, which of these are chosen, and what each gets. Each step has a
// file, and calls none before it. What is kept comes first, as clusters may be candidates
// only because the object is on them.
func (p *Policy) decide(r *Request, hash string) Decision {
	total := p.total(r)
	keeping := p.keep(r, hash)
	at := *r
	if keeping.by != "" {
		at.Previous = keeping.targets
	}
	if total == nil {
		candidates := p.fitting(&at)
		return keeping.or(Decision{Targets: p.choose(candidates, at.Previous)}, nil)
	}
	var d Decision
	for range rounds {
		candidates := p.candidates(&at)
		chosen := p.chooseParts(candidates)
		d = p.divide(chosen, *total, false)
		if slices.EqualFunc(d.Targets, at.Previous, equalTargets) {
			break
		}
		at.Previous = d.Targets
	}
	return keeping.or(d, total)
}

// total returns the replicas to be divided; nil if the object is not divided.
func (p *Policy) total(r *Request) *int64 {
	if !p.Divides {
		return nil
	}
	return r.Replicas
}

// Remarks returns the warnings, and one about the clusters that wait, if any do.
func (d *Decision) Remarks() []string {
	if len(d.Waiting) == 0 {
		return d.Warnings
	}
	waits := fmt.Sprintf("decided anew, the object would be placed on %s, too: %s keeps it where it is",
		list(d.Waiting), d.Kept)
	return slices.Concat(d.Warnings, []string{waits})
}
