package render

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/variant"
	"refract.dev/tree"
)

// placing is the input of a placement. Many objects have the same one.
type placing struct {
	policy   tree.Policy
	from     *places
	replicas int64 // Negative if the placement does not depend on them.
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
	request  *placement.Request
	decision placement.Decision
	err      error
}

// place decides the placement of an object with a propagation label.
func (e *evaluator) place(o *Outcome, ref tree.Policy, frozen bool, was previous, taken []string) (at placed, ok bool) {
	policy := e.policies.propagations[ref]
	switch {
	case policy == nil && len(was.placed.names) == 0:
		o.fail(&ref, missing, e.policies.hint(ref, o.ID.Namespace))
		return at, false
	case policy == nil: // A deleted policy must not remove workloads.
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
		says := "the object is added to no cluster and removed from none"
		if !frozen {
			says = "the clusters of the object are unknown here; shown where its policy would place it"
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

// choose computes the placement by the policy, once for each distinct input.
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
	if at.decision.Held != nil && len(taken) > 0 { // Clusters on which the object follows others are not lost.
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

// every returns the placement on all clusters, shared between objects.
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
// manifest. On a hub, no replica has reached it yet, and it is not ready.
func ready(c *corev1alpha1.FederatedCluster) bool {
	for _, condition := range c.Status.Conditions {
		if condition.Type == corev1alpha1.ClusterReady {
			return condition.Status == metav1.ConditionTrue
		}
	}
	return c.UID == ""
}
