package crd

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/conversion/review"
	"refract.dev/conversion/verify"
	"refract.dev/fleet/offline/manifest"
)

const boxesWithPolicy = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boxes.example.com}
spec:
  group: example.com
  names: {kind: Box, listKind: BoxList, plural: boxes, singular: box}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {size: {type: string}}}}}}
  - name: v2
    served: true
    storage: false
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {sizes: {type: string}}}}}}
---
apiVersion: refract.dev/v1alpha1
kind: ConversionPolicy
metadata: {name: boxes}
spec:
  crd: boxes.example.com
  hub: v2
  spokes:
  - version: v1
    fields:
    - {hub: spec.sizes, spoke: spec.size}
`

// read parses a definition and a policy.
func read(t *testing.T, text string) ([]Definition, *Verification, []Policy) {
	t.Helper()
	documents, problems := manifest.Documents([]string{manifest.Stdin}, strings.NewReader(text))
	if len(problems) > 0 {
		t.Fatal(problems[0])
	}
	definitions, problems := Compile(documents)
	if len(problems) > 0 {
		t.Fatal(problems[0])
	}
	policies, report, problems := CompilePolicies(documents, definitions)
	if len(problems) > 0 {
		t.Fatal(problems[0])
	}
	return definitions, NewVerification(&documents[1], report), policies
}

// broken returns a verification with two violations of a law. The rule of the first violation is known, and that of the
// second is not.
func broken(t *testing.T) *Verification {
	t.Helper()
	_, v, _ := read(t, boxesWithPolicy)
	object := map[string]any{"apiVersion": "example.com/v1", "kind": "Box", "spec": map[string]any{"size": "a"}}
	v.Result = &verify.Report{
		Seed: 7, Objects: 2000, Refused: 1, Checks: 4001, Complete: true,
		Laws: []verify.LawResult{
			{Law: verify.Edit, Checks: 4000, Violations: []verify.Violation{}},
			{Law: verify.Triangle, Violations: []verify.Violation{}},
			{Law: verify.Valid, Checks: 1, Violations: []verify.Violation{
				{
					Law: verify.Valid, From: "v1", To: "v2", Path: "spec.sizes", Rule: "spec.spokes[0].fields[0]",
					Message: "is another", Object: object, Got: "b", Want: "a",
				},
				{Law: verify.Valid, From: "v2", To: "v1", Message: "cannot be converted", Object: object},
			}},
		},
	}
	return v
}

func TestVerificationText(t *testing.T) {
	want := `ConversionPolicy boxes for boxes.example.com: seed 7

  ✔ Edit           4,000 checks
  - Triangle       0 checks
  ✗ Valid          1 check

stdin:28: Valid: spec.spokes[0].fields[0]: spec.sizes: is another
  v1 → v2: SUMMARY
  object:
    apiVersion: example.com/v1
    kind: Box
    spec:
      size: a
  got: b
  want: a

stdin:19: Valid: cannot be converted
  v2 → v1: SUMMARY
  object:
    apiVersion: example.com/v1
    kind: Box
    spec:
      size: a

