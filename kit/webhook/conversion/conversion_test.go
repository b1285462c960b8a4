package conversion

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	utiljson "sigs.k8s.io/json"

	"refract.dev/conversion/convert"
	"refract.dev/internal/fuzzed"
)

// pizzas returns an engine for a kind with a size in v1, which v2 calls diameter.
func pizzas(tb testing.TB) *convert.Engine {
	tb.Helper()
	same := func(value string) (string, error) {
		if value == "square" {
			return "", errors.New("a pizza is round")
		}
		return value, nil
	}
	e, err := convert.New(convert.Resource{
		Group: "restaurant.example", Kind: "Pizza", Hub: "v2",
		Spokes: []convert.Spoke{{Version: "v1", Conversions: []convert.Conversion{convert.Field("spec.size", "spec.diameter", same, same)}}},
	})
	if err != nil {
		tb.Fatal(err)
	}
	return e
}

func pizza(version, field, value string) string {
	return fmt.Sprintf(`{"apiVersion":"restaurant.example/%s","kind":"Pizza","metadata":{"name":"margherita","namespace":"shop"},"spec":{"more":9007199254740993,%q:%q}}`,
		version, field, value)
}

func review(version string, objects ...string) string {
	return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"1","desiredAPIVersion":"restaurant.example/` +
		version + `","objects":[` + strings.Join(objects, ",") + `]}}`
}

