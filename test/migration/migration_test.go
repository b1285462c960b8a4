// Package migration tests the migration of stored objects with a real API server, and reads the objects in its etcd.
package migration

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"refract.dev/conversion/migration"
	"refract.dev/internal/cli"
	"refract.dev/test/harness"
)

// asRefract is an environment variable. If it is set, this test binary acts as the command refract.
const asRefract = "REFRACT_TEST_AS_REFRACT"

// hub is a cluster with definitions.
type hub struct {
	*harness.Env

	config  *rest.Config
	objects dynamic.Interface
}

var (
	// shared is the cluster of all tests that do not stop it.
	shared *hub
	// converter is the webhook of all definitions that have one. Each definition has its own path: /GROUP.
	converter *httptest.Server
	// lenient has the URL paths for which the webhook also converts negative sizes.
	lenient sync.Map

	definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
)

func TestMain(m *testing.M) {
	if os.Getenv(asRefract) != "" {
		os.Exit(cli.Main(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr))
	}
	harness.Main(m, harness.Topology{}, func(_ context.Context, e *harness.Env) (stop func() error, err error) {
		if shared, err = newHub(e); err != nil {
			return nil, err
		}
		converter = httptest.NewTLSServer(http.HandlerFunc(convertReview))
		return func() error {
			converter.Close()
			return nil
		}, nil
	})
}

func newHub(e *harness.Env) (h *hub, err error) {
	h = &hub{Env: e}
	if h.config, err = e.Config("hub"); err != nil {
		return nil, err
	}
	h.objects, err = dynamic.NewForConfig(h.config)
	return h, err
}

// review contains the used fields of a ConversionReview.
type review struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Request    *request  `json:"request,omitempty"`
	Response   *response `json:"response,omitempty"`
}

type request struct {
	UID               string           `json:"uid"`
	DesiredAPIVersion string           `json:"desiredAPIVersion"`
	Objects           []map[string]any `json:"objects"`
}

type response struct {
	UID              string           `json:"uid"`
	ConvertedObjects []map[string]any `json:"convertedObjects"`
	Result           map[string]any   `json:"result"`
}

// convertReview converts between v1, in which size is a number, and v2, in which size is a string with that many
// characters. A negative size cannot be converted to v2.
func convertReview(w http.ResponseWriter, r *http.Request) {
	in := &review{}
	if err := json.NewDecoder(r.Body).Decode(in); err != nil || in.Request == nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	out := &response{UID: in.Request.UID, ConvertedObjects: []map[string]any{}, Result: map[string]any{"status": "Success"}}
	for _, o := range in.Request.Objects {
		if err := convertOne(o, in.Request.DesiredAPIVersion, lenientAt(r.URL.Path)); err != nil {
			out.ConvertedObjects, out.Result = []map[string]any{}, map[string]any{"status": "Failure", "message": err.Error()}
			break
		}
		out.ConvertedObjects = append(out.ConvertedObjects, o)
	}
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(&review{APIVersion: in.APIVersion, Kind: in.Kind, Response: out}); err != nil {
		panic(http.ErrAbortHandler)
	}
}

func lenientAt(path string) bool {
	_, is := lenient.Load(path)
	return is
}

func convertOne(o map[string]any, to string, lenient bool) error {
	o["apiVersion"] = to
	spec, _ := o["spec"].(map[string]any)
	switch size := spec["size"].(type) {
	case float64:
		if size < 0 && !lenient {
			return fmt.Errorf("spec.size: %v is negative", size)
		}
		spec["size"] = strings.Repeat("x", max(0, int(size)))
	case string:
		spec["size"] = len(size)
	}
	return nil
}

// kind is a custom resource of a test.
type kind struct {
	t     *testing.T
	hub   *hub // The shared cluster, unless a test has its own.
	group string
	scope string // Namespaced or Cluster.
	// webhook gives the two versions different schemas.
	webhook bool
}

// mend makes the webhook convert negative sizes. By default it rejects them.
func (k *kind) mend() { lenient.Store("/"+k.group, true) }

func (k *kind) name() string { return "widgets." + k.group }

func (k *kind) gvr(version string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: k.group, Version: version, Resource: "widgets"}
}

// versions describes the versions in a definition.
type versions struct {
	storage   string
	unservedA bool     // True if v1 is not served.
	without   bool     // Whether v1 is missing.
	rules     []string // CEL rules of the spec in both versions.
}

