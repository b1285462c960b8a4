package placement_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/placement"
)

// TestLaws checks the properties of every placement, with random policies and fleets.
func TestLaws(t *testing.T) {
	for seed := range uint64(5_000) {
		checkLaws(t, rand.New(rand.NewPCG(seed, 1)), fmt.Sprintf("seed %d", seed))
		if t.Failed() {
			return
		}
	}
}

func FuzzPlace(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, seed)
	}
	f.Fuzz(func(t *testing.T, a, b uint64) {
		checkLaws(t, rand.New(rand.NewPCG(a, b)), fmt.Sprintf("seeds %d, %d", a, b))
	})
}

func checkLaws(t *testing.T, r *rand.Rand, seed string) {
	t.Helper()
	spec, request := randomSpec(r), randomRequest(r)
	p, errs := placement.Compile(&corev1alpha1.PropagationPolicy{Spec: spec})
	if len(errs) > 0 {
		return // All weights may be 0.
	}
	given := textOfRequest(request)
	d, err := p.Place(request)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(given, textOfRequest(request)); diff != "" {
		t.Errorf("%s: Place() modified its request:\n%s", seed, diff)
	}
	fail := func(format string, args ...any) {
		t.Helper()
		t.Errorf("%s: %s\npolicy: %+v\nrequest: %s\ndecision: %s", seed, fmt.Sprintf(format, args...), spec, textOfRequest(request), textOf(&d))
	}
	if !slices.IsSorted(names(d.Targets)) {
		fail("the targets are not sorted")
	}
	shuffled := *request
	shuffled.Clusters = slices.Clone(request.Clusters)
	r.Shuffle(len(shuffled.Clusters), func(i, j int) {
		shuffled.Clusters[i], shuffled.Clusters[j] = shuffled.Clusters[j], shuffled.Clusters[i]
	})
	if other, err := p.Place(&shuffled); err != nil || textOf(&other) != textOf(&d) || other.Hash != d.Hash {
		fail("the result differs for another order of the clusters: %s (%v)", textOf(&other), err)
	}
	again := *request
	again.Previous, again.Hash = d.Targets, d.Hash
	if other, err := p.Place(&again); err != nil || textOf(&other) != textOf(&d) {
		fail("placed again: %s (%v)", textOf(&other), err)
	}
	if d.Held != nil {
		checkHeld(request, &d, fail)
		d = d.Held.Approved()
	}
	if spec.ReschedulePolicy != nil && (spec.ReschedulePolicy.DisableRescheduling || request.Hash != "") || request.Frozen {
		checkStays(request, &d, fail)
		return
	}
	if spec.MaxClusters != nil && len(d.Targets) > int(*spec.MaxClusters) {
		fail("more than maxClusters")
	}
	if p.Divides && request.Replicas != nil {
		checkShares(&spec, request, &d, fail)
	} else {
		checkSticky(p, request, &d, fail)
	}
}

// checkHeld verifies the decision for an object whose change waits for approval: the object stays on those of its
// clusters that still exist and gets no others, the hash stays the same, and the change has a number.
func checkHeld(r *placement.Request, d *placement.Decision, fail func(string, ...any)) {
	for _, was := range r.Previous {
		there := slices.ContainsFunc(r.Clusters, func(c placement.Cluster) bool { return c.Name == was.Cluster })
		if there != slices.Contains(names(d.Targets), was.Cluster) {
			fail("%s does not stay unchanged", was.Cluster)
		}
	}
	if len(d.Targets) > len(r.Previous) || d.Hash != r.Hash || d.Narrowed != r.Narrowed {
		fail("the targets are not the previous clusters")
	}
	if len(d.Held.Leaves)+len(d.Held.Joins) == 0 || d.Held.Number == "" {
		fail("nothing waits")
	}
}

