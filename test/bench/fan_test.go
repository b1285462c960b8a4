// Package bench measures whole programs. It compares the time of the propagation with a floor, which writes the same
// objects directly to the API servers, and the time of offline commands with kustomize. Both sides of a comparison are
// measured in the same run.
package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"refract.dev/test/harness"
)

const (
	members = 3
	objects = 300
	// kept is the number of objects that exist all the time.
	kept    = 1000
	writers = 16
	// rounds is the number of measurements of floor and system, in turn; medians are reported.
	rounds = 5
	// tries is the number of measurements with a single object.
	tries = 200
	// limit bounds one round.
	limit = 2 * time.Minute
)

// samePod is an argument. It tells the controllers that the previous process with this UID has ended, as after the
// restart of a container.
const samePod = "--pod-uid=bench"

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// BenchmarkFan measures the whole system with three members without controllers. Each figure has a floor. Except for
// lone, the floor is the time that 16 writers need to write the same objects with server-side apply:
//
//	restart  the controllers are killed and started again while 3,000 copies exist; no copy may be written
//	fan      300 Deployments with eight overriders each, until every member has every correct copy; the floor also writes to the hub
//	lone     one object in an idle system, from its creation on the hub until the last member has it; the floor is a watch of the hub
//	         that writes the object to all members at once
//
//	restart  the controllers are killed and started again while 3,000 copies exist; no copy may be written
//	fan      300 Deployments with eight overriders each, until every member has every correct copy; the floor writes to the hub, too
//	lone     one object in an idle system, from its creation on the hub until the last member has it; the floor is a watch of the hub
//	         that writes the object to all members at once
func BenchmarkFan(b *testing.B) {
	e := up(b, members)
	var kubeconfigs []string
	for _, m := range e.Members {
		kubeconfigs = append(kubeconfigs, e.Kubeconfig(m))
	}
	s := newSystem(b, e.Kubeconfig("hub"), kubeconfigs...)
	s.run, _ = startControllers(b, program(b, e), e.Kubeconfig("hub"), samePod)
	b.Cleanup(func() { s.run.kill() })
	s.policies(b, e, "testdata/policies.yaml")
	for b.Loop() {
		b.ReportMetric(0, "ns/op") // The metric ns/op would cover the whole benchmark.
		// Many other objects exist. Without them, the later deletions would be a large share of all copies and need an
		// approval.
		s.carry(b, "kept", kept, map[string]string{"kubeadmiral.io/propagation-policy-name": "pp", "hello": "world"})
		s.restart(b, e, kubeconfigs)
		s.fan(b, objects, rounds)
		s.lone(b)
		_, most := s.run.resident()
		b.ReportMetric(most, "peak-MB")
	}
}

// up starts control planes for this benchmark only, and joins the members to the hub, like refract up.
func up(b *testing.B, members int) *harness.Env {
	b.Helper()
	e := harness.New(b, harness.Topology{Members: members, Own: true, CRDs: true, Unaudited: true, Alike: true})
	regions, providers := []string{"eu", "us", "ap"}, []string{"alpha", "beta", "gamma"}
	for i, m := range e.Members {
		if _, err := e.Refract("join", m, "--kubeconfig", e.Kubeconfig("hub"), "--member-kubeconfig", e.Kubeconfig(m),
			"--label", "region="+regions[i%len(regions)], "--label", "provider="+providers[i%len(providers)], "--timeout", "0"); err != nil {
			b.Fatal(err)
		}
	}
	return e
}

// program returns the path of refract.
func program(b *testing.B, e *harness.Env) string {
	b.Helper()
	path, err := e.Binary()
	if err != nil {
		b.Fatal(err)
	}
	return path
}

// policies applies the policies of a file to the hub.
func (s *system) policies(b *testing.B, e *harness.Env, file string) {
	b.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := e.Kubectl("hub", string(text), "apply", "-f", "-"); err != nil {
		b.Fatal(err)
	}
}

// fan compares the propagation of n new objects with the floor, and returns the medians of both, in seconds.
func (s *system) fan(b *testing.B, n, rounds int) (least, took float64) {
	b.Helper()
	var floor, system, cpu []float64
	everywhere := append([]dynamic.Interface{s.hub}, s.members...)
	for round := range rounds {
		prefix := fmt.Sprintf("floor-%d", round)
		floor = append(floor, s.write(b, prefix, n, everywhere, "").Seconds())
		s.clean(b, prefix, n, everywhere)
		before := s.run.cpu()
		prefix = fmt.Sprintf("fan-%d", round)
		system = append(system, s.propagate(b, prefix, n).Seconds())
		cpu = append(cpu, s.run.cpu()-before)
		s.clean(b, prefix, n, []dynamic.Interface{s.hub})
	}
	compare(b, "fan", floor, system)
	b.ReportMetric(middle(cpu), "fan-cpu-s")
	return middle(floor), middle(system)
}

