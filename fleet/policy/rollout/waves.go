package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// release gives a cluster the target.
func (r *rollout) release(name string) {
	r.OnSuperseded = slices.DeleteFunc(r.OnSuperseded, func(is string) bool { return is == name })
	i, found := slices.BinarySearchFunc(r.Current, name, func(c refractv1alpha1.ReleasedCluster, name string) int { return strings.Compare(c.Name, name) })
	if !found {
		r.Current = slices.Insert(r.Current, i, refractv1alpha1.ReleasedCluster{Name: name, Since: at(r.in.Now)})
	}
}

// settled reports whether the rollout has finished on a cluster: it is done, it has failed, or the target does not
// change it.
func (r *rollout) settled(c *Cluster) bool {
	if !r.has(c.Name) {
		return !c.Differs
	}
	return !Awaited(r.RolloutStatus, c.Name)
}

// over reports whether a wave is over: all its reachable clusters are settled, and at least one has tried the target,
// unless the target changes no cluster of the wave.
func (r *rollout) over(wave int) bool {
	changed, tried := false, false
	for _, c := range r.byWave[wave] {
		settled := r.settled(c)
		if !settled && !c.Offline {
			return false
		}
		changed = changed || !settled || r.has(c.Name)
		tried = tried || (settled && r.has(c.Name))
	}
	return tried || !changed
}

// recall determines from the RolloutStatus which waves have begun.
func (r *rollout) recall() {
	r.began = make([]bool, r.in.Policy.waves())
	for k := range min(int(r.Opened), len(r.began)) {
		r.began[k] = len(r.byWave[k]) > 0 && r.sinceOf(r.in.Policy.nameOf(k)) != nil
	}
}

// open opens the waves whose turn has come. It returns the reason why the next wave must wait. A wave without clusters
// to change is opened but does not begin. If a cluster joins it later, the wave begins then, under the same conditions.
func (r *rollout) open() (why string) {
	p := r.in.Policy
	for k := range p.waves() {
		if k > 0 && k == int(r.Opened) && !r.over(k-1) {
			return r.unreachable(k - 1)
		}
		if !r.began[k] && r.changes(k) > 0 {
			if why := r.mayBegin(k); why != "" {
				return why
			}
			r.began[k] = true
		}
		r.Opened = max(r.Opened, int32(k+1))
	}
	if !r.over(p.waves() - 1) {
		return r.unreachable(p.waves() - 1)
	}
	return ""
}

// sinceOf returns the start time of a wave; nil if it has not begun, or has no clusters to change.
func (r *rollout) sinceOf(name string) *metav1.MicroTime {
	for i := range r.Waves {
		if r.Waves[i].Name == name {
			return r.Waves[i].Since
		}
	}
	return nil
}

// unreachable returns the message for a wave that waits only for offline clusters; empty for other waves.
func (r *rollout) unreachable(wave int) string {
	for _, c := range r.byWave[wave] {
		if !c.Offline && !r.settled(c) {
			return ""
		}
	}
	return fmt.Sprintf("%s: no cluster can be reached, and at least one has to be done", title(r.in.Policy.nameOf(wave)))
}

// changes returns the number of clusters of a wave that the target changes.
func (r *rollout) changes(wave int) (n int) {
	for _, c := range r.byWave[wave] {
		if c.Changes || c.Differs || r.has(c.Name) {
			n++
		}
	}
	return n
}

// mayBegin returns the reason why a wave may not begin.
func (r *rollout) mayBegin(wave int) string {
	p := r.in.Policy
	if r.in.Paused {
		return "it is paused"
	}
	first, manual := true, false
	for k, began := range r.began {
		if began {
			first = false
			if p.outer(k) == p.outer(wave) {
				manual = true // The wave of the floor has begun, so its approval, if necessary, was given.
			}
		}
	}
	parts := p.parts(wave)
	needs := parts[0].manual && !manual
	for _, part := range parts[1:] {
		needs = needs || part.manual
	}
	text := title(p.nameOf(wave)) + " waits for an approval"
	if first && p.maxChange >= 0 {
		all := 0
		for k := range p.waves() {
			all += r.changes(k)
		}
		if all > p.maxChange {
			needs = true
			text = fmt.Sprintf("it changes %d clusters, more than %d, and waits for an approval", all, p.maxChange)
		}
	}
	switch what := fmt.Sprint(wave); {
	case !needs:
		return ""
	case r.says(r.in.Approved, what):
		r.Nonce = r.in.Nonce // The token is used up.
		return ""
	default:
		r.Awaits = r.token(what)
		return text
	}
}

// releaseAll gives the target to the clusters whose turn has come. It returns the reason why other clusters of open
// waves wait.
func (r *rollout) releaseAll() (blocked string) {
	type candidate struct {
		*Cluster

		wave int
	}
	var candidates []candidate
	for i := range r.in.Clusters {
		c := &r.in.Clusters[i]
		if wave := r.waveOf(c); r.began[wave] && !c.Offline && c.Differs && !r.has(c.Name) {
			candidates = append(candidates, candidate{c, wave})
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.wave, b.wave), cmp.Compare(r.held(a.Name), r.held(b.Name)))
	})
	var room *rooms
	for _, c := range candidates {
		if c.Joining {
			r.release(c.Name) // A first copy changes no existing content.
			continue
		}
		if r.in.Paused {
			return "it is paused"
		}
		if room == nil {
			room = r.rooms()
		}
		ok, why := room.take(c.Cluster, c.wave)
		if ok {
			r.release(c.Name)
		}
		blocked = cmp.Or(blocked, why)
	}
	return blocked
}

