package policy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/conversion/structural"
	"refract.dev/internal/golden"
)

// TestGolden compiles the policy in each archive in testdata, and converts the objects. Each archive begins with a
// description of its case.
//
// The file schemas.yaml has the schema of spec for each version of the kind Thing in example.com; the word properties
// is omitted. The file policy.yaml is the spec of a policy. Each object*.yaml is converted to each other version and
// back. If an object does not come back unchanged, the archive has a want/back-*.yaml.
func TestGolden(t *testing.T) {
	t.Parallel()
	golden.Run(t, "testdata/*.txtar", func(t *testing.T, archive *txtar.Archive) []txtar.File {
		t.Parallel()
		return run(t, golden.Texts(golden.Inputs(archive)))
	})
}

// run returns the files that the archive should contain.
func run(t *testing.T, in map[string]string) []txtar.File {
	t.Helper()
	spec := policySpec(t, in)
	before := spec.DeepCopy()
	p, findings := Compile(spec, definition(t, in))
	if diff := cmp.Diff(before, spec); diff != "" {
		t.Errorf("Compile() changed the policy: -before, +after:\n%s", diff)
	}
	var found strings.Builder
	for _, f := range findings {
		fmt.Fprintf(&found, "%s %s: %s\n", f.Severity, f.Rule, f)
	}
	files := []txtar.File{{Name: "want/findings.txt", Data: []byte(found.String())}}
	if p == nil {
		return files
	}
	e, err := convert.New(p.Resource())
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range in {
		if strings.HasPrefix(name, "object") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		files = append(files, there(t, e, p, name, in[name])...)
	}
	return files
}

func policySpec(t *testing.T, in map[string]string) *refractv1alpha1.ConversionPolicySpec {
	t.Helper()
	spec := &refractv1alpha1.ConversionPolicySpec{}
	if err := yaml.UnmarshalStrict([]byte(in["policy.yaml"]), spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

// compiled returns the policy of an archive, which must compile.
func compiled(t *testing.T, in map[string]string) (*Policy, *structural.Definition) {
	t.Helper()
	def := definition(t, in)
	p, findings := Compile(policySpec(t, in), def)
	if p == nil {
		t.Fatal(findings)
	}
	return p, def
}

// there returns the object in each other version. If the object that comes back differs, there also returns it.
func there(t *testing.T, e *convert.Engine, p *Policy, name, text string) []txtar.File {
	t.Helper()
	var obj struct {
		APIVersion string `json:"apiVersion"`
	}
	if err := yaml.Unmarshal([]byte(text), &obj); err != nil {
		t.Fatal(err)
	}
	object, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	group, from, _ := strings.Cut(obj.APIVersion, "/")
	var files []txtar.File
	for _, to := range p.Versions() {
		if to == from {
			continue
		}
		out, err := e.Convert(object, group+"/"+to)
		if err != nil {
			files = append(files, txtar.File{Name: "want/" + to + "-" + name, Data: []byte(err.Error() + "\n")})
			continue
		}
		files = append(files, txtar.File{Name: "want/" + to + "-" + name, Data: toYAML(t, out)})
		back, err := e.Convert(out, obj.APIVersion)
		if err != nil {
			t.Errorf("%s from %s: %v", name, to, err)
			continue
		}
		if cmp.Diff(parse(t, object), parse(t, back)) != "" {
			files = append(files, txtar.File{Name: "want/back-from-" + to + "-" + name, Data: toYAML(t, back)})
		}
	}
	return files
}

func parse(t *testing.T, object []byte) map[string]any {
	t.Helper()
	var obj map[string]any
	if err := json.Unmarshal(object, &obj); err != nil {
		t.Fatalf("%v:\n%s", err, object)
	}
	return obj
}

func toYAML(t *testing.T, object []byte) []byte {
	t.Helper()
	out, err := yaml.JSONToYAML(object)
	if err != nil {
		t.Fatalf("%v:\n%s", err, object)
	}
	return out
}

// definition returns the definition of an archive.
func definition(t *testing.T, in map[string]string) *structural.Definition {
	t.Helper()
	def, err := define(in["schemas.yaml"])
	if err != nil {
		t.Fatal(err)
	}
	return def
}

// define returns a definition of the kind Thing in example.com. The schemas are those of spec, by version. The first
// version is the storage version.
func define(schemas string) (*structural.Definition, error) {
	var of map[string]any
	if err := yaml.Unmarshal([]byte(schemas), &of); err != nil {
		return nil, err
	}
	var versions []any
	for line := range strings.Lines(schemas) {
		name, _, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, " ") {
			continue
		}
		spec, _ := of[name].(map[string]any)
		if spec == nil {
			spec = map[string]any{}
		}
		if spec["type"] == nil && spec["properties"] == nil {
			spec = map[string]any{"properties": spec}
		}
		spec["type"] = "object"
		versions = append(versions, map[string]any{
			"name": name, "served": true, "storage": len(versions) == 0,
			"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "properties": map[string]any{"spec": spec}}},
		})
	}
	return structural.New(map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "things.example.com"},
		"spec": map[string]any{
			"group": "example.com", "scope": "Namespaced", "versions": versions,
			"names": map[string]any{"plural": "things", "kind": "Thing", "singular": "thing", "listKind": "ThingList"},
		},
	})
}
