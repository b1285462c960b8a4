package member

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// object reads one as a client does.
func object(tb testing.TB, text string) *unstructured.Unstructured {
	tb.Helper()
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON([]byte(text)); err != nil {
		tb.Fatal(err)
	}
	return u
}

// TestRubbishStatus: whatever a member says of a copy, it is that copy that fails, and
// says what is wrong.
func TestRubbishStatus(t *testing.T) {
	const (
		pod        = `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"d","name":"web","uid":"u"},"status":{"phase":"Running","containerStatuses":%s}}`
		deployment = `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"namespace":"d","name":"web","uid":"u","generation":1},"spec":{"replicas":1},"status":%s}`
	)
	cases := map[string]struct {
		reason, object, status string
		want                   refractv1alpha1.Readiness
		message                string
	}{
		"Strings":       {"The library takes each for an object, and panics.", pod, `["a","b"]`, refractv1alpha1.ReadinessFailed, "status.containerStatuses[0]: want an object, got a string"},
		"NoList":        {"Nor is it always a list.", pod, `{"a":1}`, refractv1alpha1.ReadinessFailed, "status.containerStatuses: want a list, got an object"},
		"Name":          {"A name is text.", pod, `[{"name":7}]`, refractv1alpha1.ReadinessFailed, "status.containerStatuses[0].name: want a string, got a number"},
		"NullName":      {"Null is no text.", pod, `[{"name":null,"state":{}}]`, refractv1alpha1.ReadinessFailed, "status.containerStatuses[0].name: want a string, got null"},
		"State":         {"A state is an object.", pod, `[{"name":"a"},{"name":"b","state":[]}]`, refractv1alpha1.ReadinessFailed, "status.containerStatuses[1].state: want an object, got a list"},
		"Waiting":       {"So is what is in it.", pod, `[{"name":"a","state":{"waiting":true}}]`, refractv1alpha1.ReadinessFailed, "status.containerStatuses[0].state.waiting: want an object, got a boolean"},
		"Reason":        {"A reason is text.", pod, `[{"name":"a","state":{"waiting":{"reason":{}}}}]`, refractv1alpha1.ReadinessFailed, "status.containerStatuses[0].state.waiting.reason: want a string, got an object"},
		"Many":          {"No pod has so many containers.", pod, "[" + strings.Repeat("{},", mostContainers) + "{}]", refractv1alpha1.ReadinessFailed, "status.containerStatuses: want at most 1000, got 1001"},
		"Crashing":      {"What is as it should be is read.", pod, `[{"name":"a","state":{"waiting":{"reason":"CrashLoopBackOff"}}}]`, refractv1alpha1.ReadinessFailed, "Containers in CrashLoop state: a"},
		"Starting":      {"What may be left out may.", pod, `[{},{"name":"a","state":{"running":{}}}]`, refractv1alpha1.ReadinessInProgress, "not Ready"},
		"Text":          {"A status is an object.", deployment, `"well"`, refractv1alpha1.ReadinessFailed, "its status on the cluster cannot be read"},
		"ListOfStrings": {"Conditions are objects.", deployment, `{"observedGeneration":1,"conditions":["a"]}`, refractv1alpha1.ReadinessFailed, "its status on the cluster cannot be read"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got told
			c := newCopies(pods, got.hooks())
			if err := c.Add(object(t, fmt.Sprintf(tc.object, tc.status))); err != nil {
				t.Fatal(err)
			}
			item, ok := c.get(webName)
			if !ok || item.Readiness != tc.want || !strings.Contains(item.ReadinessMessage, tc.message) {
				t.Errorf("%s\nwant %s %q, got %s %q", tc.reason, tc.want, tc.message, item.Readiness, item.ReadinessMessage)
			}
		})
	}
}