// checkStays verifies that a frozen object stays on its clusters that still exist, and is added to no other.
func checkStays(r *placement.Request, d *placement.Decision, fail func(string, ...any)) {
	if !r.Frozen {
		return
	}
	for _, was := range r.Previous {
		there := slices.ContainsFunc(r.Clusters, func(c placement.Cluster) bool { return c.Name == was.Cluster })
		if there != slices.Contains(names(d.Targets), was.Cluster) {
			fail("%s does not stay unchanged", was.Cluster)
		}
	}
	if len(d.Targets) > len(r.Previous) {
		fail("the object is added to a cluster")
	}
}

// checkSticky verifies that maxClusters never removes the object from a cluster to add it to another.
func checkSticky(p *placement.Policy, r *placement.Request, d *placement.Decision, fail func(string, ...any)) {
	fresh := slices.ContainsFunc(d.Targets, func(t placement.Target) bool { return !slices.Contains(names(r.Previous), t.Cluster) })
	for i := range r.Clusters {
		c := &r.Clusters[i]
		crowded := strings.HasPrefix(p.Why(c, r, d), "maxClusters")
		if fresh && crowded && slices.Contains(names(r.Previous), c.Name) {
			fail("%s loses the object, and another cluster gets it", c.Name)
		}
	}
}

// checkShares verifies that shares keep the bounds, add up to the total if the bounds allow it, and move no more
// replicas than necessary.
func checkShares(spec *corev1alpha1.PropagationPolicySpec, r *placement.Request, d *placement.Decision, fail func(string, ...any)) {
	total := *r.Replicas
	avoids := spec.ReschedulePolicy == nil || spec.ReschedulePolicy.ReplicaRescheduling == nil || spec.ReschedulePolicy.ReplicaRescheduling.AvoidDisruption
	was := map[string]int64{}
	for _, target := range r.Previous {
		if target.Replicas != nil {
			was[target.Cluster] = *target.Replicas
		}
	}
	sum := int64(0)
	share := map[string]int64{}
	for _, target := range d.Targets {
		n := *target.Replicas
		share[target.Cluster] = n
		sum += n
		if _, most := bounds(spec, target.Cluster); n > most || n < 0 || (n == 0 && total > 0) {
			fail("%s has %d replicas", target.Cluster, n)
		}
	}
	if sum > total {
		fail("%d of %d replicas are placed", sum, total)
	}
	// Bounds of each cluster that may have replicas, independent of the other clusters.
	open := spec.MaxClusters == nil
	var room, least, forced, held, bounded int64
	for i := range r.Clusters {
		c := &r.Clusters[i]
		lo, hi := bounds(spec, c.Name)
		at, has := was[c.Name]
		if !fits(spec, c, slices.Contains(names(r.Previous), c.Name)) {
			lo, hi = 0, 0
		} else if has && (!c.Ready || tainted(spec, c)) {
			hi = min(hi, at)
		}
		lo = min(lo, hi)
		switch {
		case noWeight(spec, c.Name) && avoids:
			hi = max(lo, min(at, hi))
		case noWeight(spec, c.Name):
			hi = lo
		}
		to := min(max(at, lo), hi)
		room += hi
		least += lo
		forced += abs(to - at)
		held += at
		bounded += to
		delete(was, c.Name)
	}
	for _, at := range was { // Replicas on clusters that no longer exist.
		forced += at
		held += at
	}
	if open && least <= total && room >= total && sum != total {
		fail("%d of %d replicas are placed, with room for %d", sum, total, room)
	}
	if !open || !avoids || least > total || sum != total {
		return
	}
	moved := int64(0)
	for _, target := range r.Previous {
		if target.Replicas != nil {
			moved += abs(share[target.Cluster] - *target.Replicas)
			delete(share, target.Cluster)
		}
	}
	for _, n := range share {
		moved += n
	}
	if moved > forced+abs(total-bounded) {
		fail("%d replicas move; the bounds require %d and the total %d", moved, forced, abs(total-bounded))
	}
}

