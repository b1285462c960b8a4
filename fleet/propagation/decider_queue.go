package propagation

import (
	"context"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"refract.dev/tree"
)

// add enqueues an object for a decision.
func (d *decider) add(key Key, p priority) { d.queue.add(key, p) }

// decideAgain enqueues the objects for new decisions after a change of a dependency.
func (d *decider) decideAgain(keys []Key) {
	for _, key := range keys {
		d.queue.add(key, priorityDependency)
	}
}

// decideEverything enqueues all objects for new decisions. Only changed results reach the clusters.
func (d *decider) decideEverything(context.Context, struct{}) (reconcile.Result, error) {
	d.rounds.Add(1)
	d.last.Store(time.Now().UnixNano())
	d.spent.Store(0)
	keys, _ := d.sources.all()
	for _, key := range slices.Concat(keys, d.sources.companions(), d.state.keys(), d.members.AllOwed()) {
		d.queue.add(key, priorityResync)
	}
	return reconcile.Result{}, nil
}

// reviewEverything enqueues all policies: a policy may have been edited before this replica led, so its status is still
// to be written. Decisions do not enqueue such a policy if their results do not change.
func (d *decider) reviewEverything() {
	for _, policy := range d.policies.all() {
		d.reviewer.queue.add(referenceTo(policy), priorityResync)
	}
}

// clustersChanged schedules a round that decides all objects again.
func (d *decider) clustersChanged() {
	spent, since := time.Duration(d.spent.Load())/deciders, time.Since(time.Unix(0, d.last.Load()))
	d.everything.addAfter(struct{}{}, max(clusterDelay, min(spent, mostClusterDelay)-max(since, 0))) // A clock may also be set back.
}

// sourceChanged enqueues an object that appeared, changed or disappeared. initial is whether it is from the first list
// of its type.
func (d *decider) sourceChanged(key Key, initial bool) {
	p := priorityChanged
	if initial {
		p = priorityResync
	} else {
		d.unfloored.editedIn(key.Namespace)
	}
	d.queue.add(key, priorityOf(key, p))
}

// floorChanged enqueues all objects of a namespace for new decisions, because another rollout policy governs their
// changes.
func (d *decider) floorChanged(namespace string) {
	keys, _ := d.sources.all()
	for _, key := range keys {
		if key.Namespace == namespace {
			d.queue.add(key, priorityDependency)
		}
	}
}

// policyChanged enqueues all objects that name the policy for new decisions.
func (d *decider) policyChanged(ref tree.Policy) {
	d.state.epoch.Add(1)
	d.edited.Add(1)
	d.unfloored.editedEverywhere()
	d.decideAgain(d.state.usersOf(ref))
	d.reviewer.queue.add(ref, priorityDependency)
}

// priorityOf returns p, or priorityRequired for namespaces and CustomResourceDefinitions, which other objects need
// first.
func priorityOf(key Key, p priority) priority {
	if p >= priorityDependency && (key.GroupResource == namespaceResource.GroupResource() || key.GroupResource == crdResource.GroupResource()) {
		return priorityRequired
	}
	return p
}