// compare reports the medians of the floor and the system, and their ratio.
func compare(b *testing.B, what string, floor, system []float64) {
	b.Helper()
	b.ReportMetric(middle(floor), what+"-floor-s")
	b.ReportMetric(middle(system), what+"-s")
	b.ReportMetric(middle(system)/middle(floor), what+"-ratio")
	b.Logf("%s: floor %.2f, system %.2f s", what, floor, system)
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

func (s *system) lone(b *testing.B) {
	b.Helper()
	var floor, system []float64
	everywhere := append([]dynamic.Interface{s.hub}, s.members...)
	for i := range tries {
		prefix := fmt.Sprintf("relayed-%d", i)
		floor = append(floor, float64(s.relay(b, prefix).Microseconds())/1000)
		s.clean(b, prefix, 1, everywhere)
		prefix = fmt.Sprintf("one-%d", i)
		system = append(system, float64(s.propagate(b, prefix, 1).Microseconds())/1000)
		s.clean(b, prefix, 1, []dynamic.Interface{s.hub})
	}
	for quantile, at := range map[string]int{"p50": tries / 2, "p99": tries * 99 / 100, "max": tries - 1} {
		slices.Sort(floor)
		slices.Sort(system)
		b.ReportMetric(floor[at], "lone-floor-"+quantile+"-ms")
		b.ReportMetric(system[at], "lone-"+quantile+"-ms")
		b.ReportMetric(system[at]/floor[at], "lone-"+quantile+"-ratio")
		b.Logf("lone, %s: floor %.0f ms, system %.0f ms", quantile, floor[at], system[at])
	}
}

// relay creates one object on the hub and, when a watch shows it, writes it to all members at once. No controller can
// be faster.
func (s *system) relay(b *testing.B, prefix string) time.Duration {
	b.Helper()
	labels := map[string]string{"hello": "world"}
	shown := s.arrivals(b, []dynamic.Interface{s.hub}, "bench="+prefix, 1)
	arrived := s.arrivals(b, s.members, "bench="+prefix, 1)
	errs := make([]error, len(s.members)+1)
	var all sync.WaitGroup
	began := time.Now()
	all.Go(func() {
		_, errs[len(s.members)] = s.hub.Resource(deployments).Namespace("default").
			Create(b.Context(), s.object(prefix, 0, labels), metav1.CreateOptions{})
	})
	shown()
	for i, m := range s.members {
		all.Go(func() { errs[i] = s.put(b.Context(), prefix, 0, []dynamic.Interface{m}, labels) })
	}
	arrived()
	took := time.Since(began)
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
	return took
}

func (s *system) restart(b *testing.B, e *harness.Env, kubeconfigs []string) {
	b.Helper()
	written := func() (n float64) {
		for _, k := range kubeconfigs {
			n += newMeter(b, k).requests(b, writes(deployments.Resource))
		}
		return n
	}
	// The controllers process objects in order, so a new object arrives after all earlier ones are checked.
	s.propagate(b, "before", 1)
	before := written()
	s.run.kill()
	began := time.Now()
	var ready time.Duration
	s.run, ready = startControllers(b, program(b, e), e.Kubeconfig("hub"), samePod)
	s.propagate(b, "after", 1)
	b.ReportMetric(ready.Seconds(), "restart-s")
	b.ReportMetric(time.Since(began).Seconds(), "restart-first-change-s")
	wrote := written() - before - members // Without the writes of the object that was created after the restart.
	b.ReportMetric(wrote, "restart-writes")
	s.rewrote = wrote
	b.Logf("restart: ready after %.1f s, %.0f writes to members", ready.Seconds(), wrote)
}

// system has clients of the hub and the members.
type system struct {
	hub      dynamic.Interface
	members  []dynamic.Interface
	template *unstructured.Unstructured
	run      *controllers
	// writers is the number of concurrent writers.
	writers int
	// rewrote is the number of copies that the last restart wrote.
	rewrote float64
}

func newSystem(b *testing.B, hub string, members ...string) *system {
	b.Helper()
	s := &system{hub: dynamicClient(b, hub), template: &unstructured.Unstructured{}, writers: writers}
	for _, m := range members {
		s.members = append(s.members, dynamicClient(b, m))
	}
	text, err := os.ReadFile("../../fleet/policy/override/testdata/bench/deployment.yaml")
	if err != nil {
		b.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &s.template.Object); err != nil {
		b.Fatal(err)
	}
	return s
}

func dynamicClient(b *testing.B, kubeconfig string) dynamic.Interface {
	b.Helper()
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		b.Fatal(err)
	}
	cfg.QPS = -1
	c, err := dynamic.NewForConfig(cfg)
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// write writes n objects directly to the clusters, with a label hello if it is not empty.
func (s *system) write(b *testing.B, prefix string, n int, to []dynamic.Interface, hello string) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	labels := map[string]string{}
	if hello != "" {
		labels["hello"] = hello
	}
	began := time.Now()
	err := s.each(n, func(i int) error { return s.put(ctx, prefix, i, to, labels) })
	if err != nil {
		b.Fatal(err)
	}
	return time.Since(began)
}

