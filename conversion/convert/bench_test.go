package convert

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// benchReview returns a ConversionReview of n pizzas in v1alpha1, each about size bytes long.
func benchReview(n, size int) []byte {
	var b bytes.Buffer
	b.WriteString(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u1","desiredAPIVersion":"restaurant.programming-kubernetes.info/v1beta1","objects":[`)
	note, err := json.Marshal(strings.Repeat("lorem ipsum dolor ", 10))
	if err != nil {
		panic(err)
	}
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"apiVersion":"restaurant.programming-kubernetes.info/v1alpha1","kind":"Pizza","metadata":{"name":"p-%d","namespace":"default","uid":"f18427f0-5ea9-11e9-8219-%012d","resourceVersion":"%d","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"a":"b"}},"spec":{"toppings":["mozzarella","tomato","mozzarella","salami"],"notes":[`, i, i, i+1)
		for k := 0; k*len(note) < size-350; k++ {
			if k > 0 {
				b.WriteByte(',')
			}
			b.Write(note)
		}
		b.WriteString(`]}}`)
	}
	b.WriteString(`]}}`)
	return b.Bytes()
}

// BenchmarkReview converts reviews of pizzas. In one case the order of toppings does not matter; in the other case the
// annotation keeps it.
func BenchmarkReview(b *testing.B) {
	for _, kept := range []bool{false, true} {
		e := pizzaEngine(b, kept)
		for _, n := range []int{1, 1000, 10_000} {
			body := benchReview(n, 10_000)
			b.Run(fmt.Sprintf("kept=%t/n=%d", kept, n), func(b *testing.B) {
				b.SetBytes(int64(len(body)))
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				for b.Loop() {
					benchOnce(b, e, body)
				}
				runtime.ReadMemStats(&after)
				objects := float64(b.N) * float64(n)
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/objects/1000, "µs/object")
				b.ReportMetric(float64(after.Mallocs-before.Mallocs)/objects, "allocs/object")
				b.ReportMetric(float64(after.TotalAlloc-before.TotalAlloc)/float64(b.N)/float64(len(body)), "allocated-bytes/inputbyte")
			})
		}
	}
}

func benchOnce(b *testing.B, e *Engine, body []byte) {
	b.Helper()
	a, err := e.Review(body)
	if err != nil {
		b.Fatal(err)
	}
	if a.Err() != nil {
		b.Fatal(a.Err())
	}
	n, err := a.WriteTo(io.Discard)
	if err != nil || n != a.Len() {
		b.Fatal(n, a.Len(), err)
	}
}

// BenchmarkReviewMemory reports the allocated memory for a review of 100 MB and its answer, per byte of the review. At
// no time is more memory in use.
func BenchmarkReviewMemory(b *testing.B) {
	e := pizzaEngine(b, true)
	body := benchReview(10_000, 10_000)
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		a, err := e.Review(body)
		if err != nil || a.Err() != nil {
			b.Fatal(err, a.Err())
		}
		runtime.ReadMemStats(&after)
		b.ReportMetric((float64(len(body))+float64(after.TotalAlloc-before.TotalAlloc))/float64(len(body)), "bytes/inputbyte")
		runtime.KeepAlive(a)
	}
}

// BenchmarkReviewLatency reports the 99th percentile of the duration of a review of one object.
func BenchmarkReviewLatency(b *testing.B) {
	e := pizzaEngine(b, false)
	body := benchReview(1, 10_000)
	var took []float64
	last := b.Elapsed()
	for b.Loop() {
		benchOnce(b, e, body)
		now := b.Elapsed()
		took = append(took, float64((now - last).Nanoseconds()))
		last = now
	}
	slices.Sort(took)
	b.ReportMetric(took[len(took)*99/100]/1000, "p99-µs")
}

// BenchmarkMove converts pizzas of 10 KB. In its cases, values move at the top level, values move in each element of a
// list, or each element has a kept field. The case none has no conversions, and is the baseline.
func BenchmarkMove(b *testing.B) {
	for _, bc := range []struct {
		name        string
		conversions []Conversion
	}{
		{"none", nil},
		{"move", []Conversion{Move("spec.toppings", "spec.order.toppings")}},
		{"removed", []Conversion{SpokeOnly("spec.toppings")}},
		{"items", []Conversion{Items("spec.lines", "spec.lines", []Conversion{Move("name", "id.name")}, Keys([]string{"name"}, []string{"id.name"}))}},
		{"items-removed", []Conversion{Items("spec.lines", "spec.lines", []Conversion{SpokeOnly("name")})}},
	} {
		e, err := New(Resource{Group: pizzaGroup, Kind: "Pizza", Hub: "v1beta1", Spokes: []Spoke{{Version: "v1alpha1", Conversions: bc.conversions}}})
		if err != nil {
			b.Fatal(err)
		}
		body := bytes.Replace(benchReview(1, 8600), []byte(`"notes":`), []byte(`"lines":[`+strings.TrimSuffix(strings.Repeat(`{"name":"margherita","amount":2,"where":"terrace"},`, 28), ",")+`],"notes":`), 1)
		b.Run(bc.name, func(b *testing.B) {
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			for b.Loop() {
				benchOnce(b, e, body)
			}
		})
	}
}
