package pipeline

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrlclient "sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/conversion/structural/pipeline"
	"refract.dev/test/harness"
)

// webhooks returns the results in an archive, as webhooks of a real API server and as hooks.
type webhooks struct {
	archive string
	group   string // The group of the objects.
	in      map[string]string
	server  *httptest.Server
	// asked counts the admission reviews.
	asked atomic.Int64
}

// install creates the definition of an archive, and registers webhooks that return the results in the archive. All of
// this ends with the test.
func install(t *testing.T, file string) *webhooks {
	t.Helper()
	name := strings.TrimSuffix(filepath.Base(file), ".txtar")
	w := &webhooks{archive: name, group: name + "." + harness.NameOf(t) + "." + group}
	w.in = read(t, file, w.group)
	mux := http.NewServeMux()
	mux.HandleFunc("/convert", func(out http.ResponseWriter, r *http.Request) { w.convert(t, out, r) })
	mux.HandleFunc("/mutate", func(out http.ResponseWriter, r *http.Request) { w.mutate(t, out, r) })
	mux.HandleFunc("/validate", func(out http.ResponseWriter, r *http.Request) { w.validate(t, out, r) })
	w.server = httptest.NewTLSServer(mux)
	t.Cleanup(w.server.Close)

	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: w.server.Certificate().Raw})
	config := func(path string) map[string]any {
		return map[string]any{"url": w.server.URL + path, "caBundle": encoded(t, authority)}
	}
	crd := parse(t, w.in["crd.yaml"])
	if w.converts() {
		crd["spec"].(map[string]any)["conversion"] = map[string]any{
			"strategy": "Webhook", "webhook": map[string]any{"conversionReviewVersions": []any{"v1"}, "clientConfig": config("/convert")},
		}
	}
	create(t, definitions, crd)
	if w.has("mutated.yaml") {
		create(t, mutating, w.configuration("MutatingWebhookConfiguration", config("/mutate")))
	}
	if w.has("denied") {
		create(t, validating, w.configuration("ValidatingWebhookConfiguration", config("/validate")))
	}
	return w
}

func (w *webhooks) has(name string) bool { _, ok := w.in[name]; return ok }

func (w *webhooks) converts() bool {
	for name := range w.in {
		if strings.HasPrefix(name, "converted/") {
			return true
		}
	}
	return false
}

// converted returns the object in the archive that is the result of the conversion to a version; nil if there is none.
func (w *webhooks) converted(t *testing.T, apiVersion string, metadata any) map[string]any {
	t.Helper()
	name := "converted/" + strings.TrimPrefix(apiVersion, w.group+"/") + ".yaml"
	if !w.has(name) {
		return nil
	}
	object := parse(t, w.in[name])
	object["metadata"] = metadata
	return object
}

// offline returns hooks with the same results, which need no network.
func (w *webhooks) offline(t *testing.T) pipeline.Hooks {
	t.Helper()
	var h pipeline.Hooks
	if w.has("mutated.yaml") {
		h.Mutate = func(map[string]any) (map[string]any, error) { return parse(t, w.in["mutated.yaml"]), nil }
	}
	if w.has("denied") {
		h.Admit = func(map[string]any) error {
			return &pipeline.RefusedError{Rule: "AdmissionDenied", Message: `admission webhook "ovens.` + w.group + `" denied the request: too hot`}
		}
	}
	if w.converts() {
		h.Convert = func(object map[string]any, to string) (map[string]any, error) {
			if out := w.converted(t, to, object["metadata"]); out != nil {
				return out, nil
			}
			return nil, &pipeline.RefusedError{Rule: "ConversionFailed", Message: "no conversion to " + to}
		}
	}
	return h
}

// wait waits until the API server serves all installed definitions.
func (w *webhooks) wait(t *testing.T) {
	t.Helper()
	for _, v := range versions(parse(t, w.in["crd.yaml"])) {
		harness.Eventually(t, v+" is served", func(ctx context.Context) error {
			_, err := w.ovens(v).List(ctx, metav1.ListOptions{})
			return err
		})
	}
	if w.has("mutated.yaml") || w.has("denied") {
		w.waitAsked(t)
	}
}

// waitAsked waits until the API server calls the admission webhook. It sends a dry run for that.
func (w *webhooks) waitAsked(t *testing.T) {
	t.Helper()
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": w.group + "/v1alpha1", "kind": "Oven", "metadata": map[string]any{"name": "probe"}, "spec": map[string]any{},
	}}
	harness.Eventually(t, "the webhook is called", func(ctx context.Context) error {
		_, err := w.ovens("v1alpha1").Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil && !strings.Contains(err.Error(), "too hot") {
			t.Errorf("probing: %v", err)
		}
		if w.asked.Load() == 0 {
			return errors.New("the webhook was not called")
		}
		return nil
	})
}

