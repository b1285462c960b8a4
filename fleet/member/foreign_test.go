package member

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/fuzzed"
	"refract.dev/internal/rescue"
)

var pods = schema.GroupVersionResource{Version: "v1", Resource: "pods"}

// object decodes a whole object from JSON.
func object(tb testing.TB, text string) *received {
	tb.Helper()
	o, err := decodeWhole([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	r, ok := o.(*received)
	if !ok {
		tb.Fatalf("want an object, got %T", o)
	}
	return r
}

// objectOf is [object] for a map of fields.
func objectOf(tb testing.TB, fields map[string]any) *received {
	tb.Helper()
	text, err := json.Marshal(fields)
	if err != nil {
		tb.Fatal(err)
	}
	return object(tb, string(text))
}

// TestRubbishStatus: an invalid status makes only its own copy fail, with a message about the problem.
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
		"Strings":       {"The library expects objects, and panics.", pod, `["a","b"]`, refractv1alpha1.ReadinessFailed, "status.containerStatuses[0]: want an object, got a string"},
		"NoList":        {"The value may not be a list.", pod, `{"a":1}`, refractv1alpha1.ReadinessFailed, "status.containerStatuses: want a list, got an object"},
		"Name":          {"A name is text.", pod, `[{"name":7}]`, refractv1alpha1.ReadinessFailed, "status.containerStatuses[0].name: want a string, got a number"},
		"NullName":      {"Null is no text.", pod, `[{"name":null,"state":{}}]`, refractv1alpha1.ReadinessFailed, "status.containerStatuses[0].name: want a string, got null"},
		"State":         {"A state is an object.", pod, `[{"name":"a"},{"name":"b","state":[]}]`, refractv1alpha1.ReadinessFailed, "status.containerStatuses[1].state: want an object, got a list"},
		"Waiting":       {"A part of a state is an object.", pod, `[{"name":"a","state":{"waiting":true}}]`, refractv1alpha1.ReadinessFailed, "status.containerStatuses[0].state.waiting: want an object, got a boolean"},
		"Reason":        {"A reason is text.", pod, `[{"name":"a","state":{"waiting":{"reason":{}}}}]`, refractv1alpha1.ReadinessFailed, "status.containerStatuses[0].state.waiting.reason: want a string, got an object"},
		"Many":          {"The number of containers is bounded.", pod, "[" + strings.Repeat("{},", mostContainers) + "{}]", refractv1alpha1.ReadinessFailed, "status.containerStatuses: want at most 1000, got 1001"},
		"Crashing":      {"A valid status is read.", pod, `[{"name":"a","state":{"waiting":{"reason":"CrashLoopBackOff"}}}]`, refractv1alpha1.ReadinessFailed, "Containers in CrashLoop state: a"},
		"Starting":      {"Optional fields may be missing.", pod, `[{},{"name":"a","state":{"running":{}}}]`, refractv1alpha1.ReadinessInProgress, "not Ready"},
		"Text":          {"A status is an object.", deployment, `"well"`, refractv1alpha1.ReadinessFailed, "its status on the cluster cannot be read"},
		"ListOfStrings": {"Conditions are objects.", deployment, `{"observedGeneration":1,"conditions":["a"]}`, refractv1alpha1.ReadinessFailed, "its status on the cluster cannot be read"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got told
			c := got.copies(pods)
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

// TestUnreadableCopy: marks that Refract never writes are not trusted.
func TestUnreadableCopy(t *testing.T) {
	var got told
	c := got.copies(configMaps)
	m := seen(t, firstUID, "10", "h1", applied)
	m.Annotations[refractv1alpha1.SourceAnnotation] = strings.Repeat("x", mostMark+1)
	_ = c.Add(m)
	item, ok := c.get(webName)
	if !ok || !strings.Contains(item.Fault, "want at most 2048 bytes, got 2049") || item.Source != "" || item.UID != firstUID {
		t.Errorf("want only the UID of the copy and the fault known, got %+v", item)
	}
	got = told{}
	_ = c.Update(seen(t, firstUID, "11", "h1", applied))
	if item, _ := c.get(webName); item.Fault != "" || item.Source == "" || got.changed != 1 {
		t.Errorf("want the copy known again, and a report, got %+v", item)
	}
	long := seen(t, firstUID, "12", "h1", applied)
	long.Name = strings.Repeat("n", 254)
	_ = c.Add(long)
	if c.len() != 1 {
		t.Error("want no copy for a name that no API server accepts")
	}
}

// TestHugeOwnership: a set of owned fields that is too long to be parsed is known by its digest.
func TestHugeOwnership(t *testing.T) {
	fields := func(last string) Ownership {
		var raw strings.Builder
		raw.WriteString("{")
		for i := 0; raw.Len() <= mostSet; i++ {
			fmt.Fprintf(&raw, `"f:%06d":{},`, 999_999-i) // Not sorted, so that it is slow to parse.
		}
		raw.WriteString(`"f:` + last + `":{}}`)
		return Ownership{fields: ownerships.of([]byte(raw.String()), roomy)}
	}
	a, b := fields("a"), fields("b")
	if a == b || a != fields("a") || !slices.Equal(a.Lost(b), []string{unnamed}) || a.named() {
		t.Error("want the sets distinguished, and only a digest of each kept")
	}
}

// serve returns a member that answers every request with the same handler.
func serve(t *testing.T, answer http.HandlerFunc) *Member {
	t.Helper()
	server := httptest.NewTLSServer(answer)
	t.Cleanup(server.Close)
	m, err := newMember("eu-1", &rest.Config{Host: server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{Insecure: true}},
		unobserved, nil, logr.Logger{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.close)
	return m
}

// endless writes the text repeatedly, until the reader stops.
func endless(w io.Writer, begin, text string) {
	many := []byte(strings.Repeat(text, 1+(64<<10)/len(text)))
	_, err := io.WriteString(w, begin)
	for err == nil {
		_, err = w.Write(many)
	}
}

func asObject(w http.ResponseWriter) { w.Header().Set("Content-Type", "application/json") }

// TestAnswersAreBounded: endless answers are not read to their end, and the error names the bound and the member.
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
		"Gzip": {"Decompressed bytes count.", func(w http.ResponseWriter, r *http.Request) {
			asObject(w)
			if r.Header.Get("Accept-Encoding") != "gzip" {
				w.WriteHeader(http.StatusNotAcceptable)
				return
			}
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			endless(z, `{"kind":"`, "x")
		}, "more than 16777216 bytes of an answer"},
		"Values": {"An object of two bytes takes a hundred times that in memory.", func(w http.ResponseWriter, _ *http.Request) {
			asObject(w)
			endless(w, `{"kind":"ConfigMap","status":{"list":[`, "{},")
		}, "more than 250000 values of an answer"},
		"Objects": {"The answer has more objects than the page size.", func(w http.ResponseWriter, _ *http.Request) {
			asObject(w)
			endless(w, list, `{"kind":"ConfigMap"},`)
		}, "more than 10000 objects of an answer"},
		"Levels": {"The answer has endless nesting.", func(w http.ResponseWriter, _ *http.Request) {
			asObject(w)
			endless(w, "", `{"a":[`)
		}, "more than 1000 levels of an answer"},
		"Error": {"The answers with errors are bounded, too.", func(w http.ResponseWriter, _ *http.Request) {
			asObject(w)
			w.WriteHeader(http.StatusInternalServerError)
			endless(w, `{"kind":"Status","message":"`, "x")
		}, "more than 16777216 bytes of an answer"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := serve(t, tc.answer)
			_, err := m.Objects.ReadWhole(t.Context(), configMaps, webName)
			var limit *LimitError
			if !errors.As(err, &limit) || limit.Member != "eu-1" || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nwant an error that names the member and %q, got %v", tc.reason, tc.want, err)
			}
			if said := m.api.limits.excess.describe(); !strings.Contains(said, "cluster eu-1 answers with "+tc.want) {
				t.Errorf("want the member to report the bound, got %q", said)
			}
		})
	}
}

