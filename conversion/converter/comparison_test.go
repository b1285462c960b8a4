package converter

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/hub"
)

// review has two objects. The shadow converts the first object to another result than the serving policy, and the
// second object to the same result.
const review = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"7","desiredAPIVersion":"example.com/v2","objects":[
{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"a","namespace":"n","uid":"1"},"spec":{"size":5,"description":"five"}},
{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"b","namespace":"n","uid":"2"},"spec":{"description":"none"}}]}}`

// counted returns the value of a counter.
func counted(t *testing.T, c prometheus.Counter) float64 {
	t.Helper()
	m := &dto.Metric{}
	if err := c.Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func post(t *testing.T, h http.Handler, crd, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, Path+crd, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	h.ServeHTTP(w, r)
	return w
}

// shadowing returns a registry with a comparison.
func shadowing(t *testing.T) (*registry, *refractv1alpha1.ConversionPolicy) {
	t.Helper()
	tab := newRegistry(logr.Discard())
	shadow := policyFrom(t, other, "shadow", 1)
	err := tab.update("widgets.example.com", []refractv1alpha1.ConversionPolicy{*serving(t, policyFrom(t, mapped, "widgets", 2)), *shadow})
	if err != nil {
		t.Fatal(err)
	}
	return tab, shadow
}

// TestComparison checks that the counts in the status include the results of a comparison.
func TestComparison(t *testing.T) {
	tab, shadow := shadowing(t)
	alone := newRegistry(logr.Discard())
	if err := alone.update("widgets.example.com", []refractv1alpha1.ConversionPolicy{*serving(t, policyFrom(t, mapped, "widgets", 2))}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		got, want := post(t, tab, "widgets.example.com", review), post(t, alone, "widgets.example.com", review)
		if diff := cmp.Diff(want.Body.String(), got.Body.String()); diff != "" || got.Code != http.StatusOK {
			t.Errorf("The answer is what it is without a shadow: %d, -want, +got:\n%s", got.Code, diff)
		}
		j := <-tab.comparer.queue
		tab.comparer.compare(&j)
		tab.comparer.held.Add(-j.size())
	}
	if held := tab.comparer.held.Load(); held != 0 {
		t.Errorf("%d bytes are held that are not there", held)
	}
	scheme, err := hub.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	shadow.Status.Shadow = &refractv1alpha1.ConversionShadowing{Generation: 1, Compared: 10, Different: 3}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(shadow).WithObjects(shadow).Build()
	tab.comparer.flush(t.Context(), c)
	tab.comparer.flush(t.Context(), c) // The second call adds nothing.
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(shadow), shadow); err != nil {
		t.Fatal(err)
	}
	want := &refractv1alpha1.ConversionShadowing{
		Generation: 1, Compared: 14, Different: 5, LastDifference: "v1 to v2 of n/a: spec.capacity is different",
	}
	if diff := cmp.Diff(want, shadow.Status.Shadow); diff != "" {
		t.Errorf("The status: -want, +got:\n%s", diff)
	}
}

// TestComparisonIsKept checks that a comparison and its counts survive a change of the status of another policy.
// Another generation of the shadow starts a new comparison.
func TestComparisonIsKept(t *testing.T) {
	tab, shadow := shadowing(t)
	before := tab.entries["widgets.example.com"].comparisons[0]
	primary := serving(t, policyFrom(t, mapped, "widgets", 2))
	put := func() *registry {
		t.Helper()
		if err := tab.update("widgets.example.com", []refractv1alpha1.ConversionPolicy{*primary, *shadow}); err != nil {
			t.Fatal(err)
		}
		return tab
	}
	if put().entries["widgets.example.com"].comparisons[0] != before {
		t.Error("Nothing has changed, and the shadow is another one.")
	}
	shadow.Generation++
	if put().entries["widgets.example.com"].comparisons[0] == before {
		t.Error("The shadow has another spec, and is the same.")
	}
}

// TestBusyComparison checks that a full queue does not change the answers. Further reviews are skipped and take no
// memory.
func TestBusyComparison(t *testing.T) {
	tab, _ := shadowing(t)
	skipped := compared.WithLabelValues("widgets.example.com", comparisonSkipped)
	before := counted(t, skipped)
	for range mostWaiting + 5 {
		if got := post(t, tab, "widgets.example.com", review); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), `"Success"`) {
			t.Fatalf("The answer is %d %s", got.Code, got.Body)
		}
	}
	if got := counted(t, skipped) - before; got != 5 {
		t.Errorf("%v reviews were skipped, want 5", got)
	}
	if held := tab.comparer.held.Load(); held > mostHeld {
		t.Errorf("%d bytes are held, at most %d may be", held, mostHeld)
	}
	large := strings.Replace(review, `"five"`, `"`+strings.Repeat("x", mostCompared)+`"`, 1)
	<-tab.comparer.queue
	if got := post(t, tab, "widgets.example.com", large); got.Code != http.StatusOK || !strings.Contains(got.Body.String(), `"Success"`) {
		t.Errorf("The answer to a large one is %d", got.Code)
	}
	if got := counted(t, skipped) - before; got != 6 {
		t.Errorf("%v reviews were skipped, want 6", got)
	}
}

// TestUnreadableReview checks that the metrics count one failed object for a review that the comparison cannot read.
func TestUnreadableReview(t *testing.T) {
	tab, _ := shadowing(t)
	failed := compared.WithLabelValues("widgets.example.com", comparisonFailed)
	before := counted(t, failed)
	tab.comparer.compare(&job{
		crd: "widgets.example.com", entry: tab.entries["widgets.example.com"], review: []byte("{"), answer: []byte(`{"response":{}}`),
	})
	if got := counted(t, failed) - before; got != 1 {
		t.Errorf("%v are counted as failed, want 1", got)
	}
}

// TestRefusedReview checks that a body that is no review is not compared, and that its reserved memory is released.
func TestRefusedReview(t *testing.T) {
	tab, _ := shadowing(t)
	if got := post(t, tab, "widgets.example.com", "{}"); got.Code != http.StatusBadRequest {
		t.Errorf("The answer is %d", got.Code)
	}
	if held, waiting := tab.comparer.held.Load(), len(tab.comparer.queue); held != 0 || waiting != 0 {
		t.Errorf("%d bytes are held, and %d reviews wait", held, waiting)
	}
}

// TestComparerEnds checks that the counts are written into the status when the program ends.
func TestComparerEnds(t *testing.T) {
	tab, shadow := shadowing(t)
	scheme, err := hub.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(shadow).WithObjects(shadow).Build()
	post(t, tab, "widgets.example.com", review)
	j := <-tab.comparer.queue
	tab.comparer.compare(&j)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tab.comparer.runnable(c)(ctx); err != nil {
		t.Fatal(err)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(shadow), shadow); err != nil {
		t.Fatal(err)
	}
	if s := shadow.Status.Shadow; s == nil || s.Compared != 2 {
		t.Errorf("The status is %+v", s)
	}
}

func TestDifference(t *testing.T) {
	cases := map[string]struct {
		reason string
		a, b   string
		place  string
		is     bool
	}{
		"Same":        {"The order of keys does not matter.", `{"a":1,"b":[true,null]}`, `{"b":[true,null],"a":1}`, "", false},
		"Numbers":     {"1 and 1.0 are one number.", `{"a":1}`, `{"a":1.0}`, "", false},
		"Value":       {"The place is named without its values, which may be confidential.", `{"a":{"b":"secret"}}`, `{"a":{"b":"other"}}`, "a.b", true},
		"Absent":      {"Null differs from an absent value.", `{"a":{"b":null}}`, `{"a":{}}`, "a.b", true},
		"Added":       {"A value of the shadow only is a difference.", `{"a":{}}`, `{"a":{"c":1}}`, "a.c", true},
		"Element":     {"An element of a list is named by its index.", `{"a":[1,2]}`, `{"a":[1,3]}`, "a[1]", true},
		"Length":      {"Lists of different lengths differ as a whole.", `{"a":[1]}`, `{"a":[1,2]}`, "a", true},
		"Kinds":       {"An object differs from a list.", `{"a":{}}`, `{"a":[]}`, "a", true},
		"ListAndText": {"A string differs from a list.", `{"a":"x"}`, `{"a":["x"]}`, "a", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var a, b map[string]any
			if err := json.NewDecoder(bytes.NewReader([]byte(tc.a))).Decode(&a); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(tc.b), &b); err != nil {
				t.Fatal(err)
			}
			if place, is := difference(a, b, ""); place != tc.place || is != tc.is {
				t.Errorf("%s\ndifference(): got %q, %t, want %q, %t", tc.reason, place, is, tc.place, tc.is)
			}
		})
	}
	if _, is := difference(int64(1), 1.0, ""); is {
		t.Error("An integer is the same as a float of its value.")
	}
}

// TestComparing answers and compares reviews in several goroutines while policies change. Every object must be counted
// once.
func TestComparing(t *testing.T) {
	tab, shadow := shadowing(t)
	scheme, err := hub.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(shadow).WithObjects(shadow).Build()
	skipped := compared.WithLabelValues("widgets.example.com", comparisonSkipped)
	before := counted(t, skipped)
	ctx, cancel := context.WithCancel(t.Context())
	var comparing, asking sync.WaitGroup
	comparing.Go(func() {
		if err := tab.comparer.runnable(c)(ctx); err != nil {
			t.Error(err)
		}
	})
	const askers, reviews = 4, 100
	for range askers {
		asking.Go(func() {
			for range reviews {
				if got := post(t, tab, "widgets.example.com", review); !strings.Contains(got.Body.String(), `"Success"`) {
					t.Errorf("The answer is %s", got.Body)
				}
			}
		})
	}
	primary := serving(t, policyFrom(t, mapped, "widgets", 2))
	for range 20 {
		if err := tab.update("widgets.example.com", []refractv1alpha1.ConversionPolicy{*primary, *shadow}); err != nil {
			t.Error(err)
		}
	}
	asking.Wait()
	for tab.comparer.held.Load() > 0 {
		runtime.Gosched()
	}
	cancel()
	comparing.Wait()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(shadow), shadow); err != nil {
		t.Fatal(err)
	}
	want := int64(askers*reviews) - int64(counted(t, skipped)-before)
	if s := shadow.Status.Shadow; s == nil || s.Compared != 2*want || s.Different != want {
		t.Errorf("%d reviews of two objects were compared: the status is %+v", want, s)
	}
}