// put writes an object to the clusters, one after the other.
func (s *system) put(ctx context.Context, prefix string, i int, to []dynamic.Interface, labels map[string]string) error {
	body, err := json.Marshal(s.object(prefix, i, labels).Object)
	if err != nil {
		return err
	}
	force := true
	for _, c := range to {
		if _, err := c.Resource(deployments).Namespace("default").Patch(ctx, name(prefix, i), types.ApplyPatchType, body,
			metav1.PatchOptions{FieldManager: "bench", Force: &force}); err != nil {
			return err
		}
	}
	return nil
}

// arrivals starts watches, and returns a function that waits until each cluster has shown n objects that the selector
// selects.
func (s *system) arrivals(b *testing.B, on []dynamic.Interface, selector string, n int) (wait func()) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	var arrived sync.WaitGroup
	for _, c := range on {
		w, err := c.Resource(deployments).Namespace("default").Watch(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			b.Fatal(err)
		}
		arrived.Go(func() {
			defer w.Stop()
			seen := map[string]bool{}
			for e := range w.ResultChan() {
				if o, ok := e.Object.(*unstructured.Unstructured); ok {
					seen[o.GetName()] = true
				}
				if len(seen) == n {
					return
				}
			}
		})
	}
	return func() {
		arrived.Wait()
		late := ctx.Err() != nil
		cancel()
		if late {
			b.Fatalf("not all of %d objects with %s arrived everywhere in %s", n, selector, limit)
		}
	}
}

// propagate creates n objects with a policy that sets the label hello=world on the copies. Like carry, it waits for the
// copies and returns the duration.
func (s *system) propagate(b *testing.B, prefix string, n int) time.Duration {
	b.Helper()
	return s.carry(b, prefix, n, map[string]string{
		"kubeadmiral.io/propagation-policy-name": "pp", "kubeadmiral.io/override-policy-name": "op",
	})
}

// carry creates n objects with these labels on the hub, waits until every member has every copy with the label
// hello=world, and returns the duration.
func (s *system) carry(b *testing.B, prefix string, n int, labels map[string]string) time.Duration {
	b.Helper()
	arrived := s.arrivals(b, s.members, "hello=world,bench="+prefix, n)
	began := time.Now()
	err := s.each(n, func(i int) error {
		_, err := s.hub.Resource(deployments).Namespace("default").Create(b.Context(), s.object(prefix, i, labels), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	arrived()
	return time.Since(began)
}

// clean deletes the objects from the clusters, and waits until the members have no copies of them.
func (s *system) clean(b *testing.B, prefix string, n int, from []dynamic.Interface) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	if err := s.each(n, func(i int) error {
		for _, c := range from {
			if err := c.Resource(deployments).Namespace("default").Delete(ctx, name(prefix, i), metav1.DeleteOptions{}); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	for _, m := range s.members {
		harness.Eventually(b, "the copies are gone", func(ctx context.Context) error {
			list, err := m.Resource(deployments).Namespace("default").List(ctx, metav1.ListOptions{LabelSelector: "bench=" + prefix, Limit: 1})
			if err == nil && len(list.Items) > 0 {
				return errors.New("not all are")
			}
			return err
		})
	}
}

// each calls the function do for 0 to n-1, with all writers concurrently.
func (s *system) each(n int, do func(i int) error) error {
	next := make(chan int)
	errs := make([]error, s.writers)
	var all sync.WaitGroup
	for w := range s.writers {
		all.Go(func() {
			for i := range next {
				if err := do(i); err != nil && errs[w] == nil {
					errs[w] = err
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	all.Wait()
	return errors.Join(errs...)
}

func (s *system) object(prefix string, i int, labels map[string]string) *unstructured.Unstructured {
	o := s.template.DeepCopy()
	o.SetName(name(prefix, i))
	all := map[string]string{"app": "web", "bench": prefix}
	maps.Copy(all, labels)
	o.SetLabels(all)
	return o
}

func name(prefix string, i int) string { return fmt.Sprintf("%s-%05d", prefix, i) }