// TestWatchesAreBounded: the size of an event is bounded, and the size of a watch is not.
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
	w, err := m.api.whole.watch(t.Context(), configMaps, metav1.ListOptions{})
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
	if said, want := m.api.limits.excess.describe(), "more than 8388608 bytes of an event"; !strings.Contains(said, want) {
		t.Errorf("want the member to report %q, got %q", want, said)
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

// TestList tests the pages of all lists of a member.
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
		"Pages": {"Pages form one list.", func(_ context.Context, o metav1.ListOptions) (apiruntime.Object, error) {
			switch {
			case o.Limit != pageSize || o.LabelSelector != managed || o.ResourceVersion != "":
				return nil, fmt.Errorf("asked for %+v", o)
			case o.Continue == "":
				return listing("more", "a", "b"), nil
			default:
				return listing("", "c"), nil
			}
		}, 3, "", 2},
		"LargeObjects": {"If a page is too large, its objects are requested one by one.", func(_ context.Context, o metav1.ListOptions) (apiruntime.Object, error) {
			if o.Limit > 1 {
				return nil, fmt.Errorf("reading: %w", limit("bytes of an answer", mostAnswer))
			}
			return listing("", "a"), nil
		}, 1, "", 3},
		"LargeObject": {"A single object that is too large is an error.", func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
			return nil, limit("bytes of an answer", mostAnswer)
		}, 0, "more than 16777216 bytes of an answer", 3},
		"SameToken": {"A list that repeats a page is endless.", func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
			return listing("more", "a"), nil
		}, 0, "repeats a continue token", 2},
		"Circle": {"A list that repeats several pages is endless.", func(_ context.Context, o metav1.ListOptions) (apiruntime.Object, error) {
			return listing(map[string]string{"": "one", "one": "two", "two": "three", "three": "one"}[o.Continue], "a"), nil
		}, 0, "repeats a continue token", 4},
		"MostPages": {"The maximum number of pages is allowed.", func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
			if asked == mostPages {
				return listing("", "a"), nil
			}
			return listing(fmt.Sprint(asked), "a"), nil
		}, 1, "", mostPages},
		"Endless": {"A list with a new token for each page may be endless.", func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
			return listing(fmt.Sprint(asked), "a"), nil
		}, 0, "more than 5000 pages of a list", mostPages},
		"LongToken": {"A token is bounded: it is part of the next request.", func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
			return listing(strings.Repeat("x", mostToken+1), "a"), nil
		}, 0, "more than 16384 bytes of a continue token", 1},
		"Rubbish": {"An answer that is no list is an error.", func(context.Context, metav1.ListOptions) (apiruntime.Object, error) {
			return &unstructured.Unstructured{Object: map[string]any{}}, nil
		}, 0, "listing configmaps", 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			asked = 0
			c := (&told{}).copies(configMaps)
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

// TestReadable: a condition reports that a cluster's answers are too large, and later that they are not any more.
func TestReadable(t *testing.T) {
	s := newStub(t)
	f := newFleet(t, s.URL)
	f.look()
	if got := messageOf(f.look(), corev1alpha1.ClusterReadable); got != "" {
		t.Errorf("a cluster whose answers were never too large: want no condition, got %q", got)
	}
	m := f.Set.Get("m")
	_ = m.api.limits.excess.over("bytes of an answer", mostAnswer)
	want := "False AnswerTooLarge: cluster m answers with more than 16777216 bytes of an answer, the limit for a member"
	if got := messageOf(f.look(), corev1alpha1.ClusterReadable); got != want {
		t.Errorf("want %q, got %q", want, got)
	}
	before := m.api.limits.excess.now
	m.api.limits.excess.now = func() time.Time { return before().Add(2 * excessKept) }
	if got := messageOf(f.look(), corev1alpha1.ClusterReadable); !strings.HasPrefix(got, "True Readable") {
		t.Errorf("after a while: want the condition Readable true, got %q", got)
	}
}

// canned answers all requests with the same body.
type canned struct {
	body []byte

	mu     sync.Mutex
	asked  int
	served int // Bytes.
}

// RoundTrip implements [http.RoundTripper].
func (c *canned) RoundTrip(r *http.Request) (*http.Response, error) {
	const most = 50
	c.mu.Lock()
	c.asked++
	body, code, kind := c.body, http.StatusOK, "application/json"
	if c.asked > most { // The types of each API group are requested.
		body, code = nil, http.StatusNotFound
	}
	if strings.HasPrefix(r.URL.Path, "/api") && bytes.Contains(body, []byte("APIGroupDiscoveryList")) {
		kind += ";g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	}
	c.served += len(body)
	c.mu.Unlock()
	return &http.Response{
		StatusCode: code, ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {kind}}, Body: io.NopCloser(bytes.NewReader(body)),
	}, nil
}

// answered makes a member answer all requests with this body, and fails if a request takes more memory than the bounds
// permit.
func answered(t *testing.T, body []byte) {
	t.Helper()
	for _, q := range questions {
		api := &canned{body: body}
		bounds := newLimits("eu-1")
		web := &http.Client{Transport: bounded{api, bounds}, CheckRedirect: stay}
		cfg := &rest.Config{Host: "https://eu-1", QPS: -1}
		conn, err := connectionBy(web, "eu-1", cfg, bounds, func() {})
		if err != nil {
			t.Fatal(err)
		}
		m := memberBy(conn, "eu-1", unobserved, nil, logr.Logger{})
		before := t.Failed()
		fuzzed.Run(t, func() int {
			q.ask(t.Context(), m)
			return api.served
		}, rescue.Count)
		m.close()
		if t.Failed() && !before {
			t.Errorf("request for %s", q.what)
		}
	}
}

// questions are the requests to a member. The texts name them in failures.
var questions = []struct {
	what string
	ask  func(ctx context.Context, m *Member)
}{
	{"copies with a status", func(ctx context.Context, m *Member) {
		c := copiesOf(pods, m.api.limits, m.Objects.decode, m.Copies.watches.observer)
		if list, err := c.list(ctx, func(ctx context.Context, o metav1.ListOptions) (apiruntime.Object, error) {
			return m.api.whole.list(ctx, pods, "", o)
		}); err == nil {
			for _, item := range list.Items {
				_ = c.Add(item)
			}
		}
	}},
	{"copies", func(ctx context.Context, m *Member) {
		c := copiesOf(configMaps, m.api.limits, m.Objects.decode, m.Copies.watches.observer)
		if list, err := c.list(ctx, func(ctx context.Context, o metav1.ListOptions) (apiruntime.Object, error) {
			return m.api.metadata.list(ctx, configMaps, "", o)
		}); err == nil {
			for _, item := range list.Items {
				_ = c.Add(item)
			}
			_ = c.Replace(nil, list.ResourceVersion)
		}
	}},
	{"what happens", func(ctx context.Context, m *Member) {
		c := copiesOf(pods, m.api.limits, m.Objects.decode, m.Copies.watches.observer)
		if w, err := m.api.whole.watch(ctx, pods, metav1.ListOptions{}); err == nil {
			for e := range w.ResultChan() {
				_ = c.Add(e.Object)
				_ = c.Delete(e.Object)
			}
		}
	}},
	{"types", func(ctx context.Context, m *Member) { _, _, _ = m.api.discover(ctx) }},
	{"a type", func(ctx context.Context, m *Member) { m.api.serves(ctx, crontabs) }},
	{"any object", func(ctx context.Context, m *Member) { _, _ = m.Objects.Any(ctx, crontabs.GroupResource()) }},
	{"an object", func(ctx context.Context, m *Member) { _, _ = m.Objects.Read(ctx, configMaps, webName) }},
	{"a whole object", func(ctx context.Context, m *Member) { _, _ = m.Objects.ReadWhole(ctx, pods, webName) }},
	{"a write", func(ctx context.Context, m *Member) { _ = m.Copies.Apply(ctx, configMaps, webName, []byte("{}")) }},
	{"a namespace", func(ctx context.Context, m *Member) { _, _ = m.Namespaces.Get(ctx, "d") }},
	{"namespaces", func(ctx context.Context, m *Member) { _ = m.Namespaces.Each(ctx, func(Namespace) {}) }},
	{"a new one", func(ctx context.Context, m *Member) { _ = m.Namespaces.Create(ctx, "d", "hub", nil) }},
	{"who it is", func(ctx context.Context, m *Member) { _ = m.identity.identify(ctx) }},
	{"its health", func(ctx context.Context, m *Member) { _ = judge(m.api.probe(ctx), "https://eu-1") }},
	{"rights", func(ctx context.Context, m *Member) { m.api.may(ctx, action{"list", pods.GroupResource(), "d"}) }},
}

var crontabs = schema.GroupVersionResource{Group: "stable.example.com", Version: "v1", Resource: "crontabs"}

// repeated returns about one MiB of a text between two others.
func repeated(begin, text, end string) []byte {
	return []byte(begin + strings.Repeat(text, (1<<20-len(begin)-len(end))/len(text)) + end)
}

// hostile returns the most expensive answers.
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
		"Others":     repeated(pod+`,"labels":{"a":"b"},"managedFields":[`, `{"manager":"b","fieldsV1":{"f:metadata":{"f:labels":{"f:a":{}}}}},`, "{}]}}"),
		"Labels":     labelled(pod),
		"Groups":     repeated(`{"kind":"APIGroupList","groups":[`, `{"name":"a","versions":[{"groupVersion":"a/v1","version":"v1"}]},`, "{}]}"),
		"Versions":   repeated(`{"kind":"APIVersions","versions":[`, `"v1",`, `"v2"]}`),
		"OfAGroup":   repeated(`{"kind":"APIGroup","name":"a","versions":[`, `{},`, `{}]}`),
		"Types":      repeated(`{"kind":"APIResourceList","groupVersion":"v1","resources":[`, `{},`, `{}]}`),
		"Aggregated": repeated(`{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"a"},"versions":[{"version":"v1","resources":[`,
			`{"resource":"a","subresources":[{}]},`, `{}]}]}]}`),
		"Endless": []byte(`{"kind":"NamespaceList","metadata":{"continue":"more"},"items":[{"metadata":{"name":"d"}}]}`),
	}
}

