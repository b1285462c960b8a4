package conversion

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/kit/webhook/conversion"
	"refract.dev/test/harness"
)

// keeping changes a policy: the conversion fails for scripts that begin with "bad", and onError is Keep.
func keeping(spec *refractv1alpha1.ConversionPolicySpec) {
	spec.OnError = refractv1alpha1.ConversionKeep
	field(spec, "spec.script").ToHub = `value.startsWith("bad") ? value.split(",")[7].split(",") : value.split(",")`
}

// bad are the names of the objects that cannot be converted.
var bad = []string{"bad-1", "bad-2", "bad-3"}

// TestKeep has a thousand objects; three of them have a value that cannot be converted to v1. Lists in v1 still
// succeed. In v1, an annotation marks the three objects, and clients can delete but not change them. In v1alpha1, the
// three are unchanged.
func TestKeep(t *testing.T) {
	t.Parallel()
	s := begin(t, "widget", withStatus)
	p := s.policy("widget", keeping)
	s.serve(p)
	s.createMany()
	before := map[string]string{}
	for _, name := range bad {
		before[name] = string(s.bytes(name))
	}

	list := &unstructured.UnstructuredList{}
	list.SetAPIVersion(s.group + "/" + v1)
	list.SetKind(s.kind + "List")
	s.must(s.api.List(t.Context(), list, client.InNamespace(ns)))
	var lacking []string
	for i := range list.Items {
		if _, lacks := list.Items[i].GetAnnotations()[convert.Unconverted]; lacks {
			lacking = append(lacking, list.Items[i].GetName())
		}
	}
	if len(list.Items) != 1000 || !slices.Equal(lacking, bad) {
		t.Errorf("%d objects are listed, and %v are marked as unconverted: want 1000, and %v", len(list.Items), lacking, bad)
	}
	s.wantSpec("It lacks only the value that cannot be converted.", v1, bad[0], `{caption: T, retries: 3}`)
	s.untilUnconverted(p.Name, bad...)
	s.counted()

	s.refusedWhereItLacks(bad[0])
	s.deletable()
	for _, name := range bad {
		s.wantSpec("It is unchanged.", alpha, name, `{script: "bad,x", title: T}`)
	}
	if diff := before[bad[1]]; diff != string(s.bytes(bad[1])) {
		t.Errorf("The stored object has changed: %s", s.bytes(bad[1]))
	}

	// If such an object is stored in v1, an annotation keeps the value. A read in v1alpha1 restores the value from the
	// annotation.
	s.storeAs(v1)
	s.must(s.patch(alpha, bad[2], `{"metadata":{"labels":{"written":"as-v1"}}}`))
	if stored := string(s.bytes(bad[2])); !strings.Contains(stored, convert.Unconverted) || !strings.Contains(stored, `/v1"`) {
		t.Errorf("It is not stored as in v1: %s", stored)
	}
	s.wantSpec("It is restored from the annotation.", alpha, bad[2], `{script: "bad,x", title: T}`)
	harness.WantStatus(s.T, "Without a conversion, it cannot be changed either.",
		s.patch(v1, bad[2], `{"spec":{"steps":["x"]}}`), 422, "not all of it can be converted to v1", "spec.script")

	s.must(s.amend(p.Name, func(spec *refractv1alpha1.ConversionPolicySpec) { forwards(spec); mended(spec) }))
	s.untilReady(p.Name)
	s.until("the corrected policy converts the kept values", func(ctx context.Context) error {
		is, err := s.tryGet(ctx, v1, bad[0])
		if err == nil && is.GetAnnotations()[convert.Unconverted] != "" {
			err = errors.New("it is still marked as unconverted")
		}
		return err
	})
	s.must(s.patch(alpha, bad[2], `{"metadata":{"labels":{"written":"again"}}}`))
	for _, name := range bad {
		s.wantSpec("It has all values.", v1, name, `{steps: [bad, x], caption: T, retries: 3}`)
		s.wantSpec("It is unchanged.", alpha, name, `{script: "bad,x", title: T}`)
	}
	s.untilUnconverted(p.Name)
}

func mended(spec *refractv1alpha1.ConversionPolicySpec) {
	field(spec, "spec.script").ToHub = `value.split(",")`
}

// createMany creates a thousand objects, some of which cannot be converted.
func (s *scene) createMany() {
	s.Helper()
	names := make(chan string)
	errs := make([]error, 16)
	var all sync.WaitGroup
	for i := range errs {
		all.Go(func() {
			for name := range names {
				script := "a,b"
				if slices.Contains(bad, name) {
					script = "bad,x"
				}
				u := s.empty(alpha, name)
				u.Object["spec"] = map[string]any{"script": script, "title": "T"}
				if err := s.api.Create(s.Context(), u); err != nil && errs[i] == nil {
					errs[i] = err
				}
			}
		})
	}
	for i := range 997 {
		names <- fmt.Sprintf("good-%03d", i)
	}
	for _, name := range bad {
		names <- name
	}
	close(names)
	all.Wait()
	s.must(errors.Join(errs...))
}

