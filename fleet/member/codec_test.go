package member

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/framer"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

func TestCodec(t *testing.T) {
	const at = `"uid":"u","resourceVersion":"7"`
	cases := map[string]struct {
		reason, answer string
		decode         decodeFunc
		want, fails    string
	}{
		"Object": {
			"Only metadata is decoded.", `{"kind":"Thing","apiVersion":"a/v1","metadata":{"name":"a",` + at + `},"spec":{"x":1}}`, decodeMetadata,
			`*v1.PartialObjectMetadata a/v1, Kind=Thing a 7`, "",
		},
		"Whole": {
			"A whole object is decoded.", `{"kind":"Thing","apiVersion":"a/v1","metadata":{"name":"a",` + at + `},"spec":{"x":1}}`, decodeWhole,
			`*member.received a/v1, Kind=Thing a 7`, "",
		},
		"List": {
			"In lists of Kubernetes' own types, each item has the type of the list.", `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"9"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`,
			decodeWhole, `*member.receivedList /v1, Kind=PodList 9: /v1, Kind=Pod a, /v1, Kind=Pod b`, "",
		},
		"Items": {
			"A custom resource may have a field items.", `{"kind":"Order","apiVersion":"a/v1","metadata":{"name":"a"},"items":[7]}`, decodeWhole,
			`*member.received a/v1, Kind=Order a `, "",
		},
		"Empty": {
			"A list may have no items.", `{"kind":"PodList","apiVersion":"v1","items":null}`, decodeMetadata,
			`*v1.PartialObjectMetadataList /v1, Kind=PodList : `, "",
		},
		"Named": {
			"A custom resource may have a kind that ends with List.", `{"kind":"PriceList","apiVersion":"a/v1","metadata":{"name":"a"},"items":[7]}`, decodeWhole,
			`*member.received a/v1, Kind=PriceList a `, "",
		},
		"OldStatus": {
			"Old API servers omit the version of a Status.", `{"kind":"Status","code":403}`, decodeMetadata,
			`*v1.Status /, Kind=Status 403`, "",
		},
		"Unreadable": {
			"An object with invalid metadata is still identified.", `{"kind":"Thing","apiVersion":"a/v1","metadata":{"name":"a","labels":{"x":7},` + at + `}}`, decodeWhole,
			`*member.received a/v1, Kind=Thing a 7`, "",
		},
		"Status": {
			"A Status is recognized in any answer.", `{"kind":"Status","apiVersion":"v1","status":"Failure","code":410}`, decodeWhole,
			`*v1.Status /v1, Kind=Status 410`, "",
		},
		"Nothing":  {"An answer without a kind is an error.", `{}`, decodeMetadata, "", "want an object with a kind"},
		"Kind":     {"A kind is text.", `{"kind":7}`, decodeMetadata, "", "kind: invalid JSON at byte 0: want a string, got a number"},
		"Name":     {"A name is text.", `{"kind":"Pod","metadata":{"name":7}}`, decodeMetadata, "", "metadata: invalid JSON at byte 8: want a string, got a number"},
		"InList":   {"The error names the item of a list.", `{"kind":"PodList","items":[{},{"metadata":[]}]}`, decodeMetadata, "", "items[1]: metadata: invalid JSON at byte 0: want an object, got an array"},
		"Number":   {"A generation has no fraction.", `{"kind":"Pod","metadata":{"generation":1.5}}`, decodeMetadata, "", "metadata: want an integer, got 1.5"},
		"Time":     {"An invalid time is an error.", `{"kind":"Pod","metadata":{"deletionTimestamp":"now"}}`, decodeMetadata, "", `metadata: parsing time "now"`},
		"NoObject": {"An API server never answers with a JSON array.", `[]`, decodeMetadata, "", "want an object, got an array"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, _, err := tc.decode.Decode([]byte(tc.answer), nil, nil)
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Fatalf("%s\nwant %q, got %v", tc.reason, tc.fails, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if said := describe(got); said != tc.want {
				t.Errorf("%s\nwant %s\n got %s", tc.reason, tc.want, said)
			}
		})
	}
}