// labelled is an object with many labels, each of another manager.
func labelled(begin string) []byte {
	var labels, managers strings.Builder
	for i := 0; labels.Len()+managers.Len() < 1<<20-200; i++ {
		fmt.Fprintf(&labels, `"l%d":"",`, i)
		fmt.Fprintf(&managers, `{"manager":"m","fieldsV1":{"f:metadata":{"f:labels":{"f:l%d":{}}}}},`, i)
	}
	return []byte(begin + `,"labels":{` + labels.String() + `"l":""},"managedFields":[` + managers.String() + `{}]}}`)
}

// counting serves many API groups, and counts the simultaneous answers.
type counting struct {
	groups, types int

	mu        sync.Mutex
	now, most int
}

func (c *counting) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	asObject(w)
	switch r.URL.Path {
	case "/api":
		fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
		return
	case "/apis":
		fmt.Fprint(w, `{"kind":"APIGroupList","groups":[`)
		for i := range c.groups {
			fmt.Fprintf(w, `{"name":"g%d","versions":[{"groupVersion":"g%[1]d/v1","version":"v1"}]},`, i)
		}
		fmt.Fprint(w, `{"name":"g","versions":[]}]}`)
		return
	}
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now--
	}()
	fmt.Fprint(w, `{"kind":"APIResourceList","resources":[`)
	for i := range c.types {
		fmt.Fprintf(w, `{"name":"t%d","kind":"T"},`, i)
	}
	fmt.Fprint(w, `{"name":"t","kind":"T"}]}`)
}

