package cli

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// webhookOfOvens starts a webhook that converts, mutates and validates the objects of examples/evolution/defaults,
// which are ovens. It returns the webhook's URL and a file with its certificate.
func webhookOfOvens(t *testing.T) (url, authority string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/convert", func(w http.ResponseWriter, r *http.Request) {
		var review struct {
			Request struct {
				UID               string           `json:"uid"`
				DesiredAPIVersion string           `json:"desiredAPIVersion"`
				Objects           []map[string]any `json:"objects"`
			} `json:"request"`
		}
		if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
			t.Error(err)
		}
		result := map[string]any{"status": "Success"}
		for _, object := range review.Request.Objects {
			object["apiVersion"] = review.Request.DesiredAPIVersion
			spec, _ := object["spec"].(map[string]any)
			if spec["fuel"] == "coal" {
				result = map[string]any{"status": "Failure", "message": "spec.fuel: nobody burns coal"}
			}
		}
		writeReview(t, w, "apiextensions.k8s.io/v1", "ConversionReview", map[string]any{
			"uid": review.Request.UID, "result": result, "convertedObjects": review.Request.Objects,
		})
	})
	admit := func(answer func(fuel string) map[string]any) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			var review struct {
				Request struct {
					UID    string `json:"uid"`
					Object struct {
						Spec struct {
							Fuel string `json:"fuel"`
						} `json:"spec"`
					} `json:"object"`
				} `json:"request"`
			}
			if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
				t.Error(err)
			}
			response := answer(review.Request.Object.Spec.Fuel)
			response["uid"] = review.Request.UID
			writeReview(t, w, "admission.k8s.io/v1", "AdmissionReview", response)
		}
	}
	mux.HandleFunc("/mutate", admit(func(fuel string) map[string]any {
		patch := base64.StdEncoding.EncodeToString([]byte(`[{"op":"add","path":"/spec/fuel","value":"gas"}]`))
		if fuel != "" {
			return map[string]any{"allowed": true}
		}
		return map[string]any{"allowed": true, "patchType": "JSONPatch", "patch": patch, "warnings": []string{"gas is dear"}}
	}))
	mux.HandleFunc("/validate", admit(func(fuel string) map[string]any {
		return map[string]any{"allowed": fuel != "oil", "status": map[string]any{"message": "oil is not for pizzas"}}
	}))
	server := httptest.NewTLSServer(mux)
	t.Cleanup(server.Close)
	authority = filepath.Join(t.TempDir(), "ca.crt")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(authority, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL, authority
}

func writeReview(t *testing.T, w http.ResponseWriter, apiVersion, kind string, response map[string]any) {
	t.Helper()
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(map[string]any{"apiVersion": apiVersion, "kind": kind, "response": response}); err != nil {
		t.Error(err)
	}
}