// TestDecodedIsKept: decoded objects do not refer to their data, because the buffer is reused.
func TestDecodedIsKept(t *testing.T) {
	for _, decode := range []decodeFunc{decodeMetadata, decodeWhole} {
		data := []byte(`{` + statuses[0] + `,"metadata":` + manyFields + `}`)
		got, err := decode(data)
		if err != nil {
			t.Fatal(err)
		}
		want := got.DeepCopyObject()
		for i := range data {
			data[i] = 'x'
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(received{}), cmpopts.EquateErrors()); diff != "" {
			t.Errorf("-before, +after the data was overwritten:\n%s", diff)
		}
		if o, ok := got.(*received); ok {
			if _, err := o.whole(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestUnreadableMetadata: unreadable metadata is a fault of one object, and not of its whole type.
func TestUnreadableMetadata(t *testing.T) {
	var got told
	c := got.copies(pods)
	if err := c.Add(object(t, `{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"d","name":"web","uid":"u","resourceVersion":"7","generation":"1"}}`)); err != nil {
		t.Fatal(err)
	}
	if item, ok := c.get(webName); !ok || item.UID != "u" || !strings.Contains(item.Fault, "metadata: want an integer") {
		t.Errorf("want a fault with the reason, got %+v", item)
	}
}

// TestNewPod: a Pod has some seconds to be scheduled before it counts as failed.
func TestNewPod(t *testing.T) {
	const pod = `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","creationTimestamp":%q},` +
		`"status":{"phase":"Pending","conditions":[{"type":"PodScheduled","status":"False","reason":"Unschedulable"}]}}`
	for made, want := range map[time.Time]refractv1alpha1.Readiness{
		time.Now(): refractv1alpha1.ReadinessInProgress, time.Now().Add(-time.Hour): refractv1alpha1.ReadinessFailed,
	} {
		if got, message := (decoder{}).readinessOf(object(t, fmt.Sprintf(pod, made.UTC().Format(time.RFC3339)))); got != want {
			t.Errorf("made %s ago: want %s, got %s %q", time.Since(made), want, got, message)
		}
	}
}

// TestPaths: names that a member chooses do not change the path of a request.
func TestPaths(t *testing.T) {
	asked := 0
	m := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		asked++
		answer(w, http.StatusOK, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: "a"}})
	})
	for _, name := range []types.NamespacedName{{Namespace: "d"}, {Namespace: "d", Name: ".."}, {Namespace: "..", Name: "a"}, {Namespace: "d", Name: "a/b"}, {Name: "%2e"}} {
		if _, err := m.Objects.Read(t.Context(), configMaps, name); err == nil {
			t.Errorf("%q: want an error for a read", name)
		}
		if found, err := m.api.delete(t.Context(), configMaps, name, metav1.Preconditions{}); err == nil {
			t.Errorf("%q: want an error for a deletion, got found %t", name, found)
		}
	}
	for _, gvr := range []schema.GroupVersionResource{{Group: "..", Version: "v1", Resource: "x"}, {Group: "g", Version: "../v1", Resource: "x"}, {Version: "v1", Resource: ".."}} {
		if _, err := m.api.list(t.Context(), gvr, metav1.ListOptions{}); err == nil {
			t.Errorf("%v: want an error for a list", gvr)
		}
	}
	if asked > 0 {
		t.Errorf("want no requests, got %d", asked)
	}
	var got told
	c := got.copies(configMaps)
	odd := seen(t, firstUID, "7", "h1", applied)
	odd.Name = ".."
	if _ = c.Add(odd); c.len() > 0 {
		t.Error("want no copy for a name that no API server accepts")
	}
}

// TestLogged: an object in place of an error is logged with its kind and without its content.
func TestLogged(t *testing.T) {
	for _, body := range []string{`{"kind":"PodList","apiVersion":"v1","items":[{"spec":"` + strings.Repeat("x", 10_000) + `"}]}`, `{"kind":"Pod","metadata":{"name":"` + strings.Repeat("x", 100) + `"},"spec":"` + strings.Repeat("x", 10_000) + `"}`} {
		o, err := decodeWhole([]byte(body))
		if err != nil {
			t.Fatal(err)
		}
		if said := apierrors.FromObject(o).Error(); len(said) > 200 {
			t.Errorf("want a short text, got %d bytes", len(said))
		}
	}
}