2,000 objects, 4,001 checks: 2 violations
1 more generated object is left out: an API server would not accept them
`
	var got bytes.Buffer
	if err := broken(t).WriteText(&got); err != nil {
		t.Fatal(err)
	}
	want = strings.ReplaceAll(want, "SUMMARY", summaries()[verify.Valid])
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestVerificationJUnit verifies that each law is a case. The place of a failed case is the first rule that violates
// the law.
func TestVerificationJUnit(t *testing.T) {
	var got bytes.Buffer
	if err := broken(t).WriteJUnit(&got); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`<testsuite name="boxes" file="stdin" tests="3" failures="1">`,
		`<testcase classname="stdin" name="Edit" file="stdin" line="19"></testcase>`,
		`<testcase classname="stdin" name="Valid" file="stdin" line="28">`,
		`<failure message="spec.spokes[0].fields[0]: spec.sizes: is another" type="Valid">`,
		"cannot be converted&#xA;object:&#xA;  apiVersion: example.com/v1&#xA;",
	} {
		if !strings.Contains(got.String(), want) {
			t.Errorf("JUnit lacks %s:\n%s", want, &got)
		}
	}
}

// TestVerificationSARIF verifies that each violation is a result, and each violated law a rule.
func TestVerificationSARIF(t *testing.T) {
	var text bytes.Buffer
	if err := broken(t).WriteSARIF(&text); err != nil {
		t.Fatal(err)
	}
	var log struct {
		Runs []struct {
			Tool struct {
				Driver struct {
					Rules []struct {
						ID string `json:"id"`
					} `json:"rules"`
				} `json:"driver"`
			} `json:"tool"`
			Results []struct {
				RuleID    string `json:"ruleId"`
				Locations []struct {
					PhysicalLocation struct {
						Region struct {
							StartLine int `json:"startLine"`
						} `json:"region"`
					} `json:"physicalLocation"`
				} `json:"locations"`
			} `json:"results"`
		} `json:"runs"`
	}
	if err := json.Unmarshal(text.Bytes(), &log); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range log.Runs[0].Tool.Driver.Rules {
		got = append(got, r.ID)
	}
	for _, r := range log.Runs[0].Results {
		got = append(got, fmt.Sprintf("%s:%d", r.RuleID, r.Locations[0].PhysicalLocation.Region.StartLine))
	}
	if diff := cmp.Diff([]string{"Valid", "Valid:28", "Valid:19"}, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestVerificationFailed verifies that a violation is a failure, and that a warning of the compiler is not.
func TestVerificationFailed(t *testing.T) {
	v := broken(t)
	if !v.Failed() {
		t.Error("a broken law is no failure")
	}
	v.Result.Laws = v.Result.Laws[:2]
	if v.Failed() {
		t.Error("laws that are kept are a failure")
	}
	_, v, policies := read(t, strings.Replace(boxesWithPolicy, "hub: spec.sizes", "hub: spec.none", 1))
	if len(policies) != 0 || !v.Failed() || v.Result != nil {
		t.Errorf("a policy that does not compile: %d policies, failed %t", len(policies), v.Failed())
	}
}

// TestWebhookBatches verifies that a webhook gets objects in several reviews, and that the results are in order.
func TestWebhookBatches(t *testing.T) {
	var sizes []int
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		var asked struct {
			Request struct {
				UID     string           `json:"uid"`
				Objects []map[string]any `json:"objects"`
			} `json:"request"`
		}
		if err := json.Unmarshal(body, &asked); err != nil {
			t.Error(err)
		}
		sizes = append(sizes, len(asked.Request.Objects))
		for _, o := range asked.Request.Objects {
			o["apiVersion"] = "example.com/v2"
		}
		w.Header().Set("Content-Type", "application/json")
		answer := map[string]any{"uid": asked.Request.UID, "result": map[string]any{"status": "Success"}, "convertedObjects": asked.Request.Objects}
		if err := json.NewEncoder(w).Encode(map[string]any{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": answer}); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	definitions, _, _ := read(t, boxesWithPolicy)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	webhook, err := NewWebhook(&definitions[0], review.Webhook{URL: server.URL, Authority: authority})
	if err != nil {
		t.Fatal(err)
	}
	var objects, want [][]byte
	for i := range batchObjects + 3 {
		objects = append(objects, fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Box","metadata":{"name":"box-%d"}}`, i))
		want = append(want, fmt.Appendf(nil, `{"apiVersion":"example.com/v2","kind":"Box","metadata":{"name":"box-%d"}}`, i))
	}
	// The two objects together are too large for one review.
	large := strings.Repeat("x", batchBytes/2)
	for i := range 2 {
		objects = append(objects, fmt.Appendf(nil, `{"apiVersion":"example.com/v1","kind":"Box","metadata":{"name":"large-%d"},"x":%q}`, i, large))
		want = append(want, fmt.Appendf(nil, `{"apiVersion":"example.com/v2","kind":"Box","metadata":{"name":"large-%d"},"x":%q}`, i, large))
	}
	got, err := webhook.Convert(t.Context(), objects, "example.com/v2")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{batchObjects, 4, 1}, sizes); diff != "" {
		t.Errorf("reviews: -want, +got:\n%s", diff)
	}
	if !slices.EqualFunc(want, got, bytes.Equal) {
		t.Error("the objects are not as they were, in their order")
	}
	if webhook.Err() != nil {
		t.Errorf("a webhook that answers: %v", webhook.Err())
	}
	server.Close()
	if _, err := webhook.Convert(t.Context(), objects[:1], "example.com/v2"); err == nil || webhook.Err() == nil {
		t.Errorf("a webhook that is gone: %v, %v", err, webhook.Err())
	}
}
