package propagation

import (
	"maps"
	"slices"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/placement"
)

// The Propagations of the objects in a namespace are deleted with the namespace. The status of each FederatedCluster
// then lists the copies that are still to be deleted, for example on a member that is away. So after a restart a
// requested deletion still counts as requested.
//
// The decision to delete a copy because of such an entry would be wrong if
//   - the object was created again: the decision reads the object from the hub first, and keeps the copies of an
//     existing object;
//   - the copy belonged to another object of the name, as after a restore of the hub or the member: the entry has the
//     UID of the hub's object, and the deletion of another object's copy was not requested;
//   - the cause needed an approval: the guard judges the copy by its cause, like any other copy;
//   - the deletion was already done: each look at the cluster writes the list again with the remaining copies;
//   - the copy belonged to another hub: a copy names its hub;
//   - the list was too short for all copies: after a restart the others are [causeForgotten], the cause with the
//     strictest judgement.
//
// The list is deleted with its FederatedCluster. The FederatedCluster is only deleted after its copies are gone, or
// after a user decided to leave them on the cluster, or after the name that has replaced its name lists them. An entry
// of a replaced name counts for the name that is served instead: no work is done under a replaced name, so nothing would
// remove a row with that name.

// bereave records that an object is gone together with its Propagation. It returns the clusters that have, or may have,
// a copy.
func (s *state) bereave(key Key) (left []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return nil
	}
	left = slices.Collect(maps.Keys(e.statuses))
	for i := range e.previous.placed {
		if name := e.previous.placed[i].Cluster; !slices.Contains(left, name) {
			left = append(left, name)
		}
	}
	if len(left) > 0 {
		s.bare[key] = true
	}
	return left
}

// owed returns the copies on a cluster that are to be deleted and have no Propagation. Requested deletions come first;
// MaxPendingDeletions bounds the list.
func (s *state) owed(cluster string) (list []corev1alpha1.PendingDeletion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var asked, others []Key
	for key := range s.bare {
		e := s.objects[key]
		if e == nil || !e.desired.gone {
			delete(s.bare, key) // The object exists again, and has a Propagation.
			continue
		}
		_, reported := e.statuses[cluster]
		_, placed := placement.Find(e.previous.placed, cluster)
		switch {
		case !reported && !placed:
		case e.desired.cause.asked():
			asked = append(asked, key)
		default:
			others = append(others, key)
		}
	}
	slices.SortFunc(asked, compareKeys)
	slices.SortFunc(others, compareKeys)
	keys := slices.Concat(asked, others)
	for _, key := range keys[:min(len(keys), corev1alpha1.MaxPendingDeletions)] {
		e := s.objects[key]
		list = append(list, corev1alpha1.PendingDeletion{
			Resource: key.GroupResource.String(), Namespace: key.Namespace, Name: key.Name, UID: e.previous.uid, Cause: string(e.desired.cause),
		})
	}
	return list
}

// owedCopy is a copy that the status of a FederatedCluster lists.
type owedCopy struct {
	Key

	cluster string
}

// hear records that an entry of a FederatedCluster has been decided. The record stays until the status no longer has
// the entry.
func (s *state) hear(c owedCopy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard[c] = true
}

// decided reports whether the entry of a FederatedCluster for a copy has been decided.
func (s *state) decided(c owedCopy) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[c.Key] != nil || s.heard[c]
}

// unheard forgets the entries of a cluster that [state.hear] recorded and that its FederatedCluster no longer lists.
func (s *state) unheard(cluster string, told []corev1alpha1.PendingDeletion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.heard, func(c owedCopy, _ bool) bool {
		return c.cluster == cluster && !slices.ContainsFunc(told, func(d corev1alpha1.PendingDeletion) bool { return member.OwedKey(&d) == c.Key })
	})
}

// owed returns the pending deletions for the status of a cluster: the copies that are to be deleted, and the entries of
// the status about which this replica has not decided yet, for example after a restart or a change of the leading
// replica. It enqueues decisions about these entries.
func (d *dispatcher) owed(name string) []corev1alpha1.PendingDeletion {
	if to := d.members.Successor(name); to != "" {
		return d.owedStill(name, to)
	}
	list, told := d.state.owed(name), d.members.OwedBy(name)
	for i := range told {
		if key := member.OwedKey(&told[i]); !d.state.decided(owedCopy{key, name}) {
			list = append(list, told[i])
			d.decider.add(key, priorityResync)
		}
	}
	d.state.unheard(name, told)
	return list[:min(len(list), corev1alpha1.MaxPendingDeletions)]
}

// owedStill returns the entries in the status of a replaced name that the name which is served instead is to list. The
// others are done.
func (d *dispatcher) owedStill(name, to string) []corev1alpha1.PendingDeletion {
	told := d.members.OwedBy(name)
	if len(told) == 0 {
		return nil
	}
	next := map[Key]bool{}
	for _, owed := range d.owed(to) {
		next[member.OwedKey(&owed)] = true
	}
	return slices.DeleteFunc(slices.Clone(told), func(owed corev1alpha1.PendingDeletion) bool { return !next[member.OwedKey(&owed)] })
}

// recall adds the entries of the FederatedClusters for an object to the facts from its Propagation.
func recall(was previous, owed map[string]corev1alpha1.PendingDeletion) previous {
	for _, name := range slices.Sorted(maps.Keys(owed)) {
		d := owed[name]
		if said := causeOf(d.Cause); was.uid == "" && said != "" {
			was.uid, was.cause = d.UID, said
		}
		if slices.ContainsFunc(was.statuses, func(s refractv1alpha1.ClusterStatus) bool { return s.Name == name }) {
			continue
		}
		was.statuses = append(was.statuses, refractv1alpha1.ClusterStatus{
			Name: name, State: refractv1alpha1.StateDeleting, Reason: reasonSourceGone,
		})
	}
	return was
}