// untilUnconverted waits until the status of a policy names these objects.
func (s *scene) untilUnconverted(policy string, names ...string) {
	s.Helper()
	s.until(fmt.Sprintf("the status names %v", names), func(ctx context.Context) error {
		for _, name := range bad { // A read updates the status.
			if _, err := s.tryGet(ctx, v1, name); err != nil {
				return err
			}
		}
		p := &refractv1alpha1.ConversionPolicy{}
		if err := s.api.Get(ctx, client.ObjectKey{Name: policy}, p); err != nil {
			return err
		}
		var got []string
		for _, o := range p.Status.Unconverted {
			if o.Namespace == ns && o.To == v1 { // The status names deleted objects for some more time.
				got = append(got, o.Name)
			}
			if o.From != alpha || !strings.Contains(o.Message, "spec.script: ") {
				return fmt.Errorf("the entry is %s", asJSON(o))
			}
		}
		if slices.Sort(got); !slices.Equal(got, names) {
			return fmt.Errorf("the status names %s", asJSON(p.Status.Unconverted))
		}
		return nil
	})
}

// counted fails the test unless the metrics of the replicas count the failed conversions.
func (s *scene) counted() {
	s.Helper()
	lines, err := s.replicas.metrics(s.Context(), "refract_conversion_unconverted_objects_total", `from="`+alpha+`"`, `to="`+v1+`"`)
	s.must(err)
	total := 0.0
	for _, line := range lines {
		n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		s.must(err)
		total += n
	}
	if total < float64(len(bad)) {
		s.Errorf("the metrics count %v failed conversions, want %d or more: %q", total, len(bad), lines)
	}
}

// refusedWhereItLacks tries to change the spec of an object in v1, which lacks a value that cannot be converted.
func (s *scene) refusedWhereItLacks(name string) {
	s.Helper()
	const refusal = "not all of it can be converted to v1, and what lacks is kept in its annotations"
	for what, patch := range map[string]string{
		"The missing value is written.": `{"spec":{"steps":["x"]}}`,
		"Another value is written.":     `{"spec":{"caption":"U"}}`,
		"The mark is removed.":          `{"metadata":{"annotations":{"refract.dev/unconverted":null}}}`,
		"The kept value is replaced.":   `{"metadata":{"annotations":{"refract.dev/complement":"{}"}}}`,
		"A new field is written.":       `{"extra":{}, "spec":{"note":"n"}}`,
	} {
		harness.WantStatus(s.T, what, s.patch(v1, name, patch), 422, refusal, "spec.script", "Change it in its original version")
	}
	forged := s.object(v1, "forged", `{caption: T}`)
	forged.SetAnnotations(map[string]string{
		convert.Unconverted: `{"v1alpha1":"x"}`, convert.Annotation: `{"v1alpha1":{"spec.script":{"value":"z","failed":true}}}`,
	})
	harness.WantStatus(s.T, "The mark is forged in a new object.", s.api.Create(s.Context(), forged), 422, refusal)

	s.must(s.patch(v1, name, `{"metadata":{"labels":{"a":"b"}}}`))
	s.must(s.status(v1, name, `{"status":{"phase":"seen"}}`))
	if got, _, _ := unstructured.NestedString(s.get(alpha, name).Object, "status", "phase"); got != "seen" {
		s.Errorf("the phase is %q, want seen", got)
	}
	s.must(s.patch(alpha, name, `{"spec":{"title":"U"}}`))
	s.must(s.patch(alpha, name, `{"spec":{"title":"T"}}`))
}

// status merges a patch into the status of an object.
func (s *scene) status(version, name, patch string) error {
	return s.api.Status().Patch(s.Context(), s.empty(version, name), client.RawPatch(types.MergePatchType, []byte(patch)))
}

// withStatus adds the subresource status to all versions of a definition.
func withStatus(crd *apiextensionsv1.CustomResourceDefinition) {
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
		crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["status"] = apiextensionsv1.JSONSchemaProps{
			Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"phase": {Type: "string"}},
		}
	}
}