// held returns 0 for a cluster that an earlier target has already changed. Such clusters come first.
func (r *rollout) held(name string) int {
	if _, found := slices.BinarySearch(r.OnSuperseded, name); found {
		return 0
	}
	return 1
}

// rooms counts the clusters that may still get the target now.
type rooms struct {
	policy      *Policy
	wave, outer map[int]int    // The keys of wave are indexes of waves, and those of outer are results of Policy.outer.
	unavailable map[string]int // Number of clusters that are not ready, by LABEL=VALUE.
}

func (r *rollout) rooms() *rooms {
	p := r.in.Policy
	room := &rooms{policy: p, wave: map[int]int{}, outer: map[int]int{}, unavailable: map[string]int{}}
	of, ofOuter := map[int]int{}, map[int]int{}
	for i := range r.in.Clusters {
		k := r.waveOf(&r.in.Clusters[i])
		of[k]++
		ofOuter[p.outer(k)]++
	}
	for k, n := range of {
		parts := p.parts(k)
		room.outer[p.outer(k)] = scaled(parts[0].most, ofOuter[p.outer(k)])
		room.wave[k] = n
		for _, part := range parts[1:] {
			room.wave[k] = min(room.wave[k], scaled(part.most, n))
		}
	}
	for i := range r.Current {
		c := r.clusters[r.Current[i].Name]
		if c.Offline {
			continue
		}
		k := r.waveOf(c)
		room.wave[k]--
		room.outer[p.outer(k)]--
	}
	for _, name := range r.holders() {
		if c := r.clusters[name]; c.Offline || !c.Holds || !c.Ready {
			room.count(c)
		}
	}
	return room
}

// count counts a cluster that is not ready.
func (room *rooms) count(c *Cluster) {
	for i := range room.policy.budgets {
		label := room.policy.budgets[i].Label
		if value, ok := c.Labels[label]; ok {
			room.unavailable[label+"="+value]++
		}
	}
}

// take reserves room for a cluster, or returns the reason why there is no room. The reason is empty for a full wave,
// which needs no explanation.
func (room *rooms) take(c *Cluster, wave int) (ok bool, why string) {
	p := room.policy
	for i := range p.budgets {
		b := &p.budgets[i]
		value, ok := c.Labels[b.Label]
		if n := room.unavailable[b.Label+"="+value]; ok && n >= int(b.MaxUnavailable) {
			return false, fmt.Sprintf("of the clusters with %s=%s, %d are not ready, and the maximum is reached", b.Label, value, n)
		}
	}
	if room.wave[wave] < 1 || room.outer[p.outer(wave)] < 1 {
		return false, ""
	}
	room.wave[wave]--
	room.outer[p.outer(wave)]--
	room.count(c)
	return true, ""
}

// countWaves computes the entries of the waves in the RolloutStatus.
func (r *rollout) countWaves() {
	p := r.in.Policy
	lines := make([]refractv1alpha1.WaveStatus, p.waves())
	for k := range lines {
		lines[k].Name = p.nameOf(k)
	}
	for i := range r.in.Clusters {
		c := &r.in.Clusters[i]
		has := r.has(c.Name)
		if !has && !c.Changes && !c.Differs {
			continue
		}
		line := &lines[r.waveOf(c)]
		line.Clusters++
		switch {
		case failed(r.RolloutStatus, c.Name):
			line.Failed++
		case has && r.settled(c):
			line.Done++
		}
	}
	var waves []refractv1alpha1.WaveStatus
	for k := range lines {
		line := &lines[k]
		if line.Clusters == 0 {
			continue
		}
		if r.began[k] {
			line.Since = cmp.Or(r.sinceOf(line.Name), at(r.in.Now))
		}
		waves = append(waves, *line)
	}
	r.Waves = waves
}

// reachable reports whether at least one of the clusters for which the rollout waits is reachable.
func (r *rollout) reachable() bool {
	return slices.ContainsFunc(r.Current, func(c refractv1alpha1.ReleasedCluster) bool { return !r.clusters[c.Name].Offline })
}

// complete ends the rollout if all reachable clusters are settled, and reports whether it did.
func (r *rollout) complete() bool {
	if int(r.Opened) < r.in.Policy.waves() || !r.over(r.in.Policy.waves()-1) {
		return false
	}
	for i := range r.in.Clusters {
		if c := &r.in.Clusters[i]; !c.Offline && !r.settled(c) {
			return false
		}
	}
	r.Phase, r.LastGood = refractv1alpha1.RolloutComplete, r.Target
	r.Opened, r.Began = 0, nil
	r.Superseded, r.OnSuperseded, r.Current, r.Done, r.Reverting, r.Offline = nil, nil, nil, nil, nil, nil
	return true
}

// at returns a time with the precision of the stored status.
func at(t time.Time) *metav1.MicroTime {
	m := metav1.NewMicroTime(t.Truncate(time.Microsecond))
	return &m
}
