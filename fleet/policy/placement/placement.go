// Package placement decides on which clusters an object is placed, and how its replicas are divided among them. It is
// pure: the same policy, clusters and previous placement give the same answer.
package placement

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"refract.dev/fleet/policy/match"
	"refract.dev/tree"
)

// Cluster has the properties of a cluster that placement depends on.
type Cluster struct {
	match.Cluster
	// Taints keep objects away that do not tolerate them.
	Taints []corev1.Taint
	// Ready is whether the cluster can take objects now. A cluster that is not ready gets no new objects, and keeps its
	// objects.
	Ready bool
}

// Policy is a compiled PropagationPolicy or ClusterPropagationPolicy. It is immutable, and many goroutines may use it.
type Policy struct {
	// Ref names the policy.
	Ref tree.Policy
	// Inert are warnings about fields that are accepted but have no effect.
	Inert []string
	// Divides is whether replicas are divided among the clusters.
	Divides bool
	// DisableFollowers is whether the objects have no followers: objects that travel with them.
	DisableFollowers bool

	selector    match.Clusters
	listed      map[string]preference // Nil if every cluster may be chosen.
	tolerations []corev1.Toleration
	max         int // Negative means no limit.
	binpack     bool
	disrupts    bool        // Whether replicas may move to improve the division.
	reschedule  *reschedule // Nil if every change counts.
	uid         string      // Empty if unknown.
	answer      string      // The token in the policy's annotation.
	approved    string      // The token that approves a change; empty if the policy approves none.
	err         error
}

// Target is a cluster on which an object is placed.
type Target struct {
	Cluster string
	// Replicas is the cluster's share; nil if the object is not divided.
	Replicas *int64
}

// Find returns the index of a cluster in targets, which must be sorted by cluster. The result there is false if no
// target has the cluster.
func Find(targets []Target, cluster string) (at int, there bool) {
	return slices.BinarySearchFunc(targets, cluster, func(t Target, name string) int { return strings.Compare(t.Cluster, name) })
}

// Request is the input of a placement, besides the policy. Place neither modifies nor keeps parts of it.
type Request struct {
	// Clusters are all clusters of the fleet. Place sorts a copy of them unless they are sorted by name.
	Clusters []Cluster
	// Previous is the current placement of the object. Place sorts a copy of it unless it is sorted by cluster.
	Previous []Target
	// Replicas is spec.replicas of the object; nil if the object has no replicas.
	Replicas *int64
	// Hash is the hash of the decision that led to Previous; empty if unknown.
	Hash string
	// Frozen keeps the object on its current clusters.
	Frozen bool
	// Narrowed is whether the policy chose the clusters of Previous by name or by label: [Decision.Narrowed] of the
	// decision that led to Previous.
	Narrowed bool
	// Besides are clusters that the object keeps or gets because it travels with other objects, regardless of the
	// policy.
	Besides []string
	// Together is the sum of the losses of all objects of the namespace, if the sum needs approval; otherwise nil.
	Together *Loss
	// Approved identifies the approved change ([Policy.Approved]); empty if no change is approved.
	Approved string
}

// Decision is the result of a placement.
type Decision struct {
	// Targets are sorted by cluster.
	Targets []Target
	// Hash must be passed with the next request. It is empty for a policy without reschedulePolicy, which makes a new
	// decision each time.
	Hash string
	// Waiting are clusters that a new decision would choose, but that are not targets, because the object is frozen,
	// reschedulePolicy keeps a placement, or replicas stay on their clusters. Sorted.
	Waiting []string
	// Kept is the cause of Waiting: a field of the policy or an annotation. Empty if no cluster waits.
	Kept string
	// Warnings are sentences without a period.
	Warnings []string
	// Narrowed is whether the policy chose the clusters by name or by label. It must be passed with the next request.
	Narrowed bool
	// Held is the change that waits for approval. Targets do not include it. It is nil if no change waits.
	Held *Hold
}

// Place decides on which clusters the object is placed.
//
// A cluster can be chosen if the policy's selector, affinity and placement list all choose it, its taints are
// tolerated, and it is ready. A cluster that has the object can still be chosen if it is not ready, or if a NoSchedule
// taint keeps new objects away. If maxClusters is exceeded, clusters that have the object come first; then, with
// Divide, greater weights or priorities; last, the names decide.
//
// With Divide, the shares add up to the object's replicas if the bounds allow it; otherwise a warning says so. Weights
// refer to the total of the object's replicas: minReplicas and maxReplicas bound the weighted shares, and rounding
// follows the largest remainders and the names. If any cluster of the list has a weight, a cluster without a weight
// gets only its minReplicas. Unless avoidDisruption is switched off, no more replicas move than the bounds and the
// change of the total require. A cluster without a replica is no target, except if the object has zero replicas.
// Clusters that are not ready, or have a NoSchedule taint that is not tolerated, get no more replicas than they have.
// An object without spec.replicas is not divided.
//
// A policy with reschedulePolicy keeps a placement until one of the listed events happens ([Decision.Hash]), the
// object's replicas change, or one of its clusters is gone or has a NoExecute taint that is not tolerated.
//
// Some decisions wait for approval: the object would lose more than 30 % and more than two of its clusters; or the
// policy, which named or selected clusters before, no longer does, and would send the object to further clusters; or
// the object is one of too many in its namespace that would leave the same clusters. The object then stays on its
// clusters with its current shares ([Decision.Held]). Fewer clusters because of fewer replicas are not a loss.
//
// The answer is a fixed point: placing again with the decision as Previous gives the same decision. Place returns an
// error, and no placement, for a policy with mistakes; the object then stays on its clusters.
func (p *Policy) Place(r *Request) (Decision, error) {
	if p.err != nil {
		return Decision{}, p.err
	}
	r = r.sorted()
	hash := p.hash(r)
	d := p.decide(r, hash)
	d.Hash, d.Narrowed = hash, p.narrows() || (r.Narrowed && len(d.Waiting) > 0)
	if r.Frozen {
		d.Hash = r.Hash // A frozen placement is no decision, so the earlier hash stays.
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

// rounds is the maximum number of divisions in the search for a fixed point: a division that stays the same when it is
// used as the previous placement. The second division almost always equals the first.
const rounds = 8

// decide takes the steps of a decision in order: the placement that the object keeps, the candidate clusters, the
// chosen ones, and their shares. Each step has a file, and calls no earlier step. The kept placement comes first,
// because some clusters are candidates only because they have the object.
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

// total returns the replicas to divide, or nil if the object is not divided.
func (p *Policy) total(r *Request) *int64 {
	if !p.Divides {
		return nil
	}
	return r.Replicas
}

// Remarks returns the warnings, and one more about the clusters that wait, if any.
func (d *Decision) Remarks() []string {
	if len(d.Waiting) == 0 {
		return d.Warnings
	}
	waits := fmt.Sprintf("a new decision would also place the object on %s: %s keeps it where it is",
		list(d.Waiting), d.Kept)
	return slices.Concat(d.Warnings, []string{waits})
}