// TestUnreadableCopy: of a copy with marks that no copy of ours has nothing is believed.
func TestUnreadableCopy(t *testing.T) {
	var got told
	c := newCopies(configMaps, got.hooks())
	m := seen(t, firstUID, "10", "h1", applied)
	m.Annotations[refractv1alpha1.SourceAnnotation] = strings.Repeat("x", mostMark+1)
	_ = c.Add(m)
	item, ok := c.get(webName)
	if !ok || !strings.Contains(item.Fault, "want at most 2048 bytes, got 2049") || item.Source != "" || item.UID != firstUID {
		t.Errorf("want nothing known of the copy but its UID, and why, got %+v", item)
	}
	got = told{}
	_ = c.Update(seen(t, firstUID, "11", "h1", applied))
	if item, _ := c.get(webName); item.Fault != "" || item.Source == "" || got.changed != 1 {
		t.Errorf("want it known again, and told, got %+v", item)
	}
	long := seen(t, firstUID, "12", "h1", applied)
	long.Name = strings.Repeat("n", 254)
	_ = c.Add(long)
	if c.len() != 1 {
		t.Error("want what no API server can have not taken for a copy")
	}
}

// TestHugeOwnership: a record of fields that is too long to be read is known by its digest.
func TestHugeOwnership(t *testing.T) {
	fields := func(last string) Ownership {
		var raw strings.Builder
		raw.WriteString("{")
		for i := 0; raw.Len() <= mostSet; i++ {
			fmt.Fprintf(&raw, `"f:%06d":{},`, 999_999-i) // Not sorted, which takes long to read.
		}
		raw.WriteString(`"f:` + last + `":{}}`)
		return Ownership{fields: ownerships.of([]byte(raw.String()), roomy)}
	}
	a, b := fields("a"), fields("b")
	if a == b || a != fields("a") || a.Replicas() || !slices.Equal(a.Lost(b), []string{unnamed}) || a.named() {
		t.Error("want them told apart, and little kept of each")
	}
}

// serve answers every request in one way.
func serve(t *testing.T, answer http.HandlerFunc) *Member {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	m, err := newMember("eu-1", &rest.Config{Host: server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		hooks{changed: func(Key) {}, readied: func(Key) {}, awaited: func() {}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	return m
}

// endless writes the text again and again, until nobody wants more.
func endless(w io.Writer, begin, text string) {
	many := []byte(strings.Repeat(text, 1+(64<<10)/len(text)))
	_, err := io.WriteString(w, begin)
	for err == nil {
		_, err = w.Write(many)
	}
}

func asObject(w http.ResponseWriter) { w.Header().Set("Content-Type", "application/json") }

// TestAnswersAreBounded: what has no end is not read to the end, and the error names the
// limit and the member.
func TestAnswersAreBounded(t *testing.T) {
	const list = `{"apiVersion":"v1","kind":"ConfigMapList","metadata":{"resourceVersion":"1"},"items":[`
	cases := map[string]struct {
		reason string
		answer http.HandlerFunc
		want   string
	}{
		"Text": {"A body without an end.", func(w http.ResponseWriter, _ *http.Request) {
			asObject(w)
			endless(w, `{"kind":"`, "x")
		}, "more than 16777216 bytes of an answer"},
		"Gzip": {"Little that is much: what comes out counts.", func(w http.ResponseWriter, r *http.Request) {
			asObject(w)
			if r.Header.Get("Accept-Encoding") != "gzip" {
				w.WriteHeader(http.StatusNotAcceptable)
				return
			}
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			endless(z, `{"kind":"`, "x")
		}, "more than 16777216 bytes of an answer"},
		"Values": {"Objects of two bytes, each of which takes a hundred times that.", func(w http.ResponseWriter, _ *http.Request) {
			asObject(w)
			endless(w, `{"kind":"ConfigMap","status":{"list":[`, "{},")
		}, "more than 250000 values of an answer"},
		"Objects": {"More objects than are asked for at a time.", func(w http.ResponseWriter, _ *http.Request) {
			asObject(w)
			endless(w, list, `{"kind":"ConfigMap"},`)
		}, "more than 10000 objects of an answer"},
		"Levels": {"What is nested without an end.", func(w http.ResponseWriter, _ *http.Request) {
			asObject(w)
			endless(w, "", `{"a":[`)
		}, "more than 1000 levels of an answer"},
		"Error": {"An error is an answer, too.", func(w http.ResponseWriter, _ *http.Request) {
			asObject(w)
			w.WriteHeader(http.StatusInternalServerError)
			endless(w, `{"kind":"Status","message":"`, "x")
		}, "more than 16777216 bytes of an answer"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := serve(t, tc.answer)
			_, err := m.ReadObject(t.Context(), configMaps, webName)
			var limit *LimitError
			if !errors.As(err, &limit) || limit.Member != "eu-1" || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nwant an error that names the member and %q, got %v", tc.reason, tc.want, err)
			}
			if said := m.excess.describe(); !strings.Contains(said, "cluster eu-1 answers with "+tc.want) {
				t.Errorf("want the member to say so, got %q", said)
			}
		})
	}
}

// TestWatchesAreBounded: an event has bounds, a watch has none.
func TestWatchesAreBounded(t *testing.T) {
	event := `{"type":"MODIFIED","object":{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","annotations":{"x":"` + strings.Repeat("y", 1<<20) + `\""}}}}` + "\n"
	const events = 2 * mostEvent / (1 << 20)
	m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asObject(w)
		for range events {
			_, _ = io.WriteString(w, event)
		}
		endless(w, `{"type":"ADDED","object":{"kind":"`, "x")
	})
	w, err := m.objects.Resource(configMaps).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	got := 0
	for e := range w.ResultChan() {
		if e.Type == "MODIFIED" {
			got++
		}
	}
	if got != events {
		t.Errorf("want %d events of 1 MiB, got %d", events, got)
	}
	if said, want := m.excess.describe(), "more than 8388608 bytes of an event"; !strings.Contains(said, want) {
		t.Errorf("want the member to say %q, got %q", want, said)
	}
}

