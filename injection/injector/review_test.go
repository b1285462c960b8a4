package injector

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	admissionv1 "k8s.io/api/admission/v1"

	"refract.dev/internal/fuzzed"
	"refract.dev/internal/rescue"
	"refract.dev/tree"
)

// FuzzReview sends any text. Every request gets a response, and a pod is rejected only because of onConflict: Reject.
func FuzzReview(f *testing.F) {
	for _, pod := range []string{website, conflicting, `{}`, `{metadata: {labels: {role: frontend}}, spec: {containers: 3}}`} {
		f.Add((&request{pod: pod}).body(f))
		f.Add((&request{operation: admissionv1.Update, subresource: "ephemeralcontainers", pod: pod, was: pod}).body(f))
	}
	for _, text := range []string{
		"", "{", "[]", `{"request":{"uid":"a"}}`, `{"request":{"uid":"a","object":`, `{"request":{"uid":"\ud800"}}`, `{"request":null}`,
		`{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"a","uid":"","object":null}}`,
		strings.Repeat("[", 2000), strings.Repeat(`{"request":`, 2000),
	} {
		f.Add([]byte(text))
	}
	h := served(f, database, changed(database, "allow-database", "debug", "spec:", "spec:\n  containers: {ephemeralContainers: true}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if len(body) > fuzzed.MiB {
			t.Skip("more than a MiB")
		}
		var w *httptest.ResponseRecorder
		fuzzed.Run(t, func() int {
			w = send(t, h, body)
			return len(body)
		}, rescue.Count)
		if w.Code == http.StatusBadRequest {
			return
		}
		review := &admissionv1.AdmissionReview{}
		if err := json.Unmarshal(w.Body.Bytes(), review); err != nil || w.Code != http.StatusOK {
			t.Fatalf("The answer is %d, %v:\n%s", w.Code, err, w.Body)
		}
		switch response := review.Response; {
		case response == nil || response.UID == "":
			t.Fatalf("It is not said who is answered:\n%s", w.Body)
		case !response.Allowed:
			t.Fatalf("No policy wants a pod refused:\n%s", w.Body)
		case response.Patch != nil && !json.Valid(response.Patch):
			t.Fatalf("The patch is no JSON:\n%s", response.Patch)
		}
	})
}

// TestHostileReviews reviews the most expensive pods of 1 MiB each: one with the most elements that fit into 1 MiB, and
// one with the most elements that the reader accepts.
func TestHostileReviews(t *testing.T) {
	h := served(t, database, changed(database, "allow-database", "debug", "spec:", "spec:\n  containers: {ephemeralContainers: true}"))
	const (
		pod = `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview","request":{"uid":"a","operation":"CREATE","namespace":"shop",` +
			`"object":{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","labels":{"role":"frontend"}`
		container = pod + `},"spec":{"containers":[{"name":"a",`
		end       = `]}]}}}}`
	)
	for name, tc := range map[string]struct{ before, repeated, behind string }{
		"Containers": {pod + `},"spec":{"containers":[`, `{},`, `]}}}}`},
		"Named":      {pod + `},"spec":{"containers":[`, `{"name":"a"},`, `]}}}}`},
		"Env":        {container + `"env":[`, `{},`, end},
		"Names":      {container + `"env":[`, `{"name":"A"},`, end},
		"Sources":    {container + `"envFrom":[`, `{},`, end},
		"Mounts":     {container + `"volumeMounts":[`, `{},`, end},
		"Devices":    {container + `"volumeDevices":[`, `{},`, end},
		"Volumes":    {pod + `},"spec":{"volumes":[`, `{},`, `]}}}}`},
		"Labels":     {pod + `},"a":{`, `"b":1,`, `}}}}`},
		"Owners":     {pod + `,"ownerReferences":[`, `{},`, `]}}}}`},
	} {
		for reason, values := range map[string]int{"Many": fuzzed.MiB, "Fewer": 80_000, "Few": 20_000} {
			t.Run(name+"/"+reason, func(t *testing.T) {
				fuzzed.Review(t, h, fuzzed.Filled(values/tree.Values([]byte(tc.repeated)), tc.before, tc.repeated, tc.behind), rescue.Count)
			})
		}
	}
}

// TestAnswersAreBounded: the response stays small even if very many policies are skipped.
func TestAnswersAreBounded(t *testing.T) {
	var policies []string
	for i := range 50 {
		policies = append(policies, changed(database, "allow-database", fmt.Sprintf("policy-%02d", i)))
	}
	pod := changed(conflicting, "name: website, image", "name: "+strings.Repeat("ü", 300)+", image")
	got := ask(t, served(t, policies...), (&request{pod: pod}).body(t))
	if len(got.Warnings) != mostWarnings || !strings.Contains(got.Warnings[mostWarnings-1], "more") {
		t.Errorf("There are %d warnings, want %d, and a word about the rest: %q", len(got.Warnings), mostWarnings, got.Warnings)
	}
	for _, text := range append(got.Warnings, got.AuditAnnotations["skipped"]) {
		if len(text) > longestText || !utf8.ValidString(text) {
			t.Errorf("%d bytes: %q", len(text), text)
		}
	}
	if !strings.HasSuffix(got.AuditAnnotations["skipped"], " and 40 more") {
		t.Errorf("The audit log should stay short: %q", got.AuditAnnotations["skipped"])
	}
}

// TestAuditWarnsNobody: a policy of the mode Audit that conflicts with a pod causes no warning.
func TestAuditWarnsNobody(t *testing.T) {
	audited := changed(database, "spec:", "spec:\n  mode: Audit")
	got := ask(t, served(t, audited), (&request{pod: conflicting}).body(t))
	if len(got.Warnings) > 0 {
		t.Errorf("Want no warnings, got %q", got.Warnings)
	}
	if want := "allow-database=EnvConflict"; got.AuditAnnotations["skipped"] != want {
		t.Errorf("The audit log: want %s, got %s", want, got.AuditAnnotations["skipped"])
	}
}
