package propagation

import (
	"sync"

	"refract.dev/fleet/policy/placement"
	variants "refract.dev/fleet/variant"
)

// losses are the copies that the objects of namespaces would lose together. They are computed once for each change of
// policies or clusters, before the first of the objects leaves a cluster, so that all objects get the same answer.
type losses struct {
	mu   sync.Mutex
	at   begun
	seen map[string]*placement.Loss // By namespace; nil if its objects may leave.
}

// leaves reports whether the placement by the policy removes an object from an existing cluster.
func (p *desiredState) leaves(was previous, s *inputs) bool {
	if p.gone || p.blocked != "" || p.held != nil || p.propagation == nil || s.unguarded || was.uid != p.uid {
		return false
	}
	for _, t := range present(was.placed, s.clusters) {
		if _, stays := find(p.placed, t.Cluster); !stays {
			return true
		}
	}
	return false
}

// decideTogether decides an object. If the object leaves a cluster, the decision includes the losses of its whole
// namespace. Known is false while these are unknown.
func (d *decider) decideTogether(key Key, src source, was previous, in *inputs) (p *desiredState, known bool) {
	p = decideSafely(key, src, was, in, d.log)
	if !p.leaves(was, in) {
		return p, true
	}
	if in.together, known = d.together(key.Namespace); in.together == nil {
		return p, known
	}
	return decideSafely(key, src, was, in, d.log), true
}

// together returns the losses of a namespace; nil if its objects may leave. Known is false while the existence of one
// of the objects is unknown. Completed removals do not count again.
func (d *decider) together(namespace string) (loss *placement.Loss, known bool) {
	d.losses.mu.Lock()
	defer d.losses.mu.Unlock()
	if now := d.now(); d.losses.seen == nil || d.losses.at != now {
		d.losses.at, d.losses.seen = now, map[string]*placement.Loss{}
	}
	if loss, known = d.losses.seen[namespace]; known {
		return loss, true
	}
	keys := map[Key]bool{}
	for _, key := range append(d.records.keys(), d.state.keys()...) { // The objects that were placed before a restart, and the new ones.
		if key.Namespace == namespace {
			keys[key] = true
		}
	}
	clusters := d.members.Clusters()
	var all []placement.Asked
	for key := range keys {
		src, known := d.sources.get(key)
		if !known {
			return nil, false
		}
		was, seen := d.state.previous(key)
		if !seen {
			was = d.reported(key)
		}
		if src.object == nil || src.object.GetDeletionTimestamp() != nil || was.uid != src.object.GetUID() {
			continue // It is deleted, or was not placed.
		}
		ref, asks, _, err := placement.Named(src.object.GetLabels(), namespace)
		if !asks || err != nil {
			continue // It is on the clusters of its leaders.
		}
		keeping, _ := placement.KeepingOf(src.object.GetAnnotations())
		leaders := d.state.followed(key, was.follows)
		all = append(all, placement.Asked{Policy: d.policies.propagation(ref), Request: &placement.Request{
			Clusters: clusters, Previous: was.placed, Replicas: variants.Replicas(src.object), Hash: was.hash, Frozen: keeping.Frozen,
			Narrowed: was.chosenBy != nil && *was.chosenBy == *policyReference(ref), Besides: leaders.on(was.placed),
		}})
	}
	loss = placement.Together(all)
	d.losses.seen[namespace] = loss
	return loss, true
}