// listing is a page of a list with copies of these names.
func listing(next string, names ...string) *metav1.PartialObjectMetadataList {
	l := &metav1.PartialObjectMetadataList{ListMeta: metav1.ListMeta{ResourceVersion: "7", Continue: next}}
	for _, name := range names {
		l.Items = append(l.Items, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "d", Name: name, UID: firstUID, ResourceVersion: "5"}})
	}
	return l
}

// TestList is about pages, of whatever list of a member.
func TestList(t *testing.T) {
	limit := func(what string, most int) error { return &LimitError{Member: "eu-1", What: what, Limit: most} }
	asked := 0
	cases := map[string]struct {
		reason string
		page   page
		copies int
		want   string
		asked  int
	}{
		"Pages": {"What comes in pages is one list.", func(_ context.Context, o metav1.ListOptions) (apiruntime.Object, error) {
			switch {
			case o.Limit != pageSize || o.LabelSelector != managed || o.ResourceVersion != "":
				return nil, fmt.Errorf("asked for %+v", o)
			case o.Continue == "":
				return listing("more", "a", "b"), nil
			default:
				return listing("", "c"), nil
			}
		}, 3, "", 2},
		"LargeObjects": {"Objects that are too large together come one by one.", func(_ context.Context, o metav1.ListOptions) (apiruntime.Object, error) {
			if o.Limit > 1 {
				return nil, fmt.Errorf("reading: %w", limit("bytes of an answer", mostAnswer))
			}
			return listing("", "a"), nil
		}, 1, "", 3},
		"LargeObject": {"One that is too large by itself is an error.", func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
			return nil, limit("bytes of an answer", mostAnswer)
		}, 0, "more than 16777216 bytes of an answer", 3},
		"SameToken": {"A list that goes in a circle has no end.", func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
			return listing("more", "a"), nil
		}, 0, "to continue where a page before began", 2},
		"Circle": {"Nor has one that goes in a larger circle.", func(_ context.Context, o metav1.ListOptions) (apiruntime.Object, error) {
			return listing(map[string]string{"": "one", "one": "two", "two": "three", "three": "one"}[o.Continue], "a"), nil
		}, 0, "to continue where a page before began", 4},
		"MostPages": {"A list of as many pages as there may be.", func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
			if asked == mostPages {
				return listing("", "a"), nil
			}
			return listing(fmt.Sprint(asked), "a"), nil
		}, 1, "", mostPages},
		"Endless": {"Nor has one with another token each time.", func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
			return listing(fmt.Sprint(asked), "a"), nil
		}, 0, "more than 5000 pages of a list", mostPages},
		"LongToken": {"A token goes into the next request.", func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
			return listing(strings.Repeat("x", mostToken+1), "a"), nil
		}, 0, "more than 16384 bytes of a token", 1},
		"Rubbish": {"What is no list is an error.", func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
			return &unstructured.Unstructured{Object: map[string]any{}}, nil
		}, 0, "listing configmaps", 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			asked = 0
			c := newCopies(configMaps, (&told{}).hooks())
			got, err := c.list(t.Context(), func(ctx context.Context, o metav1.ListOptions) (apiruntime.Object, error) {
				asked++
				return tc.page(ctx, o)
			})
			switch {
			case tc.want == "" && (err != nil || c.len() != tc.copies || got.ResourceVersion != "7"):
				t.Errorf("%s\nwant %d copies, got %v and %v", tc.reason, tc.copies, got, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s\nwant %q, got %v", tc.reason, tc.want, err)
			}
			if asked != tc.asked {
				t.Errorf("%s\nwant %d requests, got %d", tc.reason, tc.asked, asked)
			}
		})
	}
}