// describe describes an answer by its types and names.
func describe(o apiruntime.Object) string {
	text := fmt.Sprintf("%T %s", o, o.GetObjectKind().GroupVersionKind())
	var items []string
	switch o := o.(type) {
	case *metav1.Status:
		return fmt.Sprint(text, " ", o.Code)
	case metav1.Object:
		return text + " " + o.GetName() + " " + o.GetResourceVersion()
	case *receivedList:
		for i := range o.Items {
			items = append(items, fmt.Sprint(o.Items[i].GroupVersionKind(), " ", o.Items[i].Name))
		}
		text += " " + o.ResourceVersion
	case *metav1.PartialObjectMetadataList:
		text += " " + o.ResourceVersion
	}
	return text + ": " + strings.Join(items, ", ")
}

// statuses are objects of the types with a status.
var statuses = []string{
	`"kind":"Deployment","apiVersion":"apps/v1","spec":{"replicas":2,"template":{"spec":{"containers":[]}}},` +
		`"status":{"observedGeneration":1,"replicas":2,"conditions":[{"type":"Progressing","status":"True"}]}`,
	`"kind":"StatefulSet","apiVersion":"apps/v1","spec":{"replicas":2,"updateStrategy":{"rollingUpdate":{"partition":1}}},"status":{"currentRevision":"a"}`,
	`"kind":"DaemonSet","apiVersion":"apps/v1","status":{"desiredNumberScheduled":1,"updatedNumberScheduled":"1"}`,
	`"kind":"Job","apiVersion":"batch/v1","spec":{"parallelism":1},"status":{"startTime":"now","conditions":[{"type":"Complete","status":"True"}]}`,
	`"kind":"CustomResourceDefinition","apiVersion":"apiextensions.k8s.io/v1","spec":{"versions":[{}]},"status":{"conditions":[{"type":"NamesAccepted","status":"False"}]}`,
	`"kind":"Service","apiVersion":"v1","spec":{"type":"LoadBalancer"},"status":{"loadBalancer":{"ingress":[]}}`,
	`"kind":"PersistentVolumeClaim","apiVersion":"v1","status":{"phase":"Bound"}`,
	`"kind":"Pod","apiVersion":"v1","spec":{"containers":[{"name":"a"}]},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}`,
	`"kind":"PodDisruptionBudget","apiVersion":"policy/v1","status":{"currentHealthy":1,"desiredHealthy":2}`,
	`"kind":"ReplicaSet","apiVersion":"apps/v1","spec":{"replicas":1,"template":7},"status":{"replicas":1,"readyReplicas":1,"availableReplicas":1}`,
	`"kind":"Widget","apiVersion":"example.com/v1","spec":{"template":{"a":1}},"status":{"conditions":[{"type":"Ready","status":true}]}`,
	`"kind":"Widget","apiVersion":"example.com/v1","spec":[],"status":{"observedGeneration":0,"conditions":[{"type":"Ready","status":"True","message":"\ud800"}]}`,
	`"kind":"Widget","apiVersion":"example.com/v1","status":"well"`,
}

// manyFields is the metadata of an object as an API server writes it.
const manyFields = `{"namespace":"d","name":"web","generation":1,"uid":"u","resourceVersion":"5","creationTimestamp":"2026-01-02T03:04:05Z","labels":{"a":"b\u00e9"},` +
	`"annotations":{"c":"d","e":null},"finalizers":["x",null],"deletionTimestamp":null,"ownerReferences":[{"apiVersion":"v1","kind":"A","name":"a","uid":"u","controller":true}],` +
	`"managedFields":[{"manager":"refract","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","time":"2026-01-02T03:04:05Z","subresource":"status",` +
	`"fieldsV1":{"f:spec":{"k:{\"name\":\"a\"}":{".":{}}}}},null]}`

