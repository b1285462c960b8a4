package policy_test

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/conversion/policy"
	"refract.dev/conversion/structural"
	"refract.dev/conversion/verify"
)

var updateExamples = flag.Bool("update-examples", false, "write what the objects of the examples convert to into testdata/examples")

// example is a policy in the folder examples, with its definition and with objects in all versions.
type example struct {
	name, crd, policy string
	objects           []string
}

// examples returns the policies in examples/conversion, and that for pizzas.
func examples(t *testing.T) []example {
	t.Helper()
	const root = "../../examples"
	policies, err := filepath.Glob(root + "/conversion/*/policy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := []example{{
		name: "pizza", crd: root + "/pizza/manifests/crds/pizza-crd.yaml", policy: root + "/pizza/policy.yaml",
		objects: []string{root + "/evolution/pizza/objects.yaml", root + "/evolution/pizza/margherita.yaml"},
	}}
	for _, file := range policies {
		dir := filepath.Dir(file)
		all = append(all, example{
			name: filepath.Base(dir), crd: filepath.Join(dir, "crd.yaml"), policy: file,
			objects: []string{filepath.Join(dir, "objects.yaml")},
		})
	}
	if len(all) != 13 {
		t.Fatalf("there are %d examples, want 13", len(all))
	}
	return all
}

// compiled is an example that is ready to convert objects.
type compiled struct {
	definition *structural.Definition
	policy     *policy.Policy
	subject    verify.Subject
}

// compile compiles the example. The test fails if there is an error.
func (e *example) compile(t *testing.T) compiled {
	t.Helper()
	var crd map[string]any
	read(t, e.crd, &crd)
	definition, err := structural.New(crd)
	if err != nil {
		t.Fatal(err)
	}
	written := &refractv1alpha1.ConversionPolicy{}
	read(t, e.policy, written)
	p, found := policy.Compile(&written.Spec, definition)
	for _, f := range found {
		if f.Severity == structural.Error {
			t.Errorf("%s: %s", e.policy, f)
		}
	}
	if p == nil {
		t.FailNow()
	}
	engine, err := convert.New(p.Resource())
	if err != nil {
		t.Fatal(err)
	}
	return compiled{definition, p, verify.Engine(engine)}
}

// read decodes a YAML document. Unknown fields are errors.
func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = yaml.UnmarshalStrict(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// read returns the objects as JSON.
func (e *example) read(t *testing.T) [][]byte {
	t.Helper()
	var objects [][]byte
	for _, file := range e.objects {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text))); ; {
			document, err := r.Read()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			object, err := yaml.YAMLToJSONStrict(document)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			objects = append(objects, object)
		}
	}
	return objects
}

// TestExamplesVerify checks the ten laws for the examples.
func TestExamplesVerify(t *testing.T) {
	t.Parallel()
	for _, e := range examples(t) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			c := e.compile(t)
			var recorded []map[string]any
			for _, object := range e.read(t) {
				recorded = append(recorded, decode(t, object))
			}
			report, err := verify.Run(t.Context(), c.subject, verify.Options{
				Definition: c.definition, Hub: c.policy.Hub(), Versions: c.policy.Versions(), Knowledge: c.policy,
				Seed: 1, Objects: made, Recorded: recorded,
			})
			if err != nil {
				t.Fatal(err)
			}
			if want := made * len(c.policy.Versions()); !report.Complete || report.Objects < want {
				t.Errorf("%d objects, complete: %t; want %d or more, and all", report.Objects, report.Complete, want)
			}
			if got, want := len(report.Laws), len(verify.Laws()); got != want {
				t.Errorf("%d laws, want %d", got, want)
			}
			for _, law := range report.Laws {
				for _, v := range law.Violations {
					text, err := yaml.Marshal(v)
					if err != nil {
						t.Fatal(err)
					}
					t.Errorf("\n%s", text)
				}
			}
		})
	}
}

// TestExamplesConvert converts the objects of the examples to each other version and back. The results must equal those
// in testdata/examples, and the objects must come back unchanged.
func TestExamplesConvert(t *testing.T) {
	t.Parallel()
	for _, e := range examples(t) {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			c := e.compile(t)
			var text strings.Builder
			text.WriteString("# The objects of the example in each other version.\n")
			from := map[string]bool{}
			for _, object := range e.read(t) {
				version := c.version(t, object)
				from[version] = true
				for _, other := range c.policy.Versions() {
					if other != version {
						text.WriteString(c.both(t, object, version, other))
					}
				}
			}
			if len(from) != len(c.policy.Versions()) {
				t.Errorf("there are objects in %d of %d versions", len(from), len(c.policy.Versions()))
			}
			got := text.String()
			golden := filepath.Join("testdata", "examples", e.name+".yaml")
			if *updateExamples {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want, +got:\n%s\nIf this is as it should be: go test ./conversion/policy -run TestExamplesConvert -update-examples", diff)
			}
		})
	}
}

func (c *compiled) version(t *testing.T, object []byte) string {
	t.Helper()
	v, err := c.definition.VersionOf(decode(t, object))
	if err != nil {
		t.Fatal(err)
	}
	return v.Name()
}

// both returns the object in the other version. The test fails if the object does not come back unchanged.
func (c *compiled) both(t *testing.T, object []byte, version, other string) string {
	t.Helper()
	there := c.convert(t, object, other)
	back := decode(t, c.convert(t, there, version))
	want, err := c.policy.Normalize(version, other, decode(t, object))
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.policy.Normalize(version, other, back)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("to %s and back: -want, +got:\n%s", other, diff)
	}
	text, err := yaml.JSONToYAML(there)
	if err != nil {
		t.Fatal(err)
	}
	name := decode(t, object)["metadata"].(map[string]any)["name"]
	return fmt.Sprintf("---\n# %v, written in %s\n%s", name, version, text)
}

func (c *compiled) convert(t *testing.T, object []byte, version string) []byte {
	t.Helper()
	converted, err := c.subject.Convert(t.Context(), [][]byte{object}, c.definition.Group()+"/"+version)
	if err != nil {
		t.Fatal(err)
	}
	return converted[0]
}

func decode(t *testing.T, object []byte) map[string]any {
	t.Helper()
	var content map[string]any
	if err := utiljson.Unmarshal(object, &content); err != nil {
		t.Fatal(err)
	}
	return content
}
