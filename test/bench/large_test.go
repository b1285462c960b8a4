package bench

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"

	"refract.dev/test/harness"
)

const (
	// largeObjects is the number of a tenant's objects that are too large for the member.
	largeObjects = 100
	// largeRounds is the number of rounds. In each round, other tenants write largeWrites objects while no large object
	// is placed, and the same number while all are placed.
	largeRounds = 3
	largeWrites = 350
	// largeTypes is the CRD of the large objects, since a ConfigMap is limited to 1 MiB. largePolicies are the
	// policies.
	largeTypes = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: blobs.bench.refract.dev}
spec:
  group: bench.refract.dev
  names: {kind: Blob, plural: blobs, singular: blob}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`
	largePolicies = `
apiVersion: v1
kind: Namespace
metadata: {name: tenant}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: pp, namespace: tenant}
spec: {schedulingMode: Duplicate}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: pp, namespace: default}
spec: {schedulingMode: Duplicate}
`
)

var (
	blobs      = schema.GroupVersionResource{Group: "bench.refract.dev", Version: "v1", Resource: "blobs"}
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
)

// tenant has large objects on the hub.
type tenant struct {
	hub, member dynamic.Interface
	written     int // Number of objects that other tenants have written.
}

// BenchmarkLargeObjects measures the writes of other tenants while a tenant has 100 objects that the member does not
// store: the time from the creation of an object on the hub until the member has its copy. Each comparison measures
// without and with the policy label on the large objects, which places them on the member. The large objects and the edits
// are otherwise the same. With Edited, the tenant edits one large object after the other, as fast as the hub accepts it.
//
//	NotSent  objects of 1.9 MiB, which Refract does not send
//	Refused  objects of 1.6 MiB in escape sequences, which Refract sends, and the API server of the member cannot store
//
//	NotSent  objects of 1.9 MiB, which Refract does not send
//	Refused  objects of 1.6 MiB in escape sequences, which Refract sends, and the API server of the member cannot store
//
// With Edited, the tenant edits one of them after the other, as fast as the hub accepts it.
func BenchmarkLargeObjects(b *testing.B) {
	e := harness.New(b, harness.Topology{Members: 1, Own: true, LargeHub: true, CRDs: true, Unaudited: true, Alike: true})
	if _, err := e.Refract("join", e.Members[0], "--kubeconfig", e.Kubeconfig("hub"), "--member-kubeconfig", e.Kubeconfig(e.Members[0]), "--existing-credentials", "--timeout", "0"); err != nil {
		b.Fatal(err)
	}
	for cluster, text := range map[string]string{"hub": largeTypes + "---" + largePolicies, e.Members[0]: largeTypes} {
		if _, err := e.Kubectl(cluster, text, "apply", "-f", "-"); err != nil {
			b.Fatal(err)
		}
	}
	t := &tenant{hub: dynamicClient(b, e.Kubeconfig("hub")), member: dynamicClient(b, e.Kubeconfig(e.Members[0]))}
	run, _ := startControllers(b, program(b, e), e.Kubeconfig("hub"), samePod)
	b.Cleanup(func() { run.kill() })
	for _, bc := range []struct{ name, text string }{{"NotSent", strings.Repeat("x", 19<<20/10)}, {"Refused", strings.Repeat("\n", 16<<20/20)}} {
		for _, edits := range []bool{false, true} {
			name := bc.name
			if edits {
				name += "Edited"
			}
			b.Run(name, func(b *testing.B) {
				for b.Loop() {
					t.compare(b, bc.text, edits)
				}
			})
		}
	}
}

// compare reports the delays of other tenants' objects while the large objects are not placed, and while they are
// placed.
func (t *tenant) compare(b *testing.B, text string, edits bool) {
	b.Helper()
	t.each(b, func(ctx context.Context, name string) error {
		o := &unstructured.Unstructured{Object: map[string]any{"text": text}}
		o.SetAPIVersion("bench.refract.dev/v1")
		o.SetKind("Blob")
		o.SetName(name)
		_, err := t.hub.Resource(blobs).Namespace("tenant").Create(ctx, o, metav1.CreateOptions{})
		return err
	})
	var alone, beside []time.Duration
	var ratios []float64
	edited, took := 0, time.Duration(0)
	t.others(b, 20)
	for range largeRounds {
		var p99 [2]time.Duration
		for i, placed := range []bool{false, true} {
			t.place(b, placed)
			stop := func() int { return 0 }
			if edits {
				stop = t.edit(b)
			}
			began := time.Now()
			times := t.others(b, largeWrites)
			took += time.Since(began)
			edited += stop()
			if p99[i] = quantile(times, 99); placed {
				beside = append(beside, times...)
			} else {
				alone = append(alone, times...)
			}
		}
		ratios = append(ratios, float64(p99[1])/float64(p99[0]))
	}
	t.place(b, false)
	t.each(b, func(ctx context.Context, name string) error {
		return t.hub.Resource(blobs).Namespace("tenant").Delete(ctx, name, metav1.DeleteOptions{})
	})
	b.ReportMetric(0, "ns/op")
	for _, percent := range []float64{50, 99} {
		without, with := milliseconds(quantile(alone, percent)), milliseconds(quantile(beside, percent))
		b.ReportMetric(without, fmt.Sprintf("alone-p%.0f-ms", percent))
		b.ReportMetric(with, fmt.Sprintf("p%.0f-ms", percent))
		b.ReportMetric(with/without, fmt.Sprintf("p%.0f-ratio", percent))
	}
	b.ReportMetric(middle(ratios), "ratio")
	b.ReportMetric(float64(edited)/took.Seconds(), "edits/s")
	b.Logf("%d writes each; p99 in rounds: %.2f", len(alone), ratios)
}

// each calls the function do for each of the large objects.
func (t *tenant) each(b *testing.B, do func(ctx context.Context, name string) error) {
	b.Helper()
	for i := range largeObjects {
		if err := do(b.Context(), fmt.Sprint("large-", i)); err != nil {
			b.Fatal(err)
		}
	}
}

// patch changes a large object on the hub.
func (t *tenant) patch(ctx context.Context, name, text string) error {
	_, err := t.hub.Resource(blobs).Namespace("tenant").Patch(ctx, name, types.MergePatchType, []byte(text), metav1.PatchOptions{})
	return err
}

// place places the large objects on the member, or withdraws the placement. It waits until the Propagations of all of
// them report the rejection, or none.
func (t *tenant) place(b *testing.B, placed bool) {
	b.Helper()
	label, want := "null", 0
	if placed {
		label, want = `"pp"`, largeObjects
	}
	t.each(b, func(ctx context.Context, name string) error {
		return t.patch(ctx, name, `{"metadata":{"labels":{"kubeadmiral.io/propagation-policy-name":`+label+`}}}`)
	})
	await(b, func() bool {
		all, err := t.hub.Resource(propagations).Namespace("tenant").List(b.Context(), metav1.ListOptions{})
		if err != nil {
			b.Fatal(err)
		}
		rejected := 0
		for i := range all.Items {
			text, err := all.Items[i].MarshalJSON()
			if err != nil {
				b.Fatal(err)
			}
			if strings.Contains(string(text), `"Rejected"`) {
				rejected++
			}
		}
		return rejected == want
	})
}

// edit edits one large object after the other until stop is called. stop returns the number of edits.
func (t *tenant) edit(b *testing.B) (stop func() int) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	edited := make(chan int)
	go func() {
		n := 0
		for ctx.Err() == nil {
			if err := t.patch(ctx, fmt.Sprint("large-", n%largeObjects), fmt.Sprintf(`{"edit":%d}`, time.Now().UnixNano())); err != nil && ctx.Err() == nil {
				b.Errorf("editing: %v", err)
				break
			}
			n++
		}
		edited <- n
	}()
	return func() int {
		cancel()
		return <-edited
	}
}

// others writes n objects of other tenants, and returns the time until each is on the member.
func (t *tenant) others(b *testing.B, n int) (times []time.Duration) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), limit)
	defer cancel()
	at := t.member.Resource(configMaps).Namespace("default")
	list, err := at.List(ctx, metav1.ListOptions{LabelSelector: "bench=other"})
	if err != nil {
		b.Fatal(err)
	}
	events, err := at.Watch(ctx, metav1.ListOptions{LabelSelector: "bench=other", ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		b.Fatal(err)
	}
	defer events.Stop()
	for range n {
		t.written++
		o := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"a": "b"}}}
		o.SetAPIVersion("v1")
		o.SetKind("ConfigMap")
		o.SetName(fmt.Sprint("other-", t.written))
		o.SetLabels(map[string]string{"bench": "other", "kubeadmiral.io/propagation-policy-name": "pp"})
		began := time.Now()
		if _, err := t.hub.Resource(configMaps).Namespace("default").Create(ctx, o, metav1.CreateOptions{}); err != nil {
			b.Fatal(err)
		}
		for {
			e, open := <-events.ResultChan()
			if !open {
				b.Fatal("the watch of the member has ended")
			}
			if got, ok := e.Object.(*unstructured.Unstructured); ok && e.Type == watch.Added && got.GetName() == o.GetName() {
				break
			}
		}
		times = append(times, time.Since(began))
	}
	return times
}
