package propagation

import (
	"maps"
	"slices"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/member"
)

// A namespace takes the Propagations of its objects along. What is still to be deleted then, as on a member that is away, stands in the
// status of each FederatedCluster, so that a restart turns no deletion that somebody has asked for into one that nobody has.
//
// The decision to delete a copy for what stands there would be wrong if
//   - the object was created again: the hub is asked for the object first, and its copies are those of an object that is there;
//   - the copy is of another object of that name, as after a restore of the hub or the member: the UID of the hub's object stands there,
//     and a copy of another object was not asked for;
//   - the cause needs an approval: the guard judges the copy by the cause, as any other;
//   - it stands there when it is done: each look at the cluster writes down what is left;
//   - another hub's copies have the name: a copy names its hub;
//   - not all has room: what is not listed is [causeForgotten] after a restart, which is judged most strictly.
//
// With a FederatedCluster that is deleted its list goes; it goes when its copies are gone, or when somebody leaves them to the cluster.

// bereave records that an object is gone together with its record, and returns the clusters that have, or may have, a copy.
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

// owed returns the copies on a cluster that are to be deleted, and that no record tells of: those that somebody has asked for first.
func (s *state) owed(cluster string) (list []corev1alpha1.PendingDeletion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var asked, others []Key
	for key := range s.bare {
		e := s.objects[key]
		if e == nil || !e.desired.gone {
			delete(s.bare, key) // It is there again, and has a record.
			continue
		}
		_, reported := e.statuses[cluster]
		_, placed := find(e.previous.placed, cluster)
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

// owedCopy is a copy that the FederatedCluster tells of.
type owedCopy struct {
	Key

	cluster string
}

// hear records that what a FederatedCluster says of a copy, until it is written again, is done.
func (s *state) hear(c owedCopy) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard[c] = true
}

// decided reports whether it is decided what becomes of a copy that a FederatedCluster tells of.
func (s *state) decided(c owedCopy) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[c.Key] != nil || s.heard[c]
}

// unheard forgets what was heard of copies on a cluster that its FederatedCluster does not tell of any more.
func (s *state) unheard(cluster string, told []corev1alpha1.PendingDeletion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.heard, func(c owedCopy, _ bool) bool {
		return c.cluster == cluster && !slices.ContainsFunc(told, func(d corev1alpha1.PendingDeletion) bool { return member.OwedKey(&d) == c.Key })
	})
}

// owed returns what the status of a cluster is to say: what is to be deleted, and what it says and is not decided about yet, as
// after a restart, or when another replica had the cluster.
func (d *dispatcher) owed(name string) []corev1alpha1.PendingDeletion {
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

// allOwed returns the keys that the clusters tell of which this replica writes to.
func (d *decider) allOwed() []Key { return d.members.AllOwed(d.shards.Owns) }

// recall adds to what was reported of an object what the FederatedClusters say of it.
func recall(was previous, owed map[string]corev1alpha1.PendingDeletion) previous {
	for _, name := range slices.Sorted(maps.Keys(owed)) {
		d := owed[name]
		if said := causeOf(d.Cause); was.uid == "" && said != "" {
			was.uid, was.cause, was.recalled = d.UID, said, true
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
