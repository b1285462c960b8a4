package injectionpolicies

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"refract.dev/internal/webhook/bounded"
)

// ask sends a review to a handler as an API server does, and returns the response.
func ask(t *testing.T, h http.Handler, req *admissionv1.AdmissionRequest) *admissionv1.AdmissionResponse {
	t.Helper()
	req.UID = types.UID(t.Name())
	body, err := json.Marshal(&admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: req,
	})
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "https://refract.example/", bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	h.ServeHTTP(recorder, r)
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(recorder.Body.Bytes(), &review); err != nil {
		t.Fatalf("The answer %q: %v", recorder.Body, err)
	}
	if review.Response == nil || review.Response.UID != req.UID {
		t.Fatalf("An API server does not take an answer to another question: got %s", recorder.Body)
	}
	return review.Response
}

func TestMutate(t *testing.T) {
	cases := map[string]struct {
		reason   string
		object   string // JSON, as an API server sends it.
		want     string // The patch.
		warnings []string
	}{
		"Proposal": {
			reason: "The first example of the proposal has a number.",
			object: `{"spec":{"env":[{"name":"DB_PORT","value":6379}]}}`,
			want:   `[{"op":"replace","path":"/spec/env/0/value","value":"6379"}]`,
		},
		"SomeOfMany": {
			reason: "Only numbers are changed, at their own place.",
			object: `{"spec":{"env":[{"name":"A","value":"1"},{"name":"B","value":-2},{"name":"C"},{"name":"D","value":0},` +
				`{"name":"E","valueFrom":{"secretKeyRef":{"name":"db","key":"3"}}}]}}`,
			want: `[{"op":"replace","path":"/spec/env/1/value","value":"-2"},{"op":"replace","path":"/spec/env/3/value","value":"0"}]`,
		},
		"LongNumber": {
			reason: "Large numbers keep all digits.",
			object: `{"spec":{"env":[{"name":"A","value":9007199254740991},{"name":"B","value":-9007199254740991}]}}`,
			want: `[{"op":"replace","path":"/spec/env/0/value","value":"9007199254740991"},` +
				`{"op":"replace","path":"/spec/env/1/value","value":"-9007199254740991"}]`,
		},
		"TooLongNumber": {
			reason: "A larger number may have lost digits before. It stays, later validation rejects it, and a warning has the reason.",
			object: `{"spec":{"env":[{"name":"A","value":9007199254740992},{"name":"B","value":1},{"name":"C","value":12345678901234567000},{"name":"D","value":1e+21}]}}`,
			want:   `[{"op":"replace","path":"/spec/env/1/value","value":"1"}]`,
			warnings: []string{
				"spec.env[0].value: put quotes around the number: it is beyond ±9007199254740991, and digits of such may be lost on the way, got 9007199254740992",
				"spec.env[2].value: put quotes around the number: it is beyond ±9007199254740991, and digits of such may be lost on the way, got 12345678901234567000",
				"spec.env[3].value: put quotes around the number: it is beyond ±9007199254740991, and digits of such may be lost on the way, got 1e+21",
			},
		},
		"NotWhole": {
			reason: "A number that is not whole stays, and the schema rejects it.", object: `{"spec":{"env":[{"name":"A","value":1.5},{"name":"B","value":1e3}]}}`,
			warnings: []string{"spec.env[0].value: want a string or a whole number, got 1.5", "spec.env[1].value: want a string or a whole number, got 1e3"},
		},
		"Other":     {reason: "Values of other types stay.", object: `{"spec":{"env":[{"name":"A","value":true},{"name":"B","value":null},{"name":"C","value":{}}]}}`},
		"Elsewhere": {reason: "Numbers in other fields stay.", object: `{"spec":{"rollout":{"maxConcurrent":3},"volumes":[{"name":"v","secret":{"defaultMode":420}}]}}`},
		"Text":      {reason: "A string needs no change.", object: `{"spec":{"env":[{"name":"A","value":"6379"}]}}`},
		"Nothing":   {reason: "A policy needs no variables.", object: `{}`},
		"Wrong":     {reason: "An unreadable policy stays, and later validation rejects it.", object: `{"spec":{"env":"DB_PORT=6379"}}`},
		"Deletion":  {reason: "A deletion has no object."},
	}
	h := Mutate(bounded.NewReader(1000), logr.Discard())
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			req := &admissionv1.AdmissionRequest{Operation: admissionv1.Create}
			if tc.object != "" {
				req.Object.Raw = []byte(tc.object)
			}
			got := ask(t, h, req)
			if !got.Allowed {
				t.Errorf("%s\nNothing is ever refused: got %v", tc.reason, got.Result)
			}
			if diff := cmp.Diff(tc.want, string(got.Patch)); diff != "" {
				t.Errorf("%s\npatch: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.warnings, got.Warnings); diff != "" {
				t.Errorf("%s\nwarnings: -want, +got:\n%s", tc.reason, diff)
			}
			if typed := got.PatchType != nil && *got.PatchType == admissionv1.PatchTypeJSONPatch; typed != (tc.want != "") {
				t.Errorf("%s\nA patch has its type, and no patch has none: got %v", tc.reason, got.PatchType)
			}
		})
	}
}