// FuzzObject: metadata is read as by the decoder of Kubernetes, and the decoded parts are enough to judge a status.
func FuzzObject(f *testing.F) {
	for _, s := range statuses {
		f.Add([]byte(`{` + s + `,"metadata":` + manyFields + `}`))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		want := &metav1.PartialObjectMetadata{}
		if twice(body) || unmarshal(body, want) != nil || want.Kind == "" || want.Kind == "Status" || strings.HasSuffix(want.Kind, "List") {
			t.Skip("no object")
		}
		answer, err := decodeWhole(body)
		if err != nil {
			t.Fatalf("the decoder of Kubernetes can read it: %v", err)
		}
		got, ok := answer.(*received)
		if !ok {
			t.Fatalf("want an object, got %T", answer)
		}
		want.GenerateName, want.SelfLink, want.DeletionGracePeriodSeconds = "", "", nil //nolint:staticcheck // The deprecated field exists.
		if diff := cmp.Diff(want, &got.PartialObjectMetadata); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
		judged := func(u *received, whole bool) string {
			read := u.withStatus
			if whole {
				read = u.whole
			}
			o, err := read()
			if err != nil {
				return "unreadable"
			}
			o.SetDeletionTimestamp(nil)
			result, err := status.Compute(o)
			return fmt.Sprint(result, err)
		}
		if u, err := got.whole(); err != nil || panics(func() { _, _ = status.Compute(u) }) {
			t.Skip("the library cannot judge it")
		}
		if a, b := judged(got, true), judged(got, false); a != b {
			t.Errorf("want the same readiness for the whole object and for the decoded parts: %s and %s", a, b)
		}
	})
}

func panics(f func()) (is bool) {
	defer func() { is = recover() != nil }()
	f()
	return false
}

// twice reports whether JSON has an object with a duplicate key. For such keys, one decoder takes the last value, and
// the other merges the values.
func twice(data []byte) bool {
	d := json.NewDecoder(bytes.NewReader(data))
	var look func() bool
	look = func() bool {
		token, err := d.Token()
		if err != nil {
			return true
		}
		open, _ := token.(json.Delim)
		seen := map[string]bool{}
		for (open == '{' || open == '[') && d.More() {
			if open == '{' {
				key, err := d.Token()
				name, _ := key.(string)
				if err != nil || seen[name] {
					return true
				}
				seen[name] = true
			}
			if look() {
				return true
			}
		}
		if open == '{' || open == '[' {
			_, err = d.Token()
		}
		return err != nil
	}
	return look()
}

// FuzzFrames: eventFramer finds the same events in a watch as the framer of Kubernetes, regardless of the pieces in
// which the bytes arrive.
func FuzzFrames(f *testing.F) {
	f.Add([]byte(`{"type":"ADDED","object":{"a":"}\"{\\"}}`+"\n"+` {"b":[{"c":[]}]}{}`), 3)
	f.Add([]byte(`{"a":1}7`), 1)
	f.Add([]byte(`{"a":"`), 9000)
	f.Add([]byte(`{"a":"`+strings.Repeat("\\\\", 5000)+`"}{}`), 2000)
	f.Fuzz(func(t *testing.T, body []byte, room int) {
		if room < 1 || room > 10_000 {
			t.Skip("no buffer of this size")
		}
		want, _ := cut(framer.NewJSONFramedReader(io.NopCloser(bytes.NewReader(body))), 1<<20)
		for i, w := range want { // Only an object is an event.
			if !bytes.HasPrefix(bytes.TrimSpace(w), []byte("{")) {
				want = want[:i]
				break
			}
		}
		for name, from := range map[string]io.Reader{"": bytes.NewReader(body), "by single bytes": iotest.OneByteReader(bytes.NewReader(body)), "with the error": iotest.DataErrReader(bytes.NewReader(body))} {
			got, err := cut(eventFramer{}.NewFrameReader(io.NopCloser(from)), room)
			if len(got) < len(want) || err == nil {
				t.Fatalf("%s: want at least %d events and then an error, got %d, %v", name, len(want), len(got), err)
			}
			for i := range want {
				if string(bytes.TrimSpace(got[i])) != string(bytes.TrimSpace(want[i])) {
					t.Errorf("%s: event %d: want %q, got %q", name, i, want[i], got[i])
				}
			}
			if len(got) > len(want) && json.Unmarshal(got[len(want)], new(map[string]any)) == nil { // Invalid JSON after the events ends the watch.
				t.Errorf("%s: want no event behind %d, got %q", name, len(want), got[len(want)])
			}
		}
	})
}

// cut returns all frames, and the error after them.
func cut(from io.Reader, room int) (frames [][]byte, _ error) {
	p := make([]byte, room)
	var frame []byte
	for {
		n, err := from.Read(p)
		frame = append(frame, p[:n]...)
		switch {
		case errors.Is(err, io.ErrShortBuffer):
		case err != nil:
			return frames, err
		default:
			frames = append(frames, frame)
			frame = nil
		}
	}
}
