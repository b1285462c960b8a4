package offline_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/fleet/offline/lint"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/test/generate"
)

// TestLint lints generated fleets, with and without mistakes. The result must be the same each time, and must be
// printable in each format. Each finding must have a known code and a position, and must occur once. The findings must
// include the errors of render. The input must stay unchanged.
func TestLint(t *testing.T) {
	seeds := uint64(150)
	if testing.Short() {
		seeds = 50
	}
	for seed := range seeds {
		fleet := generate.Random(seed)
		if seed%3 == 0 {
			fleet = generate.Mutate(fleet, seed)
		}
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) { lintTwice(t, fleet) })
	}
}

func lintTwice(t *testing.T, fleet generate.Fleet) {
	t.Helper()
	set, problems := manifest.ReadFS(fleet.FS())
	before := contents(set)
	first := lint.Lint(set, problems)
	if diff := cmp.Diff(before, contents(set)); diff != "" {
		t.Errorf("the objects were modified: -before, +after:\n%s", diff)
	}
	again, more := manifest.ReadFS(fleet.FS())
	if diff := cmp.Diff(first, lint.Lint(again, more)); diff != "" {
		t.Errorf("second run: -want, +got:\n%s", diff)
	}
	for i := range first.Findings {
		checkFinding(t, &first.Findings[i])
	}
	var text bytes.Buffer
	if err := lint.WriteText(&text, first); err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	for line := range bytes.Lines(text.Bytes()) {
		if lines[string(line)] && line[0] != ' ' {
			t.Errorf("duplicate finding: %s", line)
		}
		lines[string(line)] = true
	}
	if err := lint.WriteSARIF(&text, first); err != nil {
		t.Fatal(err)
	}
	if n := renderErrors(set); n > 0 && first.Summary.Errors == 0 && len(problems) == 0 {
		t.Errorf("render has %d errors, lint has none", n)
	}
}

// renderErrors returns the number of errors of render.
func renderErrors(set *manifest.Set) int {
	e, err := render.Evaluate(set, render.Options{})
	if err != nil {
		return 0
	}
	errs, _ := e.Findings()
	return len(errs)
}

func checkFinding(t *testing.T, f *lint.Finding) {
	t.Helper()
	known := false
	for _, c := range lint.Codes {
		known = known || (c.Code == f.Code && c.Severity == f.Severity)
	}
	if !known || f.Place.File == "" || f.Place.Line == 0 || f.Message == "" {
		t.Errorf("the finding is incomplete: %+v", f)
	}
}

// contents returns a copy of the input.
func contents(set *manifest.Set) []*unstructured.Unstructured {
	copies := make([]*unstructured.Unstructured, len(set.Manifests))
	for i := range set.Manifests {
		copies[i] = set.Manifests[i].Content.DeepCopy()
	}
	return copies
}