// deletable deletes the namespace of an object that cannot be converted. The object has a finalizer, and the
// finalizer's controller uses v1, which lacks the value.
func (s *scene) deletable() {
	s.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: strings.ReplaceAll(s.group, ".", "-")}}
	s.must(s.api.Create(s.Context(), namespace))
	u := s.object(alpha, "bad-4", `{script: "bad,y"}`)
	u.SetNamespace(namespace.Name)
	u.SetFinalizers([]string{"example.org/held"})
	s.must(s.api.Create(s.Context(), u))
	s.must(s.api.Delete(s.Context(), namespace))
	is := s.empty(v1, u.GetName())
	is.SetNamespace(namespace.Name)
	s.until("the object is being deleted", func(ctx context.Context) error {
		if err := s.api.Get(ctx, client.ObjectKeyFromObject(is), is); err != nil {
			return err
		}
		if is.GetDeletionTimestamp() == nil {
			return errors.New("it has no deletion timestamp yet")
		}
		return nil
	})
	forged := `{"metadata":{"annotations":{"refract.dev/complement":"{\"v1alpha1\":{\"\":{\"value\":{},\"failed\":true}}}"}}}`
	harness.WantStatus(s.T, "The kept value cannot be forged during the deletion, either.",
		s.api.Patch(s.Context(), is, client.RawPatch(types.MergePatchType, []byte(forged))), 422, "not all of it can be converted to v1")
	s.must(s.api.Patch(s.Context(), is, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	was := s.empty(alpha, u.GetName())
	was.SetNamespace(namespace.Name)
	s.until("the object is gone", func(ctx context.Context) error { return s.gone(ctx, was) })
}

// crates returns the conversions of a crate in Go. They convert whole objects, so their errors name no field.
func crates(group string) convert.Resource {
	toHub := func(object map[string]any) (map[string]any, error) {
		spec, _ := object["spec"].(map[string]any)
		list, _ := spec["bottles"].([]any)
		for i, name := range list {
			if name == "bad" {
				return nil, convert.ErrorAt("spec.bottles", errors.New("nobody fills bad bottles"))
			}
			list[i] = map[string]any{"name": name, "quantity": int64(1)}
		}
		return object, nil
	}
	toSpoke := func(object map[string]any) (map[string]any, error) {
		spec, _ := object["spec"].(map[string]any)
		list, _ := spec["bottles"].([]any)
		for i, bottle := range list {
			named, _ := bottle.(map[string]any)
			list[i] = named["name"]
		}
		return object, nil
	}
	return convert.Resource{
		Group: group, Kind: "Crate", Hub: v1, OnError: convert.Keep,
		Spokes: []convert.Spoke{{Version: alpha, Conversions: []convert.Conversion{convert.Unstructured(toHub, toSpoke)}}},
	}
}

// TestKeepInGo: a webhook in Go keeps an object that it cannot convert.
func TestKeepInGo(t *testing.T) {
	t.Parallel()
	s := begin(t, "crate", withStatus, func(crd *apiextensionsv1.CustomResourceDefinition) {
		for i := range crd.Spec.Versions {
			crd.Spec.Versions[i].Storage = crd.Spec.Versions[i].Name == alpha
		}
	})
	engine, err := convert.New(crates(s.group))
	s.must(err)
	server := httptest.NewTLSServer(conversion.Handler(engine, conversion.Options{}))
	t.Cleanup(server.Close)
	s.redefine(func(crd *apiextensionsv1.CustomResourceDefinition) {
		crd.Spec.Conversion = nobody(server.URL)
		crd.Spec.Conversion.Webhook.ClientConfig.CABundle = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	})
	s.create(alpha, "good", `{bottles: [a]}`)
	s.create(alpha, "bad", `{bottles: [a, bad]}`)
	s.until("the API server uses the webhook", func(ctx context.Context) error {
		is, err := s.tryGet(ctx, v1, "bad")
		if err == nil && is.GetAnnotations()[convert.Unconverted] == "" {
			err = fmt.Errorf("the object is %s", asJSON(is))
		}
		return err
	})
	s.must(s.list(v1))
	s.wantSpec("It is converted.", v1, "good", `{bottles: [{name: a, quantity: 1}]}`)
	s.wantSpec("None of its fields was converted.", v1, "bad", `{}`)
	harness.WantStatus(s.T, "It cannot be changed in the version without its fields.", s.patch(v1, "bad", `{"spec":{"bottles":[]}}`), 422,
		"not all of it can be converted to v1", "nobody fills bad bottles")
	harness.WantStatus(s.T, "Its status cannot be changed there either.", s.status(v1, "bad", `{"status":{"phase":"x"}}`), 422, "not all of it can be converted to v1")
	s.must(s.patch(v1, "bad", `{"metadata":{"labels":{"a":"b"}}}`))
	s.wantSpec("It is unchanged.", alpha, "bad", `{bottles: [a, bad]}`)
	s.must(s.patch(alpha, "bad", `{"spec":{"bottles":["b"]}}`))
	s.wantSpec("The corrected object is converted.", v1, "bad", `{bottles: [{name: b, quantity: 1}]}`)
}
