package injector

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"refract.dev/injection/inject"
	"refract.dev/internal/webhook/bounded"
)

// offline returns a liveFallback whose lists fail.
func offline(c *Cache) *liveFallback {
	h := newLiveFallback(nil, c)
	h.list = func(context.Context, string) (*inject.Set, error) { return nil, errors.New("nobody answers") }
	return h
}

// served returns the handler for pods, with these policies in its cache.
func served(tb testing.TB, policies ...string) *pods {
	tb.Helper()
	c := full(tb, policies...)
	return newPods(c, offline(c), logr.Discard())
}

// request is the review of a pod that an API server sends.
type request struct {
	operation   admissionv1.Operation // Empty means Create.
	resource    string                // Empty means "pods".
	subresource string
	namespace   string // Empty means "shop".
	pod, was    string
}

func (r *request) body(tb testing.TB) []byte {
	tb.Helper()
	object := func(text string) (out runtime.RawExtension) {
		tb.Helper()
		if text == "" {
			return out
		}
		data, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			tb.Fatal(err)
		}
		out.Raw = data
		return out
	}
	or := func(text, other string) string {
		if text == "" {
			return other
		}
		return text
	}
	review := &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID:         "705ab4f5-6393-11e8-b7cc-42010a800002",
			Kind:        metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Resource:    metav1.GroupVersionResource{Version: "v1", Resource: or(r.resource, "pods")},
			SubResource: r.subresource,
			Namespace:   or(r.namespace, "shop"),
			Operation:   admissionv1.Operation(or(string(r.operation), string(admissionv1.Create))),
			Object:      object(r.pod), OldObject: object(r.was),
		},
	}
	data, err := json.Marshal(review)
	if err != nil {
		tb.Fatal(err)
	}
	return data
}

// send returns the response of a handler.
func send(tb testing.TB, h http.Handler, body []byte) *httptest.ResponseRecorder {
	tb.Helper()
	w := httptest.NewRecorder()
	r, err := http.NewRequestWithContext(tb.Context(), http.MethodPost, PodsPath, bytes.NewReader(body))
	if err != nil {
		tb.Fatal(err)
	}
	h.ServeHTTP(w, r)
	return w
}

// TestMostBytes: the handler accepts a review of MaxBytes. The server rejects larger ones.
func TestMostBytes(t *testing.T) {
	p := served(t, database)
	if got := http.Handler(p).(interface{ MaxBytes() int64 }).MaxBytes(); got != bounded.MaxBytes {
		t.Errorf("MaxBytes(): want %d, got %d", bounded.MaxBytes, got)
	}
	body := (&request{pod: website}).body(t)
	body = append(body, bytes.Repeat([]byte(" "), bounded.MaxBytes-len(body))...)
	if got := ask(t, p, body); !got.Allowed || got.Patch == nil {
		t.Errorf("A pod in one as large is injected: got %+v", got)
	}
}

// ask returns the response of a handler to a review.
func ask(tb testing.TB, h http.Handler, body []byte) *admissionv1.AdmissionResponse {
	tb.Helper()
	w := send(tb, h, body)
	if w.Code != http.StatusOK || w.Header().Get("Content-Type") != "application/json" {
		tb.Fatalf("The answer is %d, of type %s:\n%s", w.Code, w.Header().Get("Content-Type"), w.Body)
	}
	review := &admissionv1.AdmissionReview{}
	if err := json.Unmarshal(w.Body.Bytes(), review); err != nil {
		tb.Fatal(err)
	}
	if review.APIVersion != "admission.k8s.io/v1" || review.Kind != "AdmissionReview" || review.Response == nil || review.Response.UID == "" {
		tb.Fatalf("No API server understands this:\n%s", w.Body)
	}
	return review.Response
}

// patched returns the pod with the patch of a response.
func patched(tb testing.TB, pod string, response *admissionv1.AdmissionResponse) string {
	tb.Helper()
	data, err := yaml.YAMLToJSON([]byte(pod))
	if err != nil {
		tb.Fatal(err)
	}
	if response.Patch != nil {
		if response.PatchType == nil || *response.PatchType != admissionv1.PatchTypeJSONPatch {
			tb.Fatalf("The patch is of type %v", response.PatchType)
		}
		patch, err := jsonpatch.DecodePatch(response.Patch)
		if err != nil {
			tb.Fatal(err)
		}
		if data, err = patch.Apply(data); err != nil {
			tb.Fatal(err)
		}
	}
	return string(data)
}