// manifest returns the definition.
func (k *kind) manifest(v versions) *unstructured.Unstructured {
	var list []any
	for _, name := range []string{"v1", "v2"} {
		if name == "v1" && v.without {
			continue
		}
		size := map[string]any{"type": "integer"}
		if name == "v2" && k.webhook {
			size = map[string]any{"type": "string"}
		}
		spec := map[string]any{"type": "object", "properties": map[string]any{"size": size, "note": map[string]any{"type": "string"}}}
		if len(v.rules) > 0 {
			var rules []any
			for _, rule := range v.rules {
				rules = append(rules, map[string]any{"rule": rule})
			}
			spec["x-kubernetes-validations"] = rules
		}
		list = append(list, map[string]any{
			"name": name, "served": name != "v1" || !v.unservedA, "storage": name == v.storage,
			"subresources": map[string]any{"status": map[string]any{}},
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{
				"spec":   spec,
				"status": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true},
			}}},
		})
	}
	spec := map[string]any{
		"group": k.group, "scope": k.scope, "versions": list,
		"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget", "listKind": "WidgetList"},
	}
	if k.webhook {
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: converter.Certificate().Raw})
		spec["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{
			"conversionReviewVersions": []any{"v1"},
			"clientConfig":             map[string]any{"url": converter.URL + "/" + k.group, "caBundle": base64.StdEncoding.EncodeToString(ca)},
		}}
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": k.name()}, "spec": spec,
	}}
}

