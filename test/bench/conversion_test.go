package bench

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apimachineryruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/conversion"
	peer "sigs.k8s.io/controller-runtime/pkg/webhook/conversion"

	"refract.dev/conversion/convert"
	"refract.dev/examples/pizza/restaurant"
	refract "refract.dev/kit/webhook/conversion"
)

// The types that controller-runtime converts: a pizza of 10 KB, which mostly consists of notes.
type (
	topping struct {
		Name     string `json:"name"`
		Quantity int    `json:"quantity"`
	}
	hubSpec struct {
		Toppings []topping `json:"toppings"`
		Notes    []string  `json:"notes,omitempty"`
	}
	hubPizza struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`

		Spec hubSpec `json:"spec"`
	}
	spokeSpec struct {
		Toppings []string `json:"toppings"`
		Notes    []string `json:"notes,omitempty"`
	}
	spokePizza struct {
		metav1.TypeMeta   `json:",inline"`
		metav1.ObjectMeta `json:"metadata"`

		Spec spokeSpec `json:"spec"`
	}
)

// Hub marks the hub version for controller-runtime.
func (*hubPizza) Hub() {}

// DeepCopyObject copies the parts that the conversion may change.
func (p *hubPizza) DeepCopyObject() apimachineryruntime.Object {
	out := *p
	out.ObjectMeta = *p.ObjectMeta.DeepCopy()
	out.Spec = hubSpec{Toppings: slices.Clone(p.Spec.Toppings), Notes: slices.Clone(p.Spec.Notes)}
	return &out
}

// DeepCopyObject copies the parts that the conversion may change.
func (p *spokePizza) DeepCopyObject() apimachineryruntime.Object {
	out := *p
	out.ObjectMeta = *p.ObjectMeta.DeepCopy()
	out.Spec = spokeSpec{Toppings: slices.Clone(p.Spec.Toppings), Notes: slices.Clone(p.Spec.Notes)}
	return &out
}

// ConvertTo counts the toppings.
func (p *spokePizza) ConvertTo(hub conversion.Hub) error {
	out := hub.(*hubPizza)
	out.ObjectMeta, out.Spec.Notes = p.ObjectMeta, p.Spec.Notes
	index := map[string]int{}
	for _, name := range p.Spec.Toppings {
		if i, seen := index[name]; seen {
			out.Spec.Toppings[i].Quantity++
			continue
		}
		index[name] = len(out.Spec.Toppings)
		out.Spec.Toppings = append(out.Spec.Toppings, topping{Name: name, Quantity: 1})
	}
	return nil
}

// ConvertFrom repeats the toppings.
func (p *spokePizza) ConvertFrom(hub conversion.Hub) error {
	in := hub.(*hubPizza)
	p.ObjectMeta, p.Spec.Notes = in.ObjectMeta, in.Spec.Notes
	for _, t := range in.Spec.Toppings {
		for range t.Quantity {
			p.Spec.Toppings = append(p.Spec.Toppings, t.Name)
		}
	}
	return nil
}

// conversionReview returns a review that requests n pizzas of about size bytes each in v1beta1.
func conversionReview(n, size int) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u1","desiredAPIVersion":"%s/v1beta1","objects":[`, group)
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.Write(storedPizza(i, size))
	}
	b.WriteString(`]}}`)
	return b.Bytes()
}

// twice is a text in the response if the conversion has counted a repeated topping.
const twice = `"quantity":2`

// answered sends a review to a handler, and fails the benchmark unless the response contains the text want.
func answered(b *testing.B, h http.Handler, body []byte, want string) {
	b.Helper()
	d := &discard{header: http.Header{}, code: http.StatusOK, want: want}
	h.ServeHTTP(d, httptest.NewRequest(http.MethodPost, "/convert", bytes.NewReader(body)))
	if d.code != http.StatusOK || !d.found {
		b.Fatalf("the review was answered with %d and %d bytes, without %s", d.code, d.bytes, want)
	}
}

// group is the API group of the pizzas.
const group = "restaurant.programming-kubernetes.info"

