package rollout

import (
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
)

// PlannedWave is a wave of a future change.
type PlannedWave struct {
	// Name of the wave, as in the status; empty for the clusters that are in no wave.
	Name string `json:"name,omitempty"`
	// Clusters are the clusters that get the change in this wave, in the given order.
	Clusters []string `json:"clusters"`
	// AtOnce is the number of clusters that get the change at the start of the wave, before any of them is ready with
	// it. All other clusters are assumed to be ready.
	AtOnce int `json:"atOnce"`
	// MinReadySeconds is the minimum time for which a copy must be ready.
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`
	// Approval is the reason why the wave waits for an approval; empty if it does not wait.
	Approval string `json:"approval,omitempty"`
}

// Plan returns the waves of a change in order, without waves that change no cluster. The function changes reports
// whether the change gives a cluster other content. Clusters are all clusters with a copy; they are assumed to be
// reachable.
func (p *Policy) Plan(clusters []match.Cluster, changes func(i int) bool) []PlannedWave {
	in := &Input{Policy: p, Clusters: make([]Cluster, len(clusters))}
	r := &rollout{
		RolloutStatus: &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutProgressing}, in: in,
		waves: make(map[string]int, len(clusters)), byWave: make([][]*Cluster, p.waves()), began: make([]bool, p.waves()),
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
		w := PlannedWave{Name: p.nameOf(k), MinReadySeconds: int32(p.minReady(k).Seconds()), Approval: r.mayBegin(k)}
		r.began[k] = true
		for _, c := range all {
			if !c.Changes {
				continue
			}
			w.Clusters = append(w.Clusters, c.Name)
			if ok, _ := room.take(c, k); ok {
				w.AtOnce++
			}
		}
		room.outer[p.outer(k)] += w.AtOnce // The clusters are ready by the next wave.
		clear(room.unavailable)
		planned = append(planned, w)
	}
	return planned
}