// install creates a definition with the storage version v1, and waits until it works.
func install(t *testing.T, k kind) *kind {
	t.Helper()
	k.t = t
	if k.scope == "" {
		k.scope = "Namespaced"
	}
	if k.hub == nil {
		k.hub = shared
	}
	k.group = harness.NameOf(t) + ".example.org"
	if _, err := k.hub.objects.Resource(definitions).Create(t.Context(), k.manifest(versions{storage: "v1"}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		is := k.hub.objects.Resource(definitions)
		// An object that cannot be converted cannot be deleted either. After such an error an API server waits long
		// before it tries again, but a change of the definition makes it continue.
		simple := []byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`)
		if _, err := is.Patch(contextAfter(t), k.name(), types.MergePatchType, simple, metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
		if err := is.Delete(contextAfter(t), k.name(), metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		harness.Eventually(t, "the definition is gone", func(ctx context.Context) error {
			_, err := is.Get(ctx, k.name(), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(err, errors.New("it is there"))
		})
	})
	k.settled("v1", "v1", "v2")
	return &k
}

// apply replaces the spec of the definition.
func (k *kind) apply(v versions) error {
	for {
		is, err := k.hub.objects.Resource(definitions).Get(k.t.Context(), k.name(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		is.Object["spec"] = k.manifest(v).Object["spec"]
		_, err = k.hub.objects.Resource(definitions).Update(k.t.Context(), is, metav1.UpdateOptions{})
		if !apierrors.IsConflict(err) {
			return err
		}
	}
}

// mustApply is like apply, and also waits until new objects are stored in the storage version.
func (k *kind) mustApply(v versions) {
	k.t.Helper()
	if err := k.apply(v); err != nil {
		k.t.Fatal(err)
	}
	k.settled(v.storage, v.storage)
}

// settled waits until objects that are created in each version of in are stored in the storage version.
func (k *kind) settled(storage string, in ...string) {
	k.t.Helper()
	for _, version := range in {
		harness.Eventually(k.t, "new objects in "+version+" are stored in "+storage, func(ctx context.Context) error {
			probe := k.object(version, "probe", 1)
			if _, err := k.in(version).Create(ctx, probe, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
				return err
			}
			stored := k.stored()["probe"]
			if err := k.in(version).Delete(ctx, "probe", metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				return err
			}
			if want := k.group + "/" + storage; stored.apiVersion() != want {
				return fmt.Errorf("it is stored in %q, not %s", stored.apiVersion(), want)
			}
			return nil
		})
	}
}

func (k *kind) in(version string) dynamic.ResourceInterface {
	r := k.hub.objects.Resource(k.gvr(version))
	if k.scope == "Cluster" {
		return r
	}
	return r.Namespace("default")
}

// object returns an object in the form of a version.
func (k *kind) object(version, name string, size int64) *unstructured.Unstructured {
	spec := map[string]any{"size": size, "note": name}
	if version == "v2" && k.webhook {
		spec["size"] = strings.Repeat("x", int(size))
	}
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": k.group + "/" + version, "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// create creates objects in v1, with numbers at the end of their names.
func (k *kind) create(prefix string, n int) {
	k.t.Helper()
	var all errgroup.Group
	all.SetLimit(16)
	for i := range n {
		all.Go(func() error {
			_, err := k.in("v1").Create(k.t.Context(), k.object("v1", fmt.Sprintf("%s-%05d", prefix, i), int64(i%7)), metav1.CreateOptions{})
			return err
		})
	}
	if err := all.Wait(); err != nil {
		k.t.Fatal(err)
	}
}

// document is the value of a key in etcd.
type document []byte

func (d document) apiVersion() string {
	var o struct {
		APIVersion string `json:"apiVersion"`
	}
	if json.Unmarshal(d, &o) != nil {
		return ""
	}
	return o.APIVersion
}

// stored returns the documents in etcd, by name.
func (k *kind) stored() map[string]document {
	k.t.Helper()
	prefix := "/registry/" + k.group + "/widgets/"
	all, err := k.hub.View.Stored(k.t.Context(), "hub", prefix)
	if err != nil {
		k.t.Fatal(err)
	}
	out := map[string]document{}
	for key, value := range all {
		out[strings.TrimPrefix(strings.TrimPrefix(key, prefix), "default/")] = value
	}
	return out
}

// storedIn counts the documents in etcd, by version.
func (k *kind) storedIn() map[string]int {
	counts := map[string]int{}
	for _, d := range k.stored() {
		counts[strings.TrimPrefix(d.apiVersion(), k.group+"/")]++
	}
	return counts
}

// listed returns all objects in v2, by name. It retries, because an API server answers 429 for a moment after a change
// of the definition.
func (k *kind) listed() map[string]*unstructured.Unstructured {
	k.t.Helper()
	var list *unstructured.UnstructuredList
	harness.Eventually(k.t, "the objects are listed", func(ctx context.Context) (err error) {
		list, err = k.in("v2").List(ctx, metav1.ListOptions{})
		return err
	})
	out := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		out[list.Items[i].GetName()] = &list.Items[i]
	}
	return out
}

// definition returns status.storedVersions of the definition, and its annotation with the state of a migration.
func (k *kind) definition() (stored []string, annotation string) {
	k.t.Helper()
	is, err := k.hub.objects.Resource(definitions).Get(k.t.Context(), k.name(), metav1.GetOptions{})
	if err != nil {
		k.t.Fatal(err)
	}
	stored, _, err = unstructured.NestedStringSlice(is.Object, "status", "storedVersions")
	if err != nil {
		k.t.Fatal(err)
	}
	return stored, is.GetAnnotations()[migration.Annotation]
}

// options returns the options of a migration to v2 at full speed.
func (k *kind) options() migration.Options {
	return migration.Options{Config: k.hub.config, Name: k.name(), To: "v2"}
}

// migrate migrates to v2.
func (k *kind) migrate(o migration.Options) *migration.Result {
	k.t.Helper()
	r, err := migration.Run(k.t.Context(), o)
	if err != nil {
		k.t.Fatal(err)
	}
	return r
}

// wantMigrated checks that etcd and the definition have only v2.
func (k *kind) wantMigrated(objects int) {
	k.t.Helper()
	if got := k.storedIn(); got["v2"] != objects || len(got) != min(1, objects) {
		k.t.Errorf("want %d objects stored in v2, and none in another, got %v", objects, got)
	}
	if stored, annotation := k.definition(); !slices.Equal(stored, []string{"v2"}) || annotation != "" {
		k.t.Errorf("want storedVersions [v2] and no annotation, got %v and %q", stored, annotation)
	}
}

// same returns the object without the fields that every write changes.
func same(o *unstructured.Unstructured) map[string]any {
	o = o.DeepCopy()
	o.SetResourceVersion("")
	return o.Object
}

// applied applies an object in a version as a manager.
func (k *kind) applied(version, name, manager string, spec map[string]any) {
	k.t.Helper()
	body, err := json.Marshal(map[string]any{
		"apiVersion": k.group + "/" + version, "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": spec,
	})
	if err != nil {
		k.t.Fatal(err)
	}
	if _, err := k.in(version).Patch(k.t.Context(), name, types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: manager}); err != nil {
		k.t.Fatal(err)
	}
}
