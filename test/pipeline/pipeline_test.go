// Package pipeline compares the predictions of refract.dev/conversion/structural/pipeline with the behavior of a real
// API server: which objects it stores, returns and rejects.
package pipeline

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/pipeline"
	"refract.dev/test/harness"
)

// group is the API group in the archives. This test uses a different subgroup for each archive, and so a separate
// definition.
const group = "evolution.example.com"

var (
	env    *harness.Env
	client dynamic.Interface

	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	mutating    = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	validating  = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Topology{}, func(_ context.Context, e *harness.Env) (func() error, error) {
		env = e
		cfg, err := e.Config("hub")
		if err != nil {
			return nil, err
		}
		client, err = dynamic.NewForConfig(cfg)
		return nil, err
	})
}

// TestAgrees runs the archives of structural/pipeline twice: with hooks that return the results in the archive, and
// with a real API server whose webhooks return the same results.
func TestAgrees(t *testing.T) {
	files, err := filepath.Glob("../../conversion/structural/pipeline/testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	// All definitions are installed first, because an API server delays each creation of an object by two seconds while
	// its definition is younger than two seconds.
	var all []*webhooks
	for _, file := range files {
		all = append(all, install(t, file))
	}
	for _, hooks := range all {
		t.Run(hooks.archive, func(t *testing.T) {
			t.Parallel()
			agree(t, hooks)
		})
	}
}

// read returns the files of an archive, with another group.
func read(t *testing.T, file, another string) map[string]string {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]string{}
	for _, f := range archive.Files {
		in[f.Name] = strings.ReplaceAll(string(f.Data), group, another)
	}
	return in
}

func agree(t *testing.T, hooks *webhooks) {
	t.Helper()
	object := parse(t, hooks.in["object.yaml"])
	read := strings.TrimSpace(hooks.in["read"])
	definition, err := structural.New(parse(t, hooks.in["crd.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	trace, err := pipeline.Run(definition, object, read, hooks.offline(t))
	if err != nil {
		t.Fatal(err)
	}
	hooks.wait(t)

	stored, last := step(trace, pipeline.Store), trace.Steps[len(trace.Steps)-1]
	version := strings.TrimPrefix((&unstructured.Unstructured{Object: object}).GetAPIVersion(), hooks.group+"/")
	_, err = hooks.ovens(version).Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if last.Phase == pipeline.Read && last.Refused() && version == read {
		t.Fatal("an archive whose create stores the object and cannot answer is not handled")
	}
	if stored == nil {
		refused(t, &last, err)
		return
	}
	if err != nil {
		t.Fatalf("create: %v; the pipeline stores the object", err)
	}
	key := "/registry/" + hooks.group + "/ovens/default/old"
	etcd, err := env.View.Stored(t.Context(), "hub", key)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "stored object", stored.Object, parse(t, string(etcd[key])))
	got, err := hooks.ovens(read).Get(t.Context(), "old", metav1.GetOptions{})
	if trace.Refused() {
		refused(t, &last, err)
		return
	}
	if err != nil {
		t.Fatalf("get: %v; the pipeline returns the object", err)
	}
	same(t, "returned object", trace.Object(), got.Object)
}

func (w *webhooks) ovens(version string) dynamic.ResourceInterface {
	return client.Resource(schema.GroupVersionResource{Group: w.group, Version: version, Resource: "ovens"}).Namespace("default")
}

// step returns the first step with this name, or nil.
func step(trace *pipeline.Trace, name string) *pipeline.Step {
	for i := range trace.Steps {
		if trace.Steps[i].Name == name {
			return &trace.Steps[i]
		}
	}
	return nil
}

// refused compares the error of a client with the findings of the last step.
func refused(t *testing.T, last *pipeline.Step, err error) {
	t.Helper()
	if err == nil {
		t.Fatalf("the API server accepts the object that the pipeline rejects: %v", last.Findings)
	}
	for _, f := range last.Findings {
		switch {
		case f.Severity != structural.Error:
		case f.Rule == pipeline.RuleNotServed:
			if !apierrors.IsNotFound(err) {
				t.Errorf("error %v, want NotFound", err)
			}
		case f.Rule == pipeline.RuleMalformed:
			if !apierrors.IsBadRequest(err) {
				t.Errorf("error %v, want a bad request", err)
			}
		case !strings.Contains(err.Error(), f.Message):
			t.Errorf("error %v, want %s", err, f.Message)
		}
	}
}

// same compares objects without the fields that an API server generates.
func same(t *testing.T, what string, want, got map[string]any) {
	t.Helper()
	got = runtime.DeepCopyJSON(got)
	for _, key := range []string{"uid", "creationTimestamp", "generation", "managedFields", "resourceVersion"} {
		unstructured.RemoveNestedField(got, "metadata", key)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: -pipeline, +API server:\n%s", what, diff)
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSONStrict([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := utiljson.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