// TestReadable: a cluster that answers with too much says so, and that it does not any more.
func TestReadable(t *testing.T) {
	s := newStub(t)
	f := newFleet(t, s.URL)
	f.look()
	if got := messageOf(f.look(), corev1alpha1.ClusterReadable); got != "" {
		t.Errorf("a cluster that never answered with too much: want no condition, got %q", got)
	}
	m := f.Set.Get("m")
	m.excess.note(&LimitError{Member: "m", What: "bytes of an answer", Limit: mostAnswer})
	want := "False AnswerTooLarge: cluster m answers with more than 16777216 bytes of an answer, which is more than Refract takes from a member"
	if got := messageOf(f.look(), corev1alpha1.ClusterReadable); got != want {
		t.Errorf("want %q, got %q", want, got)
	}
	before := m.excess.now
	m.excess.now = func() time.Time { return before().Add(2 * excessKept) }
	if got := messageOf(f.look(), corev1alpha1.ClusterReadable); !strings.HasPrefix(got, "True Readable") {
		t.Errorf("after a while: want it readable, got %q", got)
	}
}

// canned answers every request with the same.
type canned []byte

// RoundTrip implements [http.RoundTripper].
func (c canned) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: http.StatusOK, ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(c)),
	}, nil
}

// answered has a member give an answer to all that is asked of copies, and returns the most
// that one of the questions allocated, in bytes.
func answered(tb testing.TB, body []byte) (most uint64) {
	tb.Helper()
	web := &http.Client{Transport: bounded{canned(body), "eu-1", newAccount(), func(*LimitError) {}}}
	cfg := &rest.Config{Host: "https://eu-1", QPS: -1}
	objects, err := dynamic.NewForConfigAndClient(cfg, web)
	if err != nil {
		tb.Fatal(err)
	}
	partial, err := metadata.NewForConfigAndClient(cfg, web)
	if err != nil {
		tb.Fatal(err)
	}
	h := (&told{}).hooks()
	ctx := tb.Context()
	for _, ask := range []func(){
		func() {
			c := newCopies(pods, h)
			if list, err := c.list(ctx, func(ctx context.Context, o metav1.ListOptions) (apiruntime.Object, error) {
				return objects.Resource(pods).List(ctx, o)
			}); err == nil {
				_ = c.Replace(nil, list.ResourceVersion)
			}
		},
		func() {
			c := newCopies(configMaps, h)
			if list, err := c.list(ctx, func(ctx context.Context, o metav1.ListOptions) (apiruntime.Object, error) {
				return partial.Resource(configMaps).List(ctx, o)
			}); err == nil {
				_ = c.Replace(nil, list.ResourceVersion)
			}
		},
		func() {
			c := newCopies(pods, h)
			if w, err := objects.Resource(pods).Watch(ctx, metav1.ListOptions{}); err == nil {
				for e := range w.ResultChan() {
					_ = c.Add(e.Object)
					_ = c.Delete(e.Object)
				}
			}
		},
		func() {
			if o, err := partial.Resource(configMaps).Namespace("d").Get(ctx, "web", metav1.GetOptions{}); err == nil {
				_ = h.copyOf(o, configMaps.GroupResource())
			}
		},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		ask()
		runtime.ReadMemStats(&after)
		most = max(most, after.TotalAlloc-before.TotalAlloc)
	}
	return most
}

