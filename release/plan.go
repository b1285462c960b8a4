package release

import (
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/match"
)

// PlannedWave is a wave of a change that is yet to be made.
type PlannedWave struct {
	// Name of the wave, as a status has it; empty for the clusters that are in none.
	Name string `json:"name,omitempty"`
	// Clusters that get the change in it, in the order given.
	Clusters []string `json:"clusters"`
	// AtOnce is how many of them get the change at first, before one of them is ready with it; all
	// others are ready.
	AtOnce int `json:"atOnce"`
	// MinReadySeconds is for how long a copy must be ready.
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// Approval says why the wave waits until somebody approves it; empty if it does not.
	Approval string `json:"approval,omitempty"`
}

// Plan returns the waves in which a change goes out that gives some clusters another content,
// in their order; those that take none of them are left out. Clusters are all that have a
// copy, each of which can be reached.
func (p *Policy) Plan(clusters []match.Cluster, changes func(i int) bool) []PlannedWave {
	in := &Input{Policy: p, Clusters: make([]Cluster, len(clusters))}
	r := &rollout{
		RolloutStatus: &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutProgressing}, in: in,
		waves: make(map[string]int, len(clusters)), byWave: make([][]*Cluster, p.waves()),
	}
	for i := range clusters {
		c := &in.Clusters[i]
		*c = Cluster{Cluster: clusters[i], Changes: changes(i), Holds: true, Ready: true}
		wave := p.waveOf(&c.Cluster)
		r.waves[c.Name] = wave
		r.byWave[wave] = append(r.byWave[wave], c)
	}
	var planned []PlannedWave
	room := r.rooms()
	for k, all := range r.byWave {
		if r.changes(k) == 0 {
			continue
		}
		w := PlannedWave{Name: p.nameOf(k), MinReadySeconds: int32(p.minReady(k).Seconds()), Approval: r.mayOpen(k)}
		for _, c := range all {
			if !c.Changes {
				continue
			}
			w.Clusters = append(w.Clusters, c.Name)
			if ok, _ := room.take(c, k); ok {
				w.AtOnce++
			}
		}
		room.outer[p.outer(k)] += w.AtOnce // By the next wave these are ready.
		clear(room.unavailable)
		planned = append(planned, w)
	}
	return planned
}