func bounds(spec *corev1alpha1.PropagationPolicySpec, cluster string) (least, most int64) {
	for i := range spec.Placements {
		if own := &spec.Placements[i]; own.Cluster == cluster {
			most = 1 << 40
			if own.Preferences.MaxReplicas != nil {
				most = *own.Preferences.MaxReplicas
			}
			return own.Preferences.MinReplicas, most
		}
	}
	if len(spec.Placements) > 0 {
		return 0, 0
	}
	return 0, 1 << 40
}

// noWeight reports whether a cluster gets no replicas beyond its minimum because it has no weight.
func noWeight(spec *corev1alpha1.PropagationPolicySpec, cluster string) bool {
	if spec.ReplicasStrategy != nil && *spec.ReplicasStrategy == corev1alpha1.ReplicasStrategyBinpack {
		return false
	}
	weighted, own := false, int64(0)
	for i := range spec.Placements {
		if w := spec.Placements[i].Preferences.Weight; w != nil {
			weighted = true
			if spec.Placements[i].Cluster == cluster {
				own = *w
			}
		}
	}
	return weighted && own == 0
}

func fits(spec *corev1alpha1.PropagationPolicySpec, c *placement.Cluster, placed bool) bool {
	for key, value := range spec.ClusterSelector {
		if c.Labels[key] != value {
			return false
		}
	}
	for _, taint := range c.Taints {
		if len(spec.Tolerations) == 0 && (taint.Effect == corev1.TaintEffectNoExecute || (taint.Effect == corev1.TaintEffectNoSchedule && !placed)) {
			return false
		}
	}
	return c.Ready || placed
}

func tainted(spec *corev1alpha1.PropagationPolicySpec, c *placement.Cluster) bool {
	return len(spec.Tolerations) == 0 && slices.ContainsFunc(c.Taints, func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule })
}

func abs(n int64) int64 { return max(n, -n) }

func randomSpec(r *rand.Rand) corev1alpha1.PropagationPolicySpec {
	spec := corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDivide}
	if r.IntN(5) == 0 {
		spec.SchedulingMode = corev1alpha1.SchedulingModeDuplicate
	}
	if r.IntN(3) == 0 {
		spec.ReplicasStrategy = new(corev1alpha1.ReplicasStrategyBinpack)
	}
	if r.IntN(4) == 0 {
		spec.ClusterSelector = map[string]string{"region": "eu"}
	}
	if r.IntN(4) == 0 {
		spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	}
	if r.IntN(3) == 0 {
		spec.MaxClusters = new(r.Int64N(5))
	}
	if r.IntN(3) == 0 {
		spec.ReschedulePolicy = &corev1alpha1.ReschedulePolicy{DisableRescheduling: r.IntN(4) == 0}
		if r.IntN(2) == 0 {
			spec.ReschedulePolicy.ReplicaRescheduling = &corev1alpha1.ReplicaRescheduling{AvoidDisruption: r.IntN(3) == 0}
		}
		if r.IntN(2) == 0 {
			spec.ReschedulePolicy.Trigger = &corev1alpha1.RescheduleTrigger{
				PolicyContentChanged: r.IntN(2) == 0, ClusterJoined: r.IntN(2) == 0, ClusterLabelsChanged: r.IntN(2) == 0,
			}
		}
	}
	if r.IntN(3) == 0 {
		return spec
	}
	weighted := r.IntN(2) == 0
	for i := range r.IntN(8) {
		d := corev1alpha1.DesiredPlacement{Cluster: fmt.Sprintf("c%d", i)}
		if r.IntN(3) == 0 {
			d.Preferences.MinReplicas = r.Int64N(5)
		}
		if r.IntN(3) == 0 {
			d.Preferences.MaxReplicas = new(d.Preferences.MinReplicas + r.Int64N(6))
		}
		if weighted && r.IntN(4) > 0 {
			d.Preferences.Weight = new(r.Int64N(4))
		}
		if r.IntN(3) == 0 {
			d.Preferences.Priority = new(r.Int64N(3))
		}
		spec.Placements = append(spec.Placements, d)
	}
	return spec
}

