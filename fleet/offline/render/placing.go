package render

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// placing is the input of a placement. Many objects have the same one.
type placing struct {
	policy   tree.Policy
	from     *placement.Target // The first of the former targets.
	replicas int64             // Negative if the placement does not depend on them.
	hash     string
	frozen   bool
	narrowed bool
	approved string
}

// places are the clusters of an object. They are shared between outcomes and must not be modified.
type places struct {
	targets []placement.Target // By cluster.
	names   []string           // The names of the same clusters.
}

// nowhere is the empty list of clusters.
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

// placed is the result of a placement.
type placed struct {
	*places

	clusters []match.Cluster // The clusters of the places.
	decision placement.Decision
	err      error
}

// place computes the placement by a policy, once for each distinct input.
func (e *evaluator) place(policy *placement.Policy, r *placement.Request) (placement.Decision, error) {
	ref := policy.Ref
	ref.Generation = 0
	question := placing{policy: ref, replicas: -1, hash: r.Hash, frozen: r.Frozen, narrowed: r.Narrowed, approved: r.Approved}
	if len(r.Previous) > 0 {
		question.from = &r.Previous[0]
	}
	if policy.Divides && r.Replicas != nil {
		question.replicas = *r.Replicas
	}
	at, known := e.placed[question]
	if !known {
		at.decision, at.err = policy.Place(r)
		e.placed[question] = at
	}
	return at.decision, at.err
}

// placesOf returns the places of targets. Objects with the same targets share them.
func (e *evaluator) placesOf(targets []placement.Target) placed {
	if len(targets) == 0 {
		return placed{places: nowhere}
	}
	at, known := e.places[&targets[0]]
	if !known {
		at.places = placesOf(targets)
		at.clusters = e.named(at.names)
		e.places[&targets[0]] = at
	}
	return at
}

// every returns the placement on all clusters, shared between objects.
func (e *evaluator) every() placed {
	if e.all == nil {
		targets := make([]placement.Target, len(e.clusters))
		for i := range e.clusters {
			targets[i].Cluster = e.clusters[i].Name
		}
		at := e.placesOf(targets)
		e.all = &at
	}
	return *e.all
}

// named returns the clusters with these names. The names must be sorted.
func (e *evaluator) named(names []string) []match.Cluster {
	var clusters []match.Cluster
	for i := range e.clusters {
		if _, found := slices.BinarySearch(names, e.clusters[i].Name); found {
			clusters = append(clusters, e.clusters[i].Cluster)
		}
	}
	return clusters
}

// unready warns about clusters that are not ready.
func (e *evaluator) unready() {
	for i := range e.out.Clusters {
		if c := &e.out.Clusters[i]; !c.Ready {
			e.out.Warnings = append(e.out.Warnings, Finding{
				Cluster: c.Name, Message: "is not ready: it keeps its copies and gets no new ones",
			})
		}
	}
}

// leaving warns about clusters that leave the fleet and are not shown.
func (e *evaluator) leaving(names []string) {
	for _, name := range names {
		if e.shown == nil || e.shown[name] {
			e.out.Warnings = append(e.out.Warnings, Finding{Cluster: name, Message: "leaves the fleet: nothing is placed on it"})
		}
	}
}

// ready reports whether a cluster accepts new objects. A cluster without a condition Ready is ready if it comes from a
// manifest. On a hub, such a cluster is not ready: no replica has reached it yet.
func ready(c *corev1alpha1.FederatedCluster) bool {
	for _, condition := range c.Status.Conditions {
		if condition.Type == corev1alpha1.ClusterReady {
			return condition.Status == metav1.ConditionTrue
		}
	}
	return c.UID == ""
}
