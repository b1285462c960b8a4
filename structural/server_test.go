package structural

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/crdserverscheme"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresourcedefinition"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"
)

// TestServerSaysTheSame compares, for what is in testdata, with the strategies
// that the API server itself validates by.
func TestServerSaysTheSame(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	compared := 0
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		in := texts(slices.DeleteFunc(archive.Files, wanted))
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			m, err := decode(definition(t, in, ""))
			if err != nil {
				t.Skip("no definition of v1")
			}
			if old := definition(t, in, "old-"); old != nil {
				compareDefinitionUpdate(t, m, old)
				compared++
				return
			}
			strategy := customresourcedefinition.NewStrategy(runtime.NewScheme())
			crd := m.internal.DeepCopy()
			strategy.PrepareForCreate(context.Background(), crd)
			if diff := cmp.Diff(sentences(strategy.Validate(context.Background(), crd)), sentencesOf(findingsBefore(t, m))); diff != "" {
				t.Errorf("the definition: -server, +here:\n%s", diff)
			}
			compared++
			d, err := New(definition(t, in, ""))
			if err != nil {
				return
			}
			for name, text := range in {
				if strings.HasPrefix(name, "object") {
					compareObject(t, d, parse(t, text), in["old.yaml"])
				}
			}
		})
	}
	if compared < 30 {
		t.Errorf("only %d definitions were compared", compared)
	}
}

// findingsBefore returns what is found of a new definition, with the paths of the
// server's internal form.
func findingsBefore(t *testing.T, m manifest) []Finding {
	t.Helper()
	var all []Finding
	for _, f := range m.create() {
		for _, h := range hoisted {
			if slices.Contains(hoistedIn(m), h.internal) {
				f.Path = unplaced(f.Path, h.version, h.internal)
				f.Message = unplaced(f.Message, h.version, h.internal)
			}
		}
		f.Path = strings.NewReplacer(
			"spec.conversion.webhook.clientConfig", "spec.conversion.webhookClientConfig",
			"spec.conversion.webhook.conversionReviewVersions", "spec.conversion.conversionReviewVersions",
		).Replace(f.Path)
		all = append(all, f)
	}
	return arrange(all)
}

func hoistedIn(m manifest) []string {
	var names []string
	if m.internal.Spec.Validation != nil {
		names = append(names, "spec.validation")
	}
	if m.internal.Spec.Subresources != nil {
		names = append(names, "spec.subresources")
	}
	return names
}

// unplaced replaces spec.versions[N].FIELD.
func unplaced(text, name, internal string) string {
	for _, version := range []string{"[0].", "[1]."} {
		text = strings.ReplaceAll(text, "spec.versions"+version+name+".", internal+".")
	}
	return text
}

func compareDefinitionUpdate(t *testing.T, m manifest, oldManifest map[string]any) {
	t.Helper()
	old, err := decode(oldManifest)
	if err != nil {
		t.Fatal(err)
	}
	here := m.update(old) // Completes both.
	strategy := customresourcedefinition.NewStrategy(runtime.NewScheme())
	server := strategy.ValidateUpdate(context.Background(), m.internal.DeepCopy(), old.internal.DeepCopy())
	if diff := cmp.Diff(sentences(server), sentencesOf(here)); diff != "" {
		t.Errorf("the new definition: -server, +here:\n%s", diff)
	}
}

func compareObject(t *testing.T, d *Definition, obj map[string]any, oldText string) {
	t.Helper()
	v, err := d.VersionOf(obj)
	if err != nil {
		t.Fatal(err)
	}
	r, err := v.Decode(obj)
	if err != nil {
		return
	}
	ctx := context.Background()
	strategy := serverStrategy(t, v)
	if oldText == "" {
		full := &unstructured.Unstructured{Object: v.completed(r.Object, nil)}
		if diff := cmp.Diff(sentences(strategy.Validate(ctx, full)), sentencesOf(v.Validate(r.Object))); diff != "" {
			t.Errorf("the object: -server, +here:\n%s", diff)
		}
		return
	}
	old := parse(t, oldText)
	fullOld := &unstructured.Unstructured{Object: v.completed(old, nil)}
	full := &unstructured.Unstructured{Object: v.completed(r.Object, fullOld.Object)}
	if diff := cmp.Diff(sentences(rest.ValidateUpdate(ctx, full, fullOld, strategy)), sentencesOf(v.ValidateUpdate(r.Object, old))); diff != "" {
		t.Errorf("the update: -server, +here:\n%s", diff)
	}
}

// serverStrategy returns the server's own strategy for a version.
func serverStrategy(t *testing.T, v *Version) rest.RESTCreateUpdateStrategy {
	t.Helper()
	validator, _, err := validation.NewSchemaValidator(v.Schema())
	if err != nil {
		t.Fatal(err)
	}
	var status *apiextensions.CustomResourceSubresourceStatus
	var scale *apiextensions.CustomResourceSubresourceScale
	if v.StatusSubresource() {
		status = &apiextensions.CustomResourceSubresourceStatus{}
	}
	if s := v.v1.Subresources; s != nil && s.Scale != nil {
		scale = &apiextensions.CustomResourceSubresourceScale{}
		if err := apiextensionsv1.Convert_v1_CustomResourceSubresourceScale_To_apiextensions_CustomResourceSubresourceScale(s.Scale, scale, nil); err != nil {
			t.Fatal(err)
		}
	}
	kind := schema.GroupVersionKind{Group: v.crd.Spec.Group, Version: v.Name(), Kind: v.crd.Spec.Names.Kind}
	return customresource.NewStrategy(crdserverscheme.NewUnstructuredObjectTyper(), v.crd.Spec.Scope == apiextensionsv1.NamespaceScoped, kind,
		validator, nil, v.Structural(), status, scale, nil)
}

// sentences returns errors as the server prints them, sorted, each once.
func sentences(errs field.ErrorList) []string {
	all := make([]string, 0, len(errs))
	for _, err := range errs {
		all = append(all, strings.TrimPrefix(err.Error(), "<nil>: "))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func sentencesOf(found []Finding) []string {
	all := make([]string, 0, len(found))
	for _, f := range found {
		all = append(all, f.String())
	}
	slices.Sort(all)
	return slices.Compact(all)
}