// TestDiscoveryIsPaced: only some API groups of a member are requested at the same time. After too many types no more
// groups are requested.
func TestDiscoveryIsPaced(t *testing.T) {
	cases := map[string]struct {
		reason        string
		groups, types int
		found         int
		want          string // Part of an error.
	}{
		"Some":         {"A few groups are requested at a time.", 40, 1, 82, ""},
		"ManyVersions": {"No group is requested if there are too many.", mostVersions, 1, 0, "more than 1000 versions of API groups"},
		"ManyTypes":    {"The requests stop after too many types.", 100, 999, 0, "more than 40000 types and subresources"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			api := &counting{groups: tc.groups, types: tc.types}
			types, _, err := serve(t, api.ServeHTTP).api.discover(t.Context())
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) || tc.want == "" && err != nil || len(types) != tc.found {
				t.Errorf("%s\nwant %d types and %q, got %d and %v", tc.reason, tc.found, tc.want, len(types), err)
			}
			if api.most > discoveredAtOnce {
				t.Errorf("%s\nwant at most %d simultaneous answers, got %d", tc.reason, discoveredAtOnce, api.most)
			}
		})
	}
}

// TestNamespacesHaveAnEnd: a list of namespaces is read to its end, and no further.
func TestNamespacesHaveAnEnd(t *testing.T) {
	cases := map[string]struct {
		reason, token string
		want          string
	}{
		"SameToken": {"A list that repeats a page is endless.", "more", "repeats a continue token"},
		"LongToken": {"A token is bounded: it is part of the next request.", strings.Repeat("x", mostToken+1), "more than 16384 bytes of a continue token"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				asObject(w)
				fmt.Fprintf(w, `{"kind":"NamespaceList","apiVersion":"v1","metadata":{"continue":%q},"items":[]}`, tc.token)
			})
			err := m.Namespaces.Each(t.Context(), func(Namespace) {})
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nwant %q, got %v", tc.reason, tc.want, err)
			}
		})
	}
}

