// Package placement decides on which clusters an object is placed, and how its
// replicas are divided among them. It is pure: the same policy, clusters and
// previous placement give the same answer.
package placement

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
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
// The answer is a fixed point: placing with the decision as Previous decides the
// same. Place returns an error, and no placement, for a policy with mistakes; the
// object then stays where it is.
func (p *Policy) Place(r *Request) (Decision, error) {
	if p.err != nil {
		return Decision{}, p.err
	}
	r = r.sorted()
	var d Decision
	switch hash := p.hash(r); {
	case r.Frozen:
		d = p.keep(r, r.stay(), "annotation "+corev1alpha1.NoSchedulingAnnotation)
		d.Hash = r.Hash // What is decided when the object is free again is not this.
	case p.reschedule != nil && p.reschedule.disabled && len(r.stay()) > 0:
		d = p.within(r)
		d.Hash = hash
	case p.keeps(r, hash):
		d = p.keep(r, r.stay(), "spec.reschedulePolicy")
		d.Hash = hash
	default:
		d = p.anew(r)
		d.Hash = hash
	}
	if p.Divides && r.Replicas == nil {
		d.Warnings = append(d.Warnings, "schedulingMode Divide: the object has no spec.replicas, so each cluster gets all of it")
	}
	return d, nil
}

// Remarks returns the warnings, and one about the clusters that wait, if any do.
func (d *Decision) Remarks() []string {
	if len(d.Waiting) == 0 {
		return d.Warnings
	}
	waits := fmt.Sprintf("decided anew, the object would be placed on %s, too: %s keeps it where it is", list(d.Waiting), d.Kept)
	return slices.Concat(d.Warnings, []string{waits})
}

// anew decides on everything anew, but that what is there has a preference.
func (p *Policy) anew(r *Request) Decision {
	if p.Divides && r.Replicas != nil {
		return p.settle(r)
	}
	return Decision{Targets: p.choose(r)}
}

// choose returns the clusters of an object that is not divided.
func (p *Policy) choose(r *Request) []Target {
	room := len(r.Clusters)
	if p.max >= 0 {
		room = min(room, p.max)
	}
	chosen := make([]Target, 0, room)
	kept := 0
	for c, was := range r.each() {
		if !p.fits(c, was != nil) {
			continue
		}
		if was != nil {
			kept++
		}
		chosen = append(chosen, Target{Cluster: c.Name})
	}
	if p.max < 0 || len(chosen) <= p.max {
		return chosen
	}
	keep, fresh := min(kept, p.max), p.max-min(kept, p.max)
	return slices.DeleteFunc(chosen, func(t Target) bool {
		left := &fresh
		if _, held := find(r.Previous, t.Cluster); held {
			left = &keep
		}
		*left--
		return *left < 0
	})
}

// each goes through the clusters, with what the object has there; nil if it is not
// there.
func (r *Request) each() func(yield func(*Cluster, *Target) bool) {
	return func(yield func(*Cluster, *Target) bool) {
		next := 0
		for i := range r.Clusters {
			c := &r.Clusters[i]
			for next < len(r.Previous) && r.Previous[next].Cluster < c.Name {
				next++
			}
			var was *Target
			if next < len(r.Previous) && r.Previous[next].Cluster == c.Name {
				was = &r.Previous[next]
			}
			if !yield(c, was) {
				return
			}
		}
	}
}

// stay returns what the object has on clusters that there are.
func (r *Request) stay() []Target {
	var there []Target
	for _, was := range r.each() {
		if was != nil {
			there = append(there, *was)
		}
	}
	return there
}

// sorted returns the request, or one that is sorted if it is not.
func (r *Request) sorted() *Request {
	byName := func(a, b Cluster) int { return strings.Compare(a.Name, b.Name) }
	byCluster := func(a, b Target) int { return strings.Compare(a.Cluster, b.Cluster) }
	inOrder := true
	for i := 1; i < len(r.Clusters) && inOrder; i++ {
		inOrder = r.Clusters[i-1].Name <= r.Clusters[i].Name
	}
	if inOrder && slices.IsSortedFunc(r.Previous, byCluster) {
		return r
	}
	s := *r
	s.Clusters = slices.SortedFunc(slices.Values(r.Clusters), byName)
	s.Previous = slices.SortedFunc(slices.Values(r.Previous), byCluster)
	return &s
}

func find(targets []Target, cluster string) (int, bool) {
	return slices.BinarySearchFunc(targets, cluster, func(t Target, name string) int { return strings.Compare(t.Cluster, name) })
}

// missing returns the names of the targets of a that are not among those of b.
func missing(a, b []Target) []string {
	var names []string
	for i := range a {
		if _, found := find(b, a[i].Cluster); !found {
			names = append(names, a[i].Cluster)
		}
	}
	return names
}

func (p *Policy) fits(c *Cluster, placed bool) bool {
	if p.listed != nil {
		if _, ok := p.listed[c.Name]; !ok {
			return false
		}
	}
	return p.selector.Match(&c.Cluster) && p.tolerates(c.Taints, placed) && (c.Ready || placed)
}

// tolerates follows Kubernetes: NoSchedule keeps new objects away, NoExecute
// also those that are there, PreferNoSchedule none.
func (p *Policy) tolerates(taints []corev1.Taint, placed bool) bool {
	for i := range taints {
		t := &taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule || (t.Effect == corev1.TaintEffectNoSchedule && placed) {
			continue
		}
		if !p.toleratesOne(t) {
			return false
		}
	}
	return true
}

func (p *Policy) toleratesOne(t *corev1.Taint) bool {
	for i := range p.tolerations {
		if tolerated(t, &p.tolerations[i]) {
			return true
		}
	}
	return false
}

func tolerated(t *corev1.Taint, by *corev1.Toleration) bool {
	if (by.Effect != "" && by.Effect != t.Effect) || (by.Key != "" && by.Key != t.Key) {
		return false
	}
	switch by.Operator {
	case corev1.TolerationOpExists:
		return true
	case corev1.TolerationOpEqual, "":
		return by.Key != "" && by.Value == t.Value
	default:
		return false
	}
}

// few is how many clusters a warning lists before it counts the rest.
const few = 3

func list(names []string) string {
	if len(names) <= few+1 {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
