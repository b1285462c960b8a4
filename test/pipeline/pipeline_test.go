// Package pipeline compares what refract.dev/structural/pipeline says becomes of an
// object with what becomes of it on a real API server: what is stored in etcd, what
// is read, and what is refused.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"

	"refract.dev/internal/playground"
	"refract.dev/structural"
	"refract.dev/structural/pipeline"
)

// patience is how long anything may take. A machine that is busy is slow.
const patience = 90 * time.Second

const (
	group  = "evolution.example.com"
	prefix = "/registry/" + group + "/ovens/"
)

var (
	hub    *playground.Playground
	client dynamic.Interface

	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	mutating    = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "mutatingwebhookconfigurations"}
	validating  = schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: "validatingwebhookconfigurations"}
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "pipeline:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	assets, err := playground.Assets("../../bin/refract")
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "refract-pipeline-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	hub, err = playground.Start(context.Background(), playground.Options{Dir: filepath.Join(dir, "hub"), Assets: assets})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, hub.Stop()) }()
	cfg, err := clientcmd.BuildConfigFromFlags("", hub.Hub().Kubeconfig)
	if err != nil {
		return 0, err
	}
	cfg.QPS = -1
	if client, err = dynamic.NewForConfig(cfg); err != nil {
		return 0, err
	}
	return m.Run(), nil
}

// TestAgrees runs the archives of structural/pipeline, in which hooks answer what
// stands there, and has real webhooks answer the same to a real API server.
func TestAgrees(t *testing.T) {
	files, err := filepath.Glob("../../structural/pipeline/testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			in := map[string]string{}
			for _, f := range archive.Files {
				in[f.Name] = string(f.Data)
			}
			agree(t, in)
		})
	}
}

func agree(t *testing.T, in map[string]string) {
	t.Helper()
	crd := parse(t, in["crd.yaml"])
	object := parse(t, in["object.yaml"])
	read := strings.TrimSpace(in["read"])
	definition, err := structural.New(crd)
	if err != nil {
		t.Fatal(err)
	}
	hooks := serve(t, in)
	trace, err := pipeline.Run(definition, object, read, hooks.offline(t))
	if err != nil {
		t.Fatal(err)
	}
	hooks.install(t, crd)

	stored, last := step(trace, pipeline.Store), trace.Steps[len(trace.Steps)-1]
	version := strings.TrimPrefix((&unstructured.Unstructured{Object: object}).GetAPIVersion(), group+"/")
	_, err = ovens(version).Create(t.Context(), &unstructured.Unstructured{Object: object}, metav1.CreateOptions{})
	if last.Phase == pipeline.Read && last.Refused() && version == read {
		t.Fatal("an archive whose create stores the object and cannot answer is not handled")
	}
	if stored == nil {
		refused(t, &last, err)
		return
	}
	if err != nil {
		t.Fatalf("create: %v; the pipeline stores it", err)
	}
	etcd, err := hub.Stored(t.Context(), hub.Hub().Name, prefix)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "what is stored", stored.Object, parse(t, string(etcd[prefix+"default/old"])))
	got, err := ovens(read).Get(t.Context(), "old", metav1.GetOptions{})
	if trace.Refused() {
		refused(t, &last, err)
		return
	}
	if err != nil {
		t.Fatalf("get: %v; the pipeline reads it", err)
	}
	same(t, "what is read", trace.Object(), got.Object)
}

func ovens(version string) dynamic.ResourceInterface {
	return client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: "ovens"}).Namespace("default")
}

// step returns the first step of this name; nil if there is none.
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
		t.Fatalf("the API server takes what the pipeline refuses: %v", last.Findings)
	}
	for _, f := range last.Findings {
		switch {
		case f.Severity != structural.Error:
		case f.Rule == pipeline.RuleNotServed:
			if !apierrors.IsNotFound(err) {
				t.Errorf("error %v, want one of what is not found", err)
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

// same compares objects without what an API server makes up.
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