func TestHostileAnswers(t *testing.T) {
	for name, body := range hostile() {
		t.Run(name, func(t *testing.T) { answered(t, body) })
	}
}

// FuzzAnswer: no answer causes a panic, or takes more memory than the bounds permit. The covered lines of goroutines
// differ between runs, so the minimization does not end without -fuzzminimizetime 10x.
func FuzzAnswer(f *testing.F) {
	for _, body := range hostile() {
		f.Add(body[:min(len(body), 4<<10)])
	}
	f.Add([]byte(`{"kind":"APIGroupList","groups":[{"name":"apps","versions":[{"groupVersion":"apps/v1","version":"v1"}],"preferredVersion":{"version":"v1"}}],` +
		`"groupVersion":"apps/v1","resources":[{"name":"deployments","kind":"Deployment","namespaced":true,"verbs":["get","list","watch","patch","delete"]}]}`))
	f.Add([]byte(`{"kind":"APIGroupDiscoveryList","items":[{"metadata":{"name":"apps"},"versions":[{"version":"v1","resources":[{"resource":"deployments",` +
		`"responseKind":{"kind":"Deployment"},"scope":"Namespaced","verbs":["list"],"subresources":[{"subresource":"status"}]}]}]}]}`))
	f.Add([]byte(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"details":{"kind":"pods","causes":[{"field":"metadata.uid"}]}}`))
	f.Add([]byte(`{"type":"ERROR","object":{"kind":"Status","code":410}}{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7"}}}`))
	for _, status := range statuses {
		f.Add([]byte(`{` + status + `,"metadata":{"namespace":"d","name":"web","generation":1,"managedFields":[{"manager":"refract","operation":"Apply",` +
			`"time":"2026-01-02T03:04:05Z","fieldsV1":{"f:spec":{"k:{\"name\":\"a\"}":{".":{}}}}}]}}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > fuzzed.MiB {
			t.Skip("more than a MiB")
		}
		answered(t, body)
	})
}