// repeated returns about a MiB of something between two texts.
func repeated(begin, text, end string) []byte {
	return []byte(begin + strings.Repeat(text, (1<<20-len(begin)-len(end))/len(text)) + end)
}

// hostile are answers that cost most.
func hostile() map[string][]byte {
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"namespace":"d","name":"web","resourceVersion":"5"`
	return map[string][]byte{
		"Strings":    []byte(pod + `},"status":{"phase":"Running","containerStatuses":["a"]}}`),
		"Event":      []byte(`{"type":"ADDED","object":` + pod + `},"status":{"phase":"Running","containerStatuses":[[]]}}}`),
		"Objects":    repeated(pod+`},"status":{"containerStatuses":[`, `{"":0},`, "{}]}}"),
		"Empty":      repeated(pod+`},"status":{"conditions":[`, `{},`, "{}]}}"),
		"Conditions": repeated(pod+`},"status":{"conditions":[`, `{"type":"a"},`, "{}]}}"),
		"Items":      repeated(`{"apiVersion":"v1","kind":"PodList","metadata":{},"items":[`, `{},`, "{}]}"),
		"Kinds":      repeated(`{"apiVersion":"v1","kind":"PodList","metadata":{},"items":[`, `{"kind":"Pod"},`, `{"kind":"Pod"}]}`),
		"Managers":   repeated(pod+`,"managedFields":[`, `{},`, "{}]}}"),
		"Fields":     repeated(pod+`,"managedFields":[{"manager":"refract","operation":"Apply","fieldsV1":{"f:a":[`, `{"":0},`, "{}]}}]}}"),
		"Owners":     repeated(pod+`,"ownerReferences":[`, `{},`, "{}]}}"),
		"Nested":     repeated(pod+`},"status":`, `{"a":`, ""),
	}
}

// mostMemory is what 1 MiB of an answer may take.
const mostMemory = 64 << 20

func TestHostileAnswers(t *testing.T) {
	for name, body := range hostile() {
		t.Run(name, func(t *testing.T) {
			most := answered(t, body)
			t.Logf("%d KiB of an answer take %d KiB", len(body)>>10, most>>10)
			if most > mostMemory {
				t.Errorf("want at most %d MiB for %d KiB of an answer, got %d KiB", mostMemory>>20, len(body)>>10, most>>10)
			}
		})
	}
}

// FuzzAnswer: no answer makes us panic, or takes more memory than is said. Of what goroutines
// do not all lines are run each time: give -fuzzminimizetime 10x, or it minimizes for ever.
func FuzzAnswer(f *testing.F) {
	for _, body := range hostile() {
		f.Add(body[:min(len(body), 4<<10)])
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > 1<<20 {
			t.Skip("more than a MiB")
		}
		if most := answered(t, body); most > mostMemory {
			t.Errorf("want at most %d MiB for %d KiB of an answer, got %d KiB", mostMemory>>20, len(body)>>10, most>>10)
		}
	})
}