func (w *webhooks) configuration(kind string, client map[string]any) map[string]any {
	return map[string]any{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": map[string]any{"name": "ovens." + w.group},
		"webhooks": []any{map[string]any{
			"name": "ovens." + w.group, "clientConfig": client, "sideEffects": "None", "admissionReviewVersions": []any{"v1"},
			"rules": []any{map[string]any{
				"apiGroups": []any{w.group}, "apiVersions": []any{"*"}, "operations": []any{"CREATE"}, "resources": []any{"ovens"},
			}},
		}},
	}
}

// versions returns the names of the served versions.
func versions(crd map[string]any) []string {
	all, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	var names []string
	for _, v := range all {
		if m, ok := v.(map[string]any); ok && m["served"] == true {
			names = append(names, fmt.Sprint(m["name"]))
		}
	}
	return names
}

// create creates an object, and deletes it at the end of the test. It waits until the object is gone, because it could
// not be read later without its webhook.
func create(t *testing.T, resource schema.GroupVersionResource, content map[string]any) {
	t.Helper()
	object := &unstructured.Unstructured{Object: content}
	if _, err := client.Resource(resource).Create(t.Context(), object, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	name := object.GetName()
	t.Cleanup(func() {
		if err := client.Resource(resource).Delete(context.WithoutCancel(t.Context()), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		harness.Eventually(t, resource.Resource+" "+name+" is gone", func(ctx context.Context) error {
			_, err := client.Resource(resource).Get(ctx, name, metav1.GetOptions{})
			if err == nil {
				return errors.New("it is there")
			}
			return ctrlclient.IgnoreNotFound(err)
		})
	})
}

func (w *webhooks) convert(t *testing.T, out http.ResponseWriter, r *http.Request) {
	t.Helper()
	var review struct {
		Request struct {
			UID               string           `json:"uid"`
			DesiredAPIVersion string           `json:"desiredAPIVersion"`
			Objects           []map[string]any `json:"objects"`
		} `json:"request"`
	}
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		t.Errorf("%s: %v", w.archive, err)
	}
	result, objects := map[string]any{"status": "Success"}, []any{}
	for _, object := range review.Request.Objects {
		one := w.converted(t, review.Request.DesiredAPIVersion, object["metadata"])
		if one == nil {
			result = map[string]any{"status": "Failure", "message": "no conversion to " + review.Request.DesiredAPIVersion}
			break
		}
		objects = append(objects, one)
	}
	write(t, out, map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
		"response": map[string]any{"uid": review.Request.UID, "result": result, "convertedObjects": objects},
	})
}

func (w *webhooks) mutate(t *testing.T, out http.ResponseWriter, r *http.Request) {
	t.Helper()
	review := w.review(t, r)
	wanted := parse(t, w.in["mutated.yaml"])
	patch, err := json.Marshal([]any{map[string]any{"op": "replace", "path": "/spec", "value": wanted["spec"]}})
	if err != nil {
		t.Errorf("%s: %v", w.archive, err)
	}
	kind := admissionv1.PatchTypeJSONPatch
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, Patch: patch, PatchType: &kind}
	write(t, out, review)
}

func (w *webhooks) validate(t *testing.T, out http.ResponseWriter, r *http.Request) {
	t.Helper()
	review := w.review(t, r)
	review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Result: &metav1.Status{Message: "too hot"}}
	write(t, out, review)
}

func (w *webhooks) review(t *testing.T, r *http.Request) *admissionv1.AdmissionReview {
	t.Helper()
	review := &admissionv1.AdmissionReview{}
	if err := json.NewDecoder(r.Body).Decode(review); err != nil {
		t.Errorf("%s: %v", w.archive, err)
	}
	w.asked.Add(1)
	return review
}

func write(t *testing.T, out http.ResponseWriter, answer any) {
	t.Helper()
	out.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(out).Encode(answer); err != nil {
		t.Error(err)
	}
}

// encoded returns bytes in their form inside JSON.
func encoded(t *testing.T, data []byte) string {
	t.Helper()
	text, err := json.Marshal(data)
	if err != nil {
		t.Fatal(err)
	}
	return string(bytes.Trim(text, `"`))
}