func counted(tb testing.TB, c prometheus.Counter) float64 {
	tb.Helper()
	m := &dto.Metric{}
	if err := c.Write(m); err != nil {
		tb.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

const website = `
metadata: {name: website, labels: {app: website, role: frontend}}
spec: {containers: [{name: website, image: ecorp/website, ports: [{containerPort: 80}]}]}
`

// conflicting is a pod with another value for the database's port.
var conflicting = changed(website, "image:", `env: [{name: DB_PORT, value: "7000"}], image:`)

func TestReviews(t *testing.T) {
	reject := changed(database, "spec:", "spec:\n  onConflict: Reject")
	debug := changed(database, "spec:", "spec:\n  containers: {ephemeralContainers: true}", "  volumes: [{name: cache-volume, emptyDir: {}}]\n", "",
		"  volumeMounts: [{mountPath: /cache, name: cache-volume}]\n", "")
	debugged := changed(website, "spec: {", "spec: {ephemeralContainers: [{name: debugger, image: busybox}], ")
	cases := map[string]struct {
		reason   string
		policies []string
		request  request
		outcome  string
		// The resulting pod must have the parts in contains and must not have the parts in lacks. If contains is empty,
		// the response must have no patch.
		contains []string
		lacks    []string
		audit    map[string]string
		warnings []string
		refused  string
	}{
		"Injected": {
			reason:   "The first example of the proposal is injected.",
			policies: []string{database}, request: request{pod: website},
			outcome: outcomeInjected,
			contains: []string{
				`"env":[{"name":"DB_PORT","value":"6379"}]`, `"volumeMounts":[{"name":"cache-volume","mountPath":"/cache"}]`,
				`"volumes":[{"name":"cache-volume","emptyDir":{}}]`, `"serviceinjectionpolicy.k8s.io/db":"allow-database"`,
			},
			audit: map[string]string{"applied": "allow-database"},
		},
		"NamespaceOfTheRequest": {
			reason:   "Only the namespace of the request counts: that of the pod may be empty.",
			policies: []string{database}, request: request{pod: changed(website, "{name: website,", "{name: website, namespace: shop,"), namespace: "bank"},
			outcome: outcomeUnchanged,
		},
		"NothingForIt": {
			reason:   "No selector matches the pod.",
			policies: []string{database}, request: request{pod: changed(website, "frontend", "backend")},
			outcome: outcomeUnchanged,
		},
		"OptedOut": {
			reason:   "The pod has opted out, so there is no warning.",
			policies: []string{database}, request: request{pod: changed(website, "labels:", `annotations: {refract.dev/inject: "false"}, labels:`)},
			outcome: outcomeExcluded,
			audit:   map[string]string{"skipped": "allow-database=OptedOut"},
		},
		"Conflict": {
			reason:   "The creator of the pod gets a warning about the skipped policy. All other policies are injected.",
			policies: []string{database, changed(database, "allow-database", "other", "DB_PORT, value: 6379", "OTHER, value: a", "service: db", "service: other")},
			request:  request{pod: conflicting},
			outcome:  outcomeInjected,
			contains: []string{`{"name":"OTHER","value":"a"}`, `"value":"7000"`},
			lacks:    []string{"6379"},
			audit:    map[string]string{"applied": "other", "skipped": "allow-database=EnvConflict"},
			warnings: []string{"ServiceInjectionPolicy allow-database is left out: "},
		},
		"OnlyConflict": {
			reason:   "The pod has a record of the skipped policy, although nothing was injected.",
			policies: []string{database}, request: request{pod: conflicting},
			outcome:  outcomeSkipped,
			contains: []string{"EnvConflict"}, lacks: []string{"6379", "serviceinjectionpolicy.k8s.io/db"},
			audit:    map[string]string{"skipped": "allow-database=EnvConflict"},
			warnings: []string{"ServiceInjectionPolicy allow-database is left out: "},
		},
		"Audit": {
			reason:   "A policy of the mode Audit causes no warning.",
			policies: []string{changed(database, "spec:", "spec:\n  mode: Audit")}, request: request{pod: website},
			outcome: outcomeSkipped,
			audit:   map[string]string{"skipped": "allow-database=Audit"},
		},
		"Rejected": {
			reason:   "A policy with onConflict: Reject rejects the pod.",
			policies: []string{reject}, request: request{pod: conflicting},
			outcome: outcomeRejected,
			audit:   map[string]string{"skipped": "allow-database=EnvConflict"},
			refused: "DB_PORT",
		},
		"Debugger": {
			reason:   "An ephemeral container gets the items of a policy for ephemeral containers.",
			policies: []string{debug}, request: request{operation: admissionv1.Update, subresource: "ephemeralcontainers", pod: debugged, was: website},
			outcome:  outcomeInjected,
			contains: []string{`"name":"debugger","env":[{"name":"DB_PORT","value":"6379"}]`}, lacks: []string{"annotations"},
			audit: map[string]string{"applied": "allow-database"},
		},
		"Update": {
			reason:   "An existing pod cannot be injected.",
			policies: []string{database}, request: request{operation: admissionv1.Update, pod: website, was: website},
			outcome: outcomeUnchanged,
		},
		"Status": {
			reason:   "A write of the status is no reason for an injection.",
			policies: []string{database}, request: request{subresource: "status", pod: website},
			outcome: outcomeUnchanged,
		},
		"NoPod": {
			reason:   "The webhook may be registered for other resources by mistake.",
			policies: []string{database}, request: request{resource: "secrets", pod: website},
			outcome: outcomeUnchanged,
		},
		"NoPodInIt": {
			reason:   "After any failure, the pod is admitted.",
			policies: []string{database}, request: request{},
			outcome: outcomeFailed,
		},
		"ShapeOfNoPod": {
			reason:   "The API server rejects malformed pods itself.",
			policies: []string{database}, request: request{pod: `{metadata: {labels: {role: frontend}}, spec: {containers: 3}}`},
			outcome: outcomeFailed,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := counted(t, reviews.WithLabelValues(tc.outcome))
			body := tc.request.body(t)
			asked := bytes.Clone(body)
			got := ask(t, served(t, tc.policies...), body)
			if !bytes.Equal(asked, body) {
				t.Error("The request was modified.")
			}
			if more := counted(t, reviews.WithLabelValues(tc.outcome)) - before; more != 1 {
				t.Errorf("%s\nCounted as %s: %v times", tc.reason, tc.outcome, more)
			}
			if got.Allowed != (tc.refused == "") {
				t.Fatalf("%s\nAllowed: %t", tc.reason, got.Allowed)
			}
			if tc.refused != "" && (got.Result.Code != http.StatusForbidden || !strings.Contains(got.Result.Message, tc.refused)) {
				t.Errorf("%s\nRefused with %+v, want %q in it", tc.reason, got.Result, tc.refused)
			}
			if (got.Patch != nil) != (len(tc.contains) > 0) {
				t.Fatalf("%s\nThe patch is %s", tc.reason, got.Patch)
			}
			if got.Patch != nil {
				pod := patched(t, tc.request.pod, got)
				for _, part := range tc.contains {
					if !strings.Contains(pod, part) {
						t.Errorf("%s\n%s is not in\n%s", tc.reason, part, pod)
					}
				}
				for _, part := range tc.lacks {
					if strings.Contains(pod, part) {
						t.Errorf("%s\n%s is in\n%s", tc.reason, part, pod)
					}
				}
			}
			if diff := cmp.Diff(tc.audit, got.AuditAnnotations); diff != "" {
				t.Errorf("%s\nAudit annotations: -want, +got:\n%s", tc.reason, diff)
			}
			if len(got.Warnings) != len(tc.warnings) || !slices.EqualFunc(got.Warnings, tc.warnings, strings.HasPrefix) {
				t.Errorf("%s\nWarnings: %q, want %q", tc.reason, got.Warnings, tc.warnings)
			}
		})
	}
}

// TestMalformedReviews sends requests that no API server sends.
func TestMalformedReviews(t *testing.T) {
	good := string((&request{pod: website}).body(t))
	cases := map[string]struct {
		reason string
		body   string
		status int
	}{
		"Empty":        {"An empty body has no UID to answer.", "", http.StatusBadRequest},
		"NoJSON":       {"A body that is not JSON has no UID to answer.", "<xml/>", http.StatusBadRequest},
		"NoRequest":    {"A review without a request has no UID to answer.", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, http.StatusBadRequest},
		"NoUID":        {"A request without a UID cannot be answered.", changed(good, `"uid":"705ab4f5-6393-11e8-b7cc-42010a800002"`, `"uid":""`), http.StatusBadRequest},
		"CutOff":       {"The UID of a truncated review is known, so there is an answer.", good[:len(good)-10], http.StatusOK},
		"MoreBehind":   {"The UID is known, so there is an answer.", good + "}", http.StatusOK},
		"OtherVersion": {"The UID is known, so there is an answer.", changed(good, "admission.k8s.io/v1", "admission.k8s.io/v3"), http.StatusOK},
		"OtherKind":    {"The UID is known, so there is an answer.", changed(good, "AdmissionReview", "ConversionReview"), http.StatusOK},
		"WrongType":    {"The UID is known, so there is an answer.", changed(good, `"namespace":"shop"`, `"namespace":3`), http.StatusOK},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			before := counted(t, reviews.WithLabelValues(outcomeFailed))
			h := served(t, database)
			if tc.status != http.StatusOK {
				if got := send(t, h, []byte(tc.body)); got.Code != tc.status {
					t.Errorf("%s\nThe answer is %d, want %d:\n%s", tc.reason, got.Code, tc.status, got.Body)
				}
			} else if got := ask(t, h, []byte(tc.body)); !got.Allowed || got.Patch != nil {
				t.Errorf("%s\nWhat cannot be understood is let through as it is: %+v", tc.reason, got)
			}
			if more := counted(t, reviews.WithLabelValues(outcomeFailed)) - before; more != 1 {
				t.Errorf("%s\nCounted as failed: %v times", tc.reason, more)
			}
		})
	}
}

