package offline_test

import (
	"errors"
	"io"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"refract.dev/fleet/offline/diff"
	"refract.dev/fleet/offline/explain"
	"refract.dev/fleet/offline/lint"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/test/generate"
	"refract.dev/tree"
)

// FuzzAnswers runs all commands in all formats on a generated fleet, on a change of
// the fleet, and on an arbitrary document: no command may
// panic or modify its input. For ten minutes:
//
//	go test ./test/offline -run '^$' -fuzz FuzzAnswers -fuzztime 10m -fuzzminimizetime 5x
func FuzzAnswers(f *testing.F) {
	for seed := range uint64(8) {
		f.Add(seed, seed+100, "/spec", []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: more}, data: {a: b}}"))
	}
	f.Add(uint64(9), uint64(9), "/metadata/labels", []byte(`apiVersion: core.kubeadmiral.io/v1alpha1
kind: ClusterOverridePolicy
metadata: {name: more}
spec: {overrideRules: [{overriders: {jsonpatch: [{path: /data/-1, operator: add, value: {a: [1, null]}}]}}]}
`))
	f.Fuzz(func(t *testing.T, seed, change uint64, at string, document []byte) {
		fleet := generate.Random(seed)
		from, fromProblems := manifest.ReadFS(fleet.FS())
		over, overProblems := manifest.ReadFS(fstest.MapFS{"document.yaml": {Data: document}})
		changed, _ := manifest.ReadFS(generate.Mutate(fleet, change).FS())
		to := changed.Overlay(over)
		beforeFrom, beforeTo := contents(from), contents(to)

		pointer, err := tree.Parse(at)
		if err != nil {
			pointer = tree.Pointer{}
		}
		explainAll(t, from, pointer)
		explainAll(t, to, pointer)
		compareAll(t, from, to)
		compareAll(t, to, from)
		for _, result := range []*lint.Result{lint.Lint(from, fromProblems), lint.Lint(to, overProblems)} {
			for _, write := range []func(io.Writer, *lint.Result) error{lint.WriteText, lint.WriteJSON, lint.WriteSARIF} {
				must(t, write(io.Discard, result))
			}
		}
		if d := cmp.Diff(beforeFrom, contents(from)); d != "" {
			t.Errorf("the fleet was modified: -before, +after:\n%s", d)
		}
		if d := cmp.Diff(beforeTo, contents(to)); d != "" {
			t.Errorf("the changed fleet was modified: -before, +after:\n%s", d)
		}
	})
}

func explainAll(t *testing.T, set *manifest.Set, at tree.Pointer) {
	t.Helper()
	e, err := render.Evaluate(set, render.Options{})
	if errors.Is(err, render.ErrNoClusters) {
		return
	}
	must(t, err)
	must(t, render.WriteVariants(io.Discard, e))
	must(t, render.WriteJSON(io.Discard, e.Result()))
	must(t, render.WriteYAML(io.Discard, e.Result()))
	for i := range e.Outcomes {
		x, err := explain.Explain(e, &e.Outcomes[i], at)
		if _, unknown := errors.AsType[*explain.UnknownPathError](err); unknown {
			continue
		}
		must(t, err)
		must(t, explain.WriteText(io.Discard, x))
		must(t, explain.WriteJSON(io.Discard, x))
	}
}

func compareAll(t *testing.T, from, to *manifest.Set) {
	t.Helper()
	d, err := diff.Compare(from, to, diff.Options{})
	if errors.Is(err, render.ErrNoClusters) {
		return
	}
	must(t, err)
	for _, write := range []func(io.Writer, *diff.Diff) error{diff.WriteText, diff.WriteUnified, diff.WriteJSON, diff.WriteMarkdown} {
		must(t, write(io.Discard, d))
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