// storedPizza returns a pizza as the API server sends it.
func storedPizza(i, size int) []byte {
	note := []byte(`"` + strings.Repeat("lorem ipsum dolor ", 10) + `"`)
	var b bytes.Buffer
	fmt.Fprintf(&b, `{"apiVersion":"%s/v1alpha1","kind":"Pizza","metadata":{"name":"p-%d","namespace":"default",`+
		`"uid":"f18427f0-5ea9-11e9-8219-%012d","resourceVersion":"%d","creationTimestamp":"2026-01-01T00:00:00Z","labels":{"a":"b"}},`+
		`"spec":{"toppings":["mozzarella","tomato","mozzarella","salami"],"notes":[`, group, i, i, i+1)
	for b.Len() < size-len(note) {
		b.Write(note)
		b.WriteByte(',')
	}
	b.Write(note)
	b.WriteString(`]}}`)
	return b.Bytes()
}

// engine returns the restaurant's engine.
func engine(b *testing.B) *convert.Engine {
	b.Helper()
	e, err := convert.New(restaurant.Resource())
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// controllerRuntime returns controller-runtime's handler for the same pizzas.
func controllerRuntime() http.Handler {
	s := apimachineryruntime.NewScheme()
	s.AddKnownTypeWithName(schema.GroupVersionKind{Group: group, Version: "v1beta1", Kind: "Pizza"}, &hubPizza{})
	s.AddKnownTypeWithName(schema.GroupVersionKind{Group: group, Version: "v1alpha1", Kind: "Pizza"}, &spokePizza{})
	return peer.NewWebhookHandler(s, peer.NewRegistry())
}

// discard is a ResponseWriter that discards the response, and only records whether the response is correct.
type discard struct {
	header http.Header
	code   int
	bytes  int64
	want   string
	found  bool
}

func (d *discard) Header() http.Header { return d.header }
func (d *discard) WriteHeader(code int) {
	d.code = code
}

func (d *discard) Write(p []byte) (int, error) {
	d.bytes += int64(len(p))
	d.found = d.found || bytes.Contains(p, []byte(d.want))
	return len(p), nil
}

// BenchmarkConversionReview compares the restaurant's handler with controller-runtime's handler for typed pizzas. Both
// convert the same reviews alternately, on one core, with 1, 1,000 and 10,000 objects of 10 KB. For one object, it also
// reports the 99th percentile of the time; for 10,000, the memory as a multiple of the review's size.
func BenchmarkConversionReview(b *testing.B) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	ours, theirs := refract.Handler(engine(b), refract.Options{}), controllerRuntime()
	for _, n := range []int{1, 1000, 10000} {
		body := conversionReview(n, 10_000)
		b.Run(fmt.Sprintf("objects=%d", n), func(b *testing.B) {
			rounds := max(5, 2000/n)
			var mine, peers []time.Duration
			for b.Loop() {
				for range rounds {
					mine = append(mine, timed(func() { answered(b, ours, body, twice) }))
					peers = append(peers, timed(func() { answered(b, theirs, body, twice) }))
				}
			}
			b.ReportMetric(0, "ns/op") // The metric ns/op would cover both handlers.
			slices.Sort(mine)
			slices.Sort(peers)
			each := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1000 / float64(n) }
			b.ReportMetric(each(mine[len(mine)/2]), "µs/object")
			b.ReportMetric(each(peers[len(peers)/2]), "µs/object-controller-runtime")
			b.ReportMetric(float64(peers[len(peers)/2])/float64(mine[len(mine)/2]), "times-faster")
			b.ReportMetric(testing.AllocsPerRun(3, func() { answered(b, ours, body, twice) })/float64(n), "allocs/object")
			if n == 1 {
				b.ReportMetric(float64(mine[len(mine)*99/100].Microseconds()), "µs-p99")
			}
			if n == 10000 {
				b.ReportMetric(mine[len(mine)/2].Seconds(), "s")
				b.ReportMetric(peak(func() { answered(b, ours, body, twice) })/float64(len(body)), "memory/size")
			}
		})
	}
}

func timed(f func()) time.Duration {
	begun := time.Now()
	f()
	return time.Since(begun)
}

// peak returns the number of bytes that f allocates on the heap, including the body of its request.
func peak(f func()) float64 {
	runtime.GC()
	debug.FreeOSMemory()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // Without garbage collection, all allocations count.
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return float64(after.TotalAlloc - before.TotalAlloc)
}