// TestSimulateWebhooks: simulate calls the webhooks that the flags name, and shows their changes.
func TestSimulateWebhooks(t *testing.T) {
	url, authority := webhookOfOvens(t)
	crdFile := filepath.Join(root, "examples", "evolution", "defaults", "crd.yaml")
	text, err := os.ReadFile(crdFile)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := os.ReadFile(authority)
	if err != nil {
		t.Fatal(err)
	}
	// This definition has the URL and the certificate authority of the conversion webhook.
	wired := filepath.Join(t.TempDir(), "crd.yaml")
	conversion := fmt.Sprintf("spec:\n  conversion: {strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: %q, caBundle: %s}}}\n",
		url+"/convert", base64.StdEncoding.EncodeToString(certificate))
	if err := os.WriteFile(wired, []byte(strings.Replace(string(text), "spec:\n", conversion, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		crd    string
		fuel   string
		args   []string
		code   int
		stdout string // The part after the lines that are the same in all cases.
		stderr string
	}{
		"All": {
			reason: "Every webhook is called, in the order of the API server.", crd: crdFile,
			args: []string{"--mutate", url + "/mutate", "--validate", url + "/validate", "--conversion", url + "/convert", "--certificate-authority", authority},
			stdout: `write
  ✔ decode    v1alpha1
  ✔ default   v1alpha1
  ✔ mutate    v1alpha1
      + spec.fuel "gas"
  ✔ default   v1alpha1
  ✔ validate  v1alpha1
  ✔ admit     v1alpha1
  ✔ store     v1alpha1

read
  ✔ load      v1alpha1
  ✔ default   v1alpha1
  ✔ convert   v1beta1
      ~ apiVersion "evolution.example.com/v1alpha1" → "evolution.example.com/v1beta1"
  ✔ prune     v1beta1
  ✔ answer    v1beta1

created, and read back: 2 changes, 0 warnings
`,
			stderr: "warning: " + url + "/mutate: gas is dear\n",
		},
		"Denied": {
			reason: "The message of the denial is the one that a client gets.", crd: crdFile, fuel: "oil", code: exitFound,
			args: []string{"--validate", url + "/validate", "--certificate-authority", authority},
			stdout: `write
  ✔ decode    v1alpha1
  ✔ default   v1alpha1
  ✔ validate  v1alpha1
  ✗ admit     v1alpha1
      error: admission webhook "` + url + `/validate" denied the request: oil is not for pizzas

refused: 1 error, 0 warnings, 0 changes before
`,
		},
		"Wired": {
			reason: "Without flags, the webhook and its authority come from the definition.", crd: wired, fuel: "coal", code: exitFound,
			stdout: `write
  ✔ decode    v1alpha1
  ✔ default   v1alpha1
  ✔ validate  v1alpha1
  ✔ store     v1alpha1

read
  ✔ load      v1alpha1
  ✔ default   v1alpha1
  ✗ convert   v1beta1
      error: conversion webhook for evolution.example.com/v1alpha1, Kind=Oven failed: spec.fuel: nobody burns coal

refused: 1 error, 0 warnings, 0 changes before
`,
		},
		"Untrusted": {
			reason: "A webhook with an untrusted certificate is an error.", crd: crdFile, code: exitError,
			args:   []string{"--conversion", url + "/convert"},
			stderr: "hint: --certificate-authority names a file with the CA certificate of the webhook\n",
		},
		"OtherName": {
			reason: "A webhook with a certificate for another name is an error.", crd: crdFile, code: exitError,
			args:   []string{"--conversion", url + "/convert", "--certificate-authority", authority, "--tls-server-name", "webhook.ovens.svc"},
			stderr: "hint: --tls-server-name sets the name: the certificate is for example.com, *.example.com\n",
		},
		"Named": {
			reason: "Through a tunnel, the certificate is checked for the name of the Service.", crd: crdFile, fuel: "oil", code: exitFound,
			args: []string{"--validate", url + "/validate", "--certificate-authority", authority, "--tls-server-name", "example.com"},
			stdout: `write
  ✔ decode    v1alpha1
  ✔ default   v1alpha1
  ✔ validate  v1alpha1
  ✗ admit     v1alpha1
      error: admission webhook "` + url + `/validate" denied the request: oil is not for pizzas

refused: 1 error, 0 warnings, 0 changes before
`,
		},
		"NotFound": {
			reason: "An answer from a wrong path is an error that shows the answer.", crd: crdFile, code: exitError,
			args:   []string{"--conversion", url + "/elsewhere", "--certificate-authority", authority},
			stderr: "error: asking " + url + "/elsewhere: the HTTP status is 404 Not Found: 404 page not found\n",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := "{degrees: 450}"
			if tc.fuel != "" {
				spec = "{degrees: 450, fuel: " + tc.fuel + "}"
			}
			object := "{apiVersion: evolution.example.com/v1alpha1, kind: Oven, metadata: {name: old}, spec: " + spec + "}\n"
			args := append([]string{"refract", "crd", "simulate", "--crd", tc.crd, "-f", "-", "--to", "v1beta1"}, tc.args...)
			var stdout, stderr bytes.Buffer
			if code := Main(t.Context(), args, strings.NewReader(object), &stdout, &stderr); code != tc.code {
				t.Errorf("%s\nexit code %d, want %d\n%s", tc.reason, code, tc.code, &stderr)
			}
			_, steps, _ := strings.Cut(stdout.String(), "\n\n")
			if diff := cmp.Diff(tc.stdout, steps); diff != "" {
				t.Errorf("%s\nstdout: -want, +got:\n%s", tc.reason, diff)
			}
			if !strings.HasSuffix(stderr.String(), tc.stderr) {
				t.Errorf("%s\nstderr: %s\nwant: %s", tc.reason, &stderr, tc.stderr)
			}
		})
	}
}