func ask(t *testing.T, h http.Handler, body io.Reader, change ...func(*http.Request)) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/convert?timeout=30s", body)
	r.Header.Set("Content-Type", "application/json")
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestHandler(t *testing.T) {
	cases := map[string]struct {
		reason string
		body   string
		change func(*http.Request)
		most   int64
		code   int
		want   string // Substring of the answer.
		counts map[string]float64
	}{
		"Converts": {
			reason: "Fields that the conversion does not name stay unchanged.",
			body:   review("v2", pizza("v1", "size", "large"), pizza("v1", "size", "small")),
			code:   200, want: pizza("v2", "diameter", "large") + "," + pizza("v2", "diameter", "small"),
			counts: map[string]float64{"objects_total/v1/Pizza/v2": 2},
		},
		"CannotConvert": {
			reason: "API servers want a Failure with HTTP 200.",
			body:   review("v2", pizza("v1", "size", "square")),
			code:   200, want: "a pizza is round",
			counts: map[string]float64{"failures_total/v1/Pizza/object/v2": 1},
		},
		"OfAnotherKind": {
			reason: "Unknown kinds do not become labels, so the number of time series is bounded.",
			body:   review("v2", `{"apiVersion":"restaurant.example/v7","kind":"Burger","metadata":{}}`),
			code:   200, want: `"Failure"`,
			counts: map[string]float64{"failures_total/other/other/object/other": 1},
		},
		"NoReview": {
			reason: "The answer to a body that is no review tells the reason.",
			body:   `{"kind":"Pizza"}`,
			code:   400, want: "ConversionReview",
			counts: map[string]float64{"failures_total/other/other/review/other": 1},
		},
		"NoJSON": {
			reason: "A body that is not JSON is no review.",
			body:   `so what`,
			code:   400, want: "ConversionReview",
			counts: map[string]float64{"failures_total/other/other/review/other": 1},
		},
		"Empty": {
			reason: "An empty body is no review.",
			code:   400, want: "ConversionReview",
			counts: map[string]float64{"failures_total/other/other/review/other": 1},
		},
		"GET": {
			reason: "API servers only POST.",
			change: func(r *http.Request) { r.Method = http.MethodGet },
			code:   405, want: "only POST",
		},
		"YAML": {
			reason: "A body with another content type is rejected.",
			change: func(r *http.Request) { r.Header.Set("Content-Type", "application/yaml") },
			code:   415, want: `"application/yaml"`,
			counts: map[string]float64{"failures_total/other/other/review/other": 1},
		},
		"Charset": {
			reason: "The charset of JSON is accepted.",
			body:   review("v2", pizza("v2", "diameter", "large")),
			change: func(r *http.Request) { r.Header.Set("Content-Type", "application/json; charset=utf-8") },
			code:   200, want: pizza("v2", "diameter", "large"),
			counts: map[string]float64{"objects_total/other/other/other": 1},
		},
		"AsLargeAsMayBe": {
			reason: "A review of exactly the limit is accepted.",
			body:   review("v2", pizza("v1", "size", "large")), most: int64(len(review("v2", pizza("v1", "size", "large")))),
			code: 200, want: pizza("v2", "diameter", "large"),
			counts: map[string]float64{"objects_total/v1/Pizza/v2": 1},
		},
		"OneByteTooLarge": {
			reason: "A review of one more byte is rejected.",
			body:   review("v2", pizza("v1", "size", "large")), most: int64(len(review("v2", pizza("v1", "size", "large")))) - 1,
			code: 413, want: "the review has more than",
			counts: map[string]float64{"failures_total/other/other/too_large/other": 1},
		},
		"TooLarge": {
			reason: "A review that announces too many bytes is not read.",
			body:   review("v2", pizza("v1", "size", "large")), most: 100,
			code: 413, want: "more than 100 bytes",
			counts: map[string]float64{"failures_total/other/other/too_large/other": 1},
		},
		"TooLargeUnannounced": {
			reason: "A review without a length is read up to the limit.",
			body:   review("v2", pizza("v1", "size", "large")), most: 100,
			change: func(r *http.Request) { r.ContentLength = -1 },
			code:   413, want: "more than 100 bytes",
			counts: map[string]float64{"failures_total/other/other/too_large/other": 1},
		},
		"Unannounced": {
			reason: "A review needs no announced length.",
			body:   review("v2", pizza("v1", "size", strings.Repeat("x", 200<<10))),
			change: func(r *http.Request) { r.ContentLength = -1 },
			code:   200, want: pizza("v2", "diameter", strings.Repeat("x", 200<<10)),
			counts: map[string]float64{"objects_total/v1/Pizza/v2": 1},
		},
		"CutOff": {
			reason: "A truncated body is rejected.",
			body:   review("v2", pizza("v1", "size", "large")),
			change: func(r *http.Request) {
				r.Body = io.NopCloser(io.MultiReader(io.LimitReader(r.Body, 50), broken{}))
			},
			code: 400, want: "reading the request",
			counts: map[string]float64{"failures_total/other/other/read/other": 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewPedanticRegistry()
			h := Handler(pizzas(t), Options{MaxBytes: tc.most, Metrics: registry, Log: logr.Discard()})
			change := tc.change
			if change == nil {
				change = func(*http.Request) {}
			}
			w := ask(t, h, strings.NewReader(tc.body), change)
			if w.Code != tc.code || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("%s\ngot %d %.2000s, want %d and %.2000s", tc.reason, w.Code, w.Body, tc.code, tc.want)
			}
			if tc.code == http.StatusOK {
				if got := w.Header().Get("Content-Length"); got != fmt.Sprint(w.Body.Len()) || w.Header().Get("Content-Type") != "application/json" {
					t.Errorf("%s\nThe answer has the headers %v and %d bytes", tc.reason, w.Header(), w.Body.Len())
				}
			}
			got := counts(t, registry)
			maps.DeleteFunc(got, func(name string, n float64) bool {
				return strings.HasPrefix(name, "bytes_total/") && n == float64(len(tc.body))
			})
			if tc.counts == nil {
				tc.counts = map[string]float64{}
			}
			if diff := cmp.Diff(tc.counts, got); diff != "" {
				t.Errorf("%s\nmetrics: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// broken is a connection that breaks.
type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// counts returns the counters by name and label values, in the order of the label names.
func counts(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := []string{strings.TrimPrefix(f.GetName(), "refract_conversion_")}
			for _, l := range m.GetLabel() {
				name = append(name, l.GetValue())
			}
			if c := m.GetCounter(); c != nil && c.GetValue() != 0 {
				all[strings.Join(name, "/")] = m.GetCounter().GetValue()
			}
		}
	}
	return all
}

// TestLimits: if the answer to a review exceeds the limit, the review gets a Failure, and the metrics count it as a
// failed request.
func TestLimits(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	h := Handler(pizzas(t), Options{Limits: convert.Limits{OutputBytes: 1}, Metrics: registry})
	one := pizza("v1", "size", "large")
	if w := ask(t, h, strings.NewReader(review("v2", one, one))); w.Code != 200 || !strings.Contains(w.Body.String(), `"Failure"`) {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if got := counts(t, registry); len(got) != 1 {
		t.Errorf("got %v", got)
	}
}

// TestDefaultMaxBytes: the handler has the method that a server calls for the limit.
func TestDefaultMaxBytes(t *testing.T) {
	h, ok := Handler(pizzas(t), Options{}).(interface{ MaxBytes() int64 })
	if !ok || h.MaxBytes() != DefaultMaxBytes {
		t.Errorf("MaxBytes(): want %d, got %v", DefaultMaxBytes, h)
	}
}

// TestLogsNowAndThen sends many reviews that fail. The log has only some of the errors.
func TestLogsNowAndThen(t *testing.T) {
	var mu sync.Mutex
	lines := 0
	log := funcr.New(func(_, args string) {
		mu.Lock()
		defer mu.Unlock()
		lines++
		if !strings.Contains(args, "a pizza is round") || strings.Contains(args, "9007199254740993") {
			t.Errorf("The log must have the error, and no values of objects: %s", args)
		}
	}, funcr.Options{})
	h := Handler(pizzas(t), Options{Log: log})
	bad := strings.Repeat(pizza("v1", "size", "square")+",", 99) + pizza("v1", "size", "square")
	for range 100 {
		ask(t, h, strings.NewReader(review("v2", bad)))
	}
	if lines < 10 || lines > 15 {
		t.Errorf("got %d log lines, want about 10", lines)
	}
}

// TestReviewsAtTheSameTime: concurrent reviews reuse buffers, and no two reviews use one buffer at the same time.
func TestReviewsAtTheSameTime(t *testing.T) {
	h := Handler(pizzas(t), Options{})
	var asking sync.WaitGroup
	for i := range 8 {
		asking.Go(func() {
			for n := range 200 {
				size := strings.Repeat(string(rune('a'+i)), 1+n*50)
				w := ask(t, h, strings.NewReader(review("v2", pizza("v1", "size", size))))
				if want := pizza("v2", "diameter", size); !strings.Contains(w.Body.String(), want) {
					t.Errorf("got %.500s, want %.500s", w.Body, want)
					return
				}
			}
		})
	}
	asking.Wait()
}

// pages returns a large review as a stream, so that it is never in memory as a whole.
func pages(objects, size int) (body io.Reader, length int64) {
	begin, end, _ := strings.Cut(review("v2", "HERE"), "HERE")
	one := strings.Replace(pizza("v1", "size", "large"), "{", `{"notes":"`+strings.Repeat("x", size)+`",`, 1)
	readers := []io.Reader{strings.NewReader(begin)}
	length = int64(len(begin) + len(end) + objects*len(one) + objects - 1)
	for i := range objects {
		if i > 0 {
			readers = append(readers, strings.NewReader(","))
		}
		readers = append(readers, strings.NewReader(one))
	}
	return io.MultiReader(append(readers, strings.NewReader(end))...), length
}

// sink counts the written bytes.
type sink struct {
	header http.Header
	code   int
	size   int64
}

func (s *sink) Header() http.Header  { return s.header }
func (s *sink) WriteHeader(code int) { s.code = code }
func (s *sink) Write(text []byte) (int, error) {
	s.size += int64(len(text))
	return len(text), nil
}

// TestMemoryOfALargeReview converts 100 MB, and measures all memory that the conversion allocates.
func TestMemoryOfALargeReview(t *testing.T) {
	h := Handler(pizzas(t), Options{})
	body, length := pages(10_000, 10_000)
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/convert", body)
	r.ContentLength = length
	w := &sink{header: http.Header{}}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	h.ServeHTTP(w, r)
	runtime.ReadMemStats(&after)
	if w.size < length {
		t.Fatalf("The answer has %d bytes, the review %d", w.size, length)
	}
	took := float64(after.TotalAlloc-before.TotalAlloc) / float64(length)
	t.Logf("%.2f bytes for each byte of the review", took)
	if took > 2.5 {
		t.Errorf("got %.2f bytes for each byte of the review, want at most 2.5", took)
	}
}

// TestSilentClientsGetNoMemory announces large reviews and sends only a small part of them.
func TestSilentClientsGetNoMemory(t *testing.T) {
	h := Handler(pizzas(t), Options{})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 10 {
		w := ask(t, h, io.MultiReader(bytes.NewReader(make([]byte, 1000)), broken{}), func(r *http.Request) { r.ContentLength = 100 << 20 })
		if w.Code != http.StatusBadRequest {
			t.Errorf("got %d", w.Code)
		}
	}
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; took > 50<<20 {
		t.Errorf("Silent clients cost %d bytes", took)
	}
}

// FuzzHandler posts arbitrary bodies. The answer must be complete, and a successful one must have as many objects as
// the request.
func FuzzHandler(f *testing.F) {
	one := pizza("v1", "size", "large")
	for _, seed := range []string{
		"", "{}", `{"request":{}}`, review("v2"), review("v2", one), review("v1", one, one), review("v2", one, pizza("v2", "diameter", "small")),
		review("v2", pizza("v1", "size", "square")), review("v3", one), review("v2", `{"apiVersion":"restaurant.example/v1","kind":"Pizza"}`),
		strings.Replace(review("v2", one), "/v1\"", "/v1beta1\"", 1), review("v2", `null`), review("v2", one)[:100], "\xff",
	} {
		f.Add([]byte(seed))
	}
	h := Handler(pizzas(f), Options{})
	f.Fuzz(func(t *testing.T, text []byte) {
		if len(text) > fuzzed.MiB {
			t.Skip("more than a MiB")
		}
		before := bytes.Clone(text)
		var w *httptest.ResponseRecorder
		fuzzed.Run(t, func() int {
			w = ask(t, h, bytes.NewReader(text))
			return len(text)
		})
		if !bytes.Equal(before, text) {
			t.Error("The request was changed.")
		}
		if w.Code == http.StatusBadRequest {
			return
		}
		if w.Code != http.StatusOK || w.Header().Get("Content-Length") != fmt.Sprint(w.Body.Len()) {
			t.Fatalf("got %d with %v for %d bytes", w.Code, w.Header(), w.Body.Len())
		}
		var asked, answered struct {
			Request struct {
				UID     string            `json:"uid"`
				Objects []json.RawMessage `json:"objects"`
			} `json:"request"`
			Response struct {
				UID     string            `json:"uid"`
				Objects []json.RawMessage `json:"convertedObjects"`
				Result  struct {
					Status string `json:"status"`
				} `json:"result"`
			} `json:"response"`
		}
		if err := utiljson.UnmarshalCaseSensitivePreserveInts(w.Body.Bytes(), &answered); err != nil {
			t.Fatalf("%v: %s", err, w.Body)
		}
		if answered.Response.Result.Status != "Success" {
			return
		}
		if err := utiljson.UnmarshalCaseSensitivePreserveInts(text, &asked); err != nil {
			t.Fatalf("A body that is not JSON was converted: %v", err)
		}
		if len(asked.Request.Objects) != len(answered.Response.Objects) {
			t.Errorf("%d objects became %d", len(asked.Request.Objects), len(answered.Response.Objects))
		}
	})
}

// BenchmarkHandler converts reviews of one and of 1,000 objects of 10 KB.
func BenchmarkHandler(b *testing.B) {
	for _, objects := range []int{1, 1000} {
		b.Run(fmt.Sprint(objects), func(b *testing.B) {
			h := Handler(pizzas(b), Options{})
			body, length := pages(objects, 10_000)
			text, err := io.ReadAll(body)
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(length)
			b.ReportAllocs()
			for b.Loop() {
				r := httptest.NewRequestWithContext(b.Context(), http.MethodPost, "/convert", bytes.NewReader(text))
				h.ServeHTTP(&sink{header: http.Header{}}, r)
			}
		})
	}
}