func randomRequest(r *rand.Rand) *placement.Request {
	request := &placement.Request{Frozen: r.IntN(12) == 0, Narrowed: r.IntN(4) == 0}
	if r.IntN(8) > 0 {
		request.Replicas = new([]int64{0, 1, 2, 3, r.Int64N(12), r.Int64N(100), 1 << 31}[r.IntN(7)])
	}
	divided := r.IntN(5) > 0
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule}
	for i := range r.IntN(8) {
		c := placement.Cluster{
			Cluster: match.Cluster{Name: fmt.Sprintf("c%d", i), Labels: map[string]string{"region": []string{"eu", "us"}[r.IntN(2)]}},
			Ready:   r.IntN(4) > 0,
		}
		if r.IntN(4) == 0 {
			c.Taints = []corev1.Taint{{Key: "t", Effect: effects[r.IntN(3)]}}
		}
		if r.IntN(8) > 0 {
			request.Clusters = append(request.Clusters, c)
		}
		if r.IntN(2) == 0 {
			was := placement.Target{Cluster: c.Name}
			if divided {
				was.Replicas = new(r.Int64N(9))
			}
			request.Previous = append(request.Previous, was)
		}
	}
	return request
}

func textOfRequest(r *placement.Request) string {
	parts := []string{"on " + textOf(&placement.Decision{Targets: r.Previous})}
	if r.Replicas != nil {
		parts = append(parts, fmt.Sprintf("%d replicas", *r.Replicas))
	}
	for i := range r.Clusters {
		c := &r.Clusters[i]
		parts = append(parts, fmt.Sprintf("%s %v %v ready %v", c.Name, c.Labels, c.Taints, c.Ready))
	}
	return strings.Join(parts, ", ")
}

// BenchmarkPlace places one object among 1,000 clusters. Half of the clusters fit.
func BenchmarkPlace(b *testing.B) {
	var fleet []placement.Cluster
	for i := range 1000 {
		fleet = append(fleet, cluster(fmt.Sprintf("c%04d", i), []string{"eu", "us"}[i%2], true))
	}
	eu := map[string]string{"region": "eu"}
	specs := map[string]corev1alpha1.PropagationPolicySpec{
		"Duplicate":   {SchedulingMode: corev1alpha1.SchedulingModeDuplicate, ClusterSelector: eu},
		"MaxClusters": {SchedulingMode: corev1alpha1.SchedulingModeDuplicate, ClusterSelector: eu, MaxClusters: new(int64(10))},
		"Reschedule": {
			SchedulingMode: corev1alpha1.SchedulingModeDuplicate, ClusterSelector: eu,
			ReschedulePolicy: &corev1alpha1.ReschedulePolicy{Trigger: &corev1alpha1.RescheduleTrigger{PolicyContentChanged: true, ClusterJoined: true}},
		},
		"Spread":  {SchedulingMode: corev1alpha1.SchedulingModeDivide, ClusterSelector: eu},
		"Binpack": {SchedulingMode: corev1alpha1.SchedulingModeDivide, ClusterSelector: eu, ReplicasStrategy: new(corev1alpha1.ReplicasStrategyBinpack)},
	}
	for _, name := range []string{"Duplicate", "MaxClusters", "Reschedule", "Spread", "Binpack"} {
		b.Run(name, func(b *testing.B) {
			spec := specs[name]
			p, errs := placement.Compile(&corev1alpha1.PropagationPolicy{Spec: spec})
			if len(errs) > 0 {
				b.Fatal(errs.ToAggregate())
			}
			request := &placement.Request{Clusters: fleet, Replicas: new(int64(1999))}
			b.ReportAllocs()
			for b.Loop() {
				d, err := p.Place(request)
				if err != nil {
					b.Fatal(err)
				}
				request.Previous, request.Hash = d.Targets, d.Hash
			}
		})
	}
}
