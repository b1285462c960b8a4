package policy

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"sigs.k8s.io/yaml"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/convert"
	"refract.dev/conversion/verify"
	"refract.dev/internal/golden"
)

// TestLaws verifies the policies of the golden files whose operations accept every value that the schemas allow. No law
// may be violated. Losses that a policy declares are not violations.
func TestLaws(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"enum", "keyed", "no-effect", "reused", "wrap", "lists-and-tables", "defaults", "parents", "parent-of-both", "parent-required", "parent-of-parent", "open", "enum-null"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile("testdata/" + name + ".txtar")
			if err != nil {
				t.Fatal(err)
			}
			p, def := compiled(t, golden.Texts(archive.Files))
			e, err := convert.New(p.Resource())
			if err != nil {
				t.Fatal(err)
			}
			report, err := verify.Run(t.Context(), verify.Engine(e), verify.Options{
				Definition: def, Hub: p.Hub(), Versions: p.Versions(), Knowledge: p, Objects: 30, Leaves: 1, Seed: 1,
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range report.Violations() {
				t.Errorf("%s from %s to %s, at %q by %q: %s\n%s", v.Law, v.From, v.To, v.Path, v.Rule, v.Message, jsonText(v.Object))
			}
			if report.Checks == 0 {
				t.Error("nothing was checked")
			}
		})
	}
}

// FuzzCompile compiles arbitrary policies. If no finding is an error, there must be a policy, and the engine must
// accept it.
func FuzzCompile(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		in := golden.Texts(archive.Files)
		f.Add(in["schemas.yaml"], in["policy.yaml"])
	}
	f.Fuzz(func(t *testing.T, schemas, text string) {
		spec := &refractv1alpha1.ConversionPolicySpec{}
		if yaml.Unmarshal([]byte(text), spec) != nil || !strings.HasPrefix(schemas, "v1:") {
			return
		}
		def, err := define(schemas)
		if err != nil {
			return
		}
		p, findings := Compile(spec, def)
		r := report{findings: findings}
		if (p == nil) != r.failed() {
			t.Fatalf("Compile() = %v, with the findings %v", p, findings)
		}
		if p == nil {
			return
		}
		if _, err := convert.New(p.Resource()); err != nil {
			t.Error(err)
		}
	})
}
