package propagation

import (
	"slices"
	"sync"

	decision "refract.dev/fleet/decide"
	"refract.dev/fleet/policy/placement"
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
	return slices.ContainsFunc(was.placed, func(t placement.Target) bool {
		_, stays := placement.Find(p.placed, t.Cluster)
		return !stays && slices.ContainsFunc(s.clusters, func(c placement.Cluster) bool { return c.Name == t.Cluster })
	})
}

// decideTogether decides an object. If the object leaves a cluster, the decision includes the losses of its whole
// namespace. known is false while these are unknown.
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

// together returns the losses of a namespace; nil if its objects may leave. known is false while the existence of one
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
	world := decision.World{Clusters: d.members.Clusters(), Propagation: d.policies.propagation}
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
		if src.object == nil || was.uid != src.object.GetUID() {
			continue // The object is being deleted, or was not placed.
		}
		leaders := d.state.followed(key, was.follows)
		world.Leaders.Clusters = leaders.on(was.placed)
		if asked, ok := decision.Ask(&decision.Object{Content: src.object}, was.decided(), &world); ok { // Other objects only travel with their leaders.
			all = append(all, asked)
		}
	}
	loss = placement.Together(all)
	d.losses.seen[namespace] = loss
	return loss, true
}