// TestOversized: the server cuts off a request that is larger than its limit.
func TestOversized(t *testing.T) {
	w := httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, PodsPath, bytes.NewReader((&request{pod: website}).body(t)))
	r.Body = http.MaxBytesReader(w, r.Body, 100)
	served(t, database).ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest {
		t.Errorf("The answer is %d", w.Code)
	}
}

// TestPanic: this program panics.
func TestPanic(t *testing.T) {
	var log record
	c := full(t, database)
	h := newLiveFallback(nil, c)
	h.list = nil
	p := newPods(c, h, log.logger())
	p.fallback = nil
	pod := changed(website, "labels:", `annotations: {refract.dev/injection-hash: "0123456789abcdef"}, labels:`)
	body := (&request{pod: pod}).body(t)
	for range 100 {
		if got := ask(t, p, body); !got.Allowed || got.Patch != nil {
			t.Fatalf("The pod is admitted as it is: %+v", got)
		}
	}
	if lines := strings.Count(log.String(), "A pod was admitted without injection"); lines == 0 || lines > 20 {
		t.Errorf("It is logged, now and then: got %d lines", lines)
	}
}

// TestBeforePoliciesAreKnown: pods are created while the program starts.
func TestBeforePoliciesAreKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCache(logr.Discard())
		p := newPods(c, offline(c), logr.Discard())
		body := (&request{pod: website}).body(t)
		if c.Ready() == nil {
			t.Error("It is not ready.")
		}
		begun := time.Now()
		if got := ask(t, p, body); !got.Allowed || got.Patch != nil {
			t.Errorf("A pod that has waited long enough is admitted as it is: %+v", got)
		}
		if waited := time.Since(begun); waited != syncPatience {
			t.Errorf("It waited for %s", waited)
		}
		go func() {
			time.Sleep(time.Second) //nolint:forbidigo // The time is that of the test.
			c.update(policy(t, database))
			close(c.synced)
		}()
		if got := ask(t, p, body); got.Patch == nil {
			t.Error("A pod that waits gets what the policies say.")
		}
		if err := c.Ready(); err != nil {
			t.Error(err)
		}
	})
}
