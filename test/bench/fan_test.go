// Package bench measures from outside: the whole system against the floor of
// writing the same objects to the API servers directly, and the commands that need
// none as whole processes, against kustomize, each in the same run.
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

	"refract.dev/test/fleet"
)

const (
	members = 3
	objects = 300
	writers = 16
	// rounds of floor and system, in turn; medians are reported.
	rounds = 3
	// limit bounds one round.
	limit = 2 * time.Minute
)

var deployments = schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}

// BenchmarkFan reports how long it takes until each of three bare members holds
// the right copy of 300 Deployments with eight overriders each (system-s), how
// long 16 writers take to put the same objects on the hub and the members by
// server-side apply (floor-s), and the ratio of the two; and for one object put
// into the idle system, the time to the last of the three members.
func BenchmarkFan(b *testing.B) {
	dir := b.TempDir()
	f, err := fleet.Start(dir, "../..", members)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := f.Stop(); err != nil {
			b.Error(err)
		}
	})
	if err := f.StartControllers(); err != nil {
		b.Fatal(err)
	}
	policies, err := os.ReadFile("testdata/policies.yaml")
	if err != nil {
		b.Fatal(err)
	}
	if _, err := f.Kubectl("hub", string(policies), "apply", "-f", "-"); err != nil {
		b.Fatal(err)
	}
	s := newSystem(b, f)
	for b.Loop() {
		var floor, system []float64
		for round := range rounds {
			floor = append(floor, s.floor(b, fmt.Sprintf("floor-%d-%d", b.N, round)).Seconds())
			system = append(system, s.propagate(b, fmt.Sprintf("fan-%d-%d", b.N, round), objects).Seconds())
		}
		var single []float64
		for i := range 50 {
			single = append(single, float64(s.propagate(b, fmt.Sprintf("one-%d-%d", b.N, i), 1).Microseconds())/1000)
		}
		slices.Sort(floor)
		slices.Sort(system)
		slices.Sort(single)
		b.ReportMetric(floor[rounds/2], "floor-s")
		b.ReportMetric(system[rounds/2], "system-s")
		b.ReportMetric(system[rounds/2]/floor[rounds/2], "ratio")
		b.ReportMetric(single[len(single)/2], "single-p50-ms")
		b.ReportMetric(single[len(single)-1], "single-max-ms")
	}
}

// system are clients of the hub and the members.
type system struct {
	hub      dynamic.Interface
	members  []dynamic.Interface
	template *unstructured.Unstructured
}

func newSystem(b *testing.B, f *fleet.Fleet) *system {
	b.Helper()
	s := &system{hub: client(b, f.Kubeconfig("hub")), template: &unstructured.Unstructured{}}
	for _, m := range f.Members {
		s.members = append(s.members, client(b, f.Kubeconfig(m)))
	}
	text, err := os.ReadFile("../../override/testdata/bench/deployment.yaml")
	if err != nil {
		b.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &s.template.Object); err != nil {
		b.Fatal(err)
	}
	return s
}

func client(b *testing.B, kubeconfig string) dynamic.Interface {
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

// floor writes the objects to the hub and the members itself.
func (s *system) floor(b *testing.B, prefix string) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	began := time.Now()
	err := s.each(objects, func(i int) error {
		body, err := json.Marshal(s.object(prefix, i, nil).Object)
		if err != nil {
			return err
		}
		force := true
		for _, c := range append([]dynamic.Interface{s.hub}, s.members...) {
			if _, err := c.Resource(deployments).Namespace("default").Patch(ctx, name(prefix, i), types.ApplyPatchType, body,
				metav1.PatchOptions{FieldManager: "bench", Force: &force}); err != nil {
				return err
			}
		}
		return nil
	})
	took := time.Since(began)
	if err != nil {
		b.Fatal(err)
	}
	s.clean(b, prefix, objects, append([]dynamic.Interface{s.hub}, s.members...))
	return took
}

// propagate creates n objects on the hub and waits until every member holds
// every copy as it should be.
func (s *system) propagate(b *testing.B, prefix string, n int) time.Duration {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	var arrived sync.WaitGroup
	for _, m := range s.members {
		w, err := m.Resource(deployments).Namespace("default").Watch(ctx, metav1.ListOptions{LabelSelector: "hello=world,bench=" + prefix})
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
	labels := map[string]string{"kubeadmiral.io/propagation-policy-name": "pp", "kubeadmiral.io/override-policy-name": "op"}
	began := time.Now()
	err := s.each(n, func(i int) error {
		_, err := s.hub.Resource(deployments).Namespace("default").Create(ctx, s.object(prefix, i, labels), metav1.CreateOptions{})
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	arrived.Wait()
	took := time.Since(began)
	if ctx.Err() != nil {
		b.Fatalf("not all of %d objects arrived on all members in %s", n, limit)
	}
	s.clean(b, prefix, n, []dynamic.Interface{s.hub})
	return took
}

// clean deletes the objects from the clusters and waits until the members hold
// none of them.
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
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, m := range s.members {
		for {
			list, err := m.Resource(deployments).Namespace("default").List(ctx, metav1.ListOptions{LabelSelector: "bench=" + prefix, Limit: 1})
			if err != nil {
				b.Fatal(err)
			}
			if len(list.Items) == 0 {
				break
			}
			<-tick.C
		}
	}
}

// each calls do for 0 to n-1, by as many writers as there are.
func (s *system) each(n int, do func(i int) error) error {
	next := make(chan int)
	errs := make([]error, writers)
	var all sync.WaitGroup
	for w := range writers {
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
