package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"refract.dev/test/harness"
)

// distances are the network round-trip times to the members of BenchmarkDistant.
var distances = []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond}

const (
	// lost is the share of lost TCP segments on the way to a distant member.
	lost = 0.01
	// farWriters is the number of concurrent writers of the floor. It is Refract's own limit for concurrent writes to a
	// member.
	farWriters = 64
	// farObjects is the number of objects, many more than concurrent writes.
	farObjects = 400
)

// BenchmarkDistant has a near member, a member 100 ms away and a member 300 ms away; the network loses 1% of the
// packets of the distant members. For each member alone, it measures the time until 400 new objects are there. The
// floor is the time that 64 writers need to write the same objects to the hub and, over the same network, to the
// member. Then it places objects on all three members at once, which shows how much the distant members delay the near
// one.
func BenchmarkDistant(b *testing.B) {
	e := harness.New(b, harness.Topology{Members: len(distances), Own: true, CRDs: true, Unaudited: true, Alike: true})
	var direct, through []string
	for i, m := range e.Members {
		loss := 0.0
		if distances[i] > 0 {
			loss = lost
		}
		d, err := e.Distant(m, distances[i], loss)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(d.Close)
		direct, through = append(direct, e.Kubeconfig(m)), append(through, d.Kubeconfig)
		if _, err := e.Refract("join", m, "--kubeconfig", e.Kubeconfig("hub"), "--member-kubeconfig", d.Kubeconfig,
			"--label", fmt.Sprintf("away=%d", distances[i].Milliseconds()), "--timeout", "0"); err != nil {
			b.Fatal(err)
		}
	}
	s := newSystem(b, e.Kubeconfig("hub"), direct...)
	far := newSystem(b, e.Kubeconfig("hub"), through...)
	far.writers = farWriters
	s.run, _ = startControllers(b, program(b, e), e.Kubeconfig("hub"), "--deletion-guard=100")
	b.Cleanup(func() { s.run.kill() })
	s.policies(b, e, "testdata/policies-distant.yaml")
	// Each member gets its first copies before the measurement, so the figures do not include the first connections.
	s.farther(b, "warm", 10, "everywhere", s.members)
	for b.Loop() {
		b.ReportMetric(0, "ns/op") // The metric ns/op would cover the whole benchmark.
		floor, alone, together := make([][]float64, len(distances)), make([][]float64, len(distances)), make([][]float64, len(distances))
		for round := range rounds - 2 {
			for i, away := range distances {
				prefix := fmt.Sprintf("floor-%d-%d", round, i)
				floor[i] = append(floor[i], far.write(b, prefix, farObjects, []dynamic.Interface{far.hub, far.members[i]}, "").Seconds())
				s.clean(b, prefix, farObjects, []dynamic.Interface{s.hub, s.members[i]})
				prefix, policy := fmt.Sprintf("alone-%d-%d", round, i), fmt.Sprintf("away-%d", away.Milliseconds())
				alone[i] = append(alone[i], s.farther(b, prefix, farObjects, policy, s.members[i:i+1])...)
			}
			for i, took := range s.farther(b, fmt.Sprintf("all-%d", round), farObjects, "everywhere", s.members) {
				together[i] = append(together[i], took)
			}
		}
		for i, away := range distances {
			what := fmt.Sprintf("away-%dms", away.Milliseconds())
			compare(b, what, floor[i], alone[i])
			compare(b, what+"-beside-others", slices.Clone(alone[i]), together[i])
		}
	}
}

// farther creates n objects on the hub with a policy, and returns the seconds until all copies are on each of these
// members. Then it deletes the objects.
func (s *system) farther(b *testing.B, prefix string, n int, policy string, members []dynamic.Interface) []float64 {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	took := make([]float64, len(members))
	var arrived sync.WaitGroup
	var began time.Time
	begin := make(chan struct{})
	for i, m := range members {
		w, err := m.Resource(deployments).Namespace("default").Watch(ctx, metav1.ListOptions{LabelSelector: "hello=world,bench=" + prefix})
		if err != nil {
			b.Fatal(err)
		}
		arrived.Go(func() {
			defer w.Stop()
			<-begin
			seen := map[string]bool{}
			for e := range w.ResultChan() {
				if o, ok := e.Object.(*unstructured.Unstructured); ok {
					seen[o.GetName()] = true
				}
				if len(seen) == n {
					took[i] = time.Since(began).Seconds()
					return
				}
			}
			b.Errorf("the watch for %s ended after %d of %d objects", prefix, len(seen), n)
		})
	}
	began = time.Now()
	close(begin)
	if err := s.each(n, func(i int) error {
		object := s.object(prefix, i, map[string]string{"kubeadmiral.io/propagation-policy-name": policy, "kubeadmiral.io/override-policy-name": "op"})
		_, err := s.hub.Resource(deployments).Namespace("default").Create(ctx, object, metav1.CreateOptions{})
		return err
	}); err != nil {
		b.Fatal(err)
	}
	arrived.Wait()
	if ctx.Err() != nil {
		b.Fatalf("not all of %d objects of %s arrived in %s", n, prefix, limit)
	}
	s.clean(b, prefix, n, []dynamic.Interface{s.hub})
	return took
}
