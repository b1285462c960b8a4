package bench

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"
)

var (
	overridePolicies = schema.GroupVersionResource{Group: "core.kubeadmiral.io", Version: "v1alpha1", Resource: "overridepolicies"}
	propagations     = schema.GroupVersionResource{Group: "refract.dev", Version: "v1alpha1", Resource: "propagations"}
)

// BenchmarkChange measures the time from the change of an OverridePolicy until every member has every changed copy, for
// 100 and for 1,000 objects on three members without controllers. The floor is the time that 16 writers need to apply
// the same number of changes directly to the members. Floor and system are measured alternately, each when the system
// is idle. During the larger change, the benchmark also edits a single other object repeatedly, and compares the delay
// of these edits with the delay in an idle system.
func BenchmarkChange(b *testing.B) {
	e := up(b, members)
	var kubeconfigs []string
	for _, m := range e.Members {
		kubeconfigs = append(kubeconfigs, e.Kubeconfig(m))
	}
	s := newSystem(b, e.Kubeconfig("hub"), kubeconfigs...)
	s.run, _ = startControllers(b, program(b, e), e.Kubeconfig("hub"))
	b.Cleanup(func() { s.run.kill() })
	s.policies(b, e, "testdata/policies.yaml")
	for b.Loop() {
		b.ReportMetric(0, "ns/op") // The metric ns/op would cover the whole benchmark.
		s.change(b, 100, rounds, false)
		s.change(b, 1000, rounds-2, true)
	}
}

// change measures the change of a policy that n objects use, and its floor. It returns the medians: of the floor
// (least) and of the change (took), in seconds.
func (s *system) change(b *testing.B, n, rounds int, editing bool) (least, took float64) {
	b.Helper()
	what, other := fmt.Sprintf("change-%d", n), fmt.Sprintf("other-%d", n)
	s.write(b, other, n, s.members, "world")
	s.propagate(b, what, n)
	if editing {
		s.carry(b, "edited", 1, map[string]string{"kubeadmiral.io/propagation-policy-name": "pp", "hello": "world"})
	}
	s.idle(b)
	var quiet, busy []float64
	if editing {
		quiet = s.edits(b, "quiet", func(done int) bool { return done == 50 })
	}
	var floor, system, cpu []float64
	for round := range rounds {
		hello := []string{"earth", "world"}[round%2]
		file := map[string]string{"earth": "testdata/policies-changed.yaml", "world": "testdata/policies.yaml"}[hello]
		s.idle(b)
		floor = append(floor, s.write(b, other, n, s.members, hello).Seconds())
		arrived := s.arrivals(b, s.members, "bench="+what+",hello="+hello, n)
		before, began := s.run.cpu(), time.Now()
		var arrival time.Duration
		ended := make(chan struct{})
		s.override(b, file)
		go func() {
			defer close(ended)
			arrived()
			arrival = time.Since(began)
		}()
		if editing {
			busy = append(busy, s.edits(b, fmt.Sprint("busy-", round), func(int) bool {
				select {
				case <-ended:
					return true
				default:
					return false
				}
			})...)
		}
		<-ended
		if b.Failed() { // A failure in the other goroutine does not end this one.
			b.FailNow()
		}
		system = append(system, arrival.Seconds())
		cpu = append(cpu, s.run.cpu()-before)
	}
	if !editing { // With edits, the processor time would include them.
		compare(b, what, floor, system)
	} else {
		compare(b, what+"-beside-edits", floor, system)
	}
	b.ReportMetric(middle(cpu), what+"-cpu-s")
	if editing {
		s.compareEdits(b, quiet, busy)
	}
	s.idle(b)
	s.override(b, "testdata/policies.yaml")
	s.idle(b)
	s.clean(b, what, n, []dynamic.Interface{s.hub})
	s.clean(b, other, n, s.members)
	return middle(floor), middle(system)
}

// compareEdits reports the delays of edits, in milliseconds, in an idle system and during a change.
func (s *system) compareEdits(b *testing.B, quiet, busy []float64) {
	b.Helper()
	slices.Sort(quiet)
	slices.Sort(busy)
	p99 := func(all []float64) float64 { return all[len(all)*99/100] }
	b.ReportMetric(p99(quiet), "edit-quiet-p99-ms")
	b.ReportMetric(p99(busy), "edit-busy-p99-ms")
	b.Logf("edits: %d in an idle system, median %.0f, p99 %.0f ms; %d during a change of 1,000 objects, median %.0f, p99 %.0f ms",
		len(quiet), quiet[len(quiet)/2], p99(quiet), len(busy), busy[len(busy)/2], p99(busy))
}

// edits changes one object on the hub until enough returns true. Each edit starts when the previous one has reached
// every member. It returns the delays of all edits, in milliseconds.
func (s *system) edits(b *testing.B, what string, enough func(done int) bool) []float64 {
	b.Helper()
	var took []float64
	for i := 0; !enough(i); i++ {
		label := fmt.Sprintf("%s-%d", what, i)
		arrived := s.arrivals(b, s.members, "edit="+label, 1)
		began := time.Now()
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"edit":%q}}}`, label)
		_, err := s.hub.Resource(deployments).Namespace("default").Patch(b.Context(), name("edited", 0), types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			b.Fatal(err)
		}
		arrived()
		took = append(took, float64(time.Since(began).Microseconds())/1000)
	}
	return took
}

// override applies the OverridePolicy of a file directly, without the start time of kubectl.
func (s *system) override(b *testing.B, file string) {
	b.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		b.Fatal(err)
	}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			b.Fatal(err)
		}
		if o.GetKind() != "OverridePolicy" {
			continue
		}
		if _, err := s.hub.Resource(overridePolicies).Namespace(o.GetNamespace()).Apply(b.Context(), o.GetName(), o,
			metav1.ApplyOptions{FieldManager: "kubectl", Force: true}); err != nil {
			b.Fatal(err)
		}
	}
}

// idle waits until every Propagation has the condition Synced, and no Propagation has changed for a second.
func (s *system) idle(b *testing.B) {
	b.Helper()
	last, since := "", time.Now()
	await(b, func() bool {
		list, err := s.hub.Resource(propagations).List(b.Context(), metav1.ListOptions{})
		if err != nil {
			b.Fatal(err)
		}
		if list.GetResourceVersion() != last {
			last, since = list.GetResourceVersion(), time.Now()
		}
		for i := range list.Items {
			if conditions, _, _ := unstructured.NestedSlice(list.Items[i].Object, "status", "conditions"); !synced(conditions) {
				return false
			}
		}
		return time.Since(since) > time.Second
	})
}

// synced reports whether a Propagation has the condition Synced.
func synced(conditions []any) bool {
	return slices.ContainsFunc(conditions, func(c any) bool {
		condition, _ := c.(map[string]any)
		return condition["type"] == "Synced" && condition["status"] == "True"
	})
}
