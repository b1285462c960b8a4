package pipeline_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/pipeline"
	"refract.dev/internal/golden"
)

// TestRun runs the archives in testdata. An archive has:
//
//   - crd.yaml and object.yaml;
//   - read: the version of the read;
//   - mutated.yaml: the object after the mutating webhook;
//   - denied: the message of the validating webhook;
//   - converted/VERSION.yaml: the object after the conversion webhook, which fails for versions without a file;
//   - want/trace and want/stored.yaml: the trace, and the stored object.
func TestRun(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", rerun)
}

// rerun returns the files that the archive should contain.
func rerun(t *testing.T, archive *txtar.Archive) []txtar.File {
	t.Helper()
	in := golden.Texts(golden.Inputs(archive))
	definition, err := structural.New(parse(t, in["crd.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	object := parse(t, in["object.yaml"])
	before := runtime.DeepCopyJSON(object)
	trace, err := pipeline.Run(definition, object, strings.TrimSpace(in["read"]), hooks(t, in))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, object); diff != "" {
		t.Errorf("Run() changed its input: -before, +after:\n%s", diff)
	}
	if trace.Refused() != (trace.Object() == nil) {
		t.Errorf("Refused() = %v, Object() = %v", trace.Refused(), trace.Object())
	}
	out := []txtar.File{{Name: "want/trace", Data: []byte(render(trace))}}
	for i := range trace.Steps {
		if trace.Steps[i].Name == pipeline.Store {
			out = append(out, txtar.File{Name: "want/stored.yaml", Data: format(t, trace.Steps[i].Object)})
		}
	}
	return out
}

func hooks(t *testing.T, in map[string]string) pipeline.Hooks {
	t.Helper()
	var h pipeline.Hooks
	if text, ok := in["mutated.yaml"]; ok {
		h.Mutate = func(map[string]any) (map[string]any, error) { return parse(t, text), nil }
	}
	if text, ok := in["denied"]; ok {
		h.Admit = func(map[string]any) error {
			return &pipeline.RefusedError{Rule: "AdmissionDenied", Message: strings.TrimSpace(text)}
		}
	}
	for name := range in {
		if strings.HasPrefix(name, "converted/") {
			h.Convert = func(_ map[string]any, to string) (map[string]any, error) {
				_, version, _ := strings.Cut(to, "/")
				if text, ok := in["converted/"+version+".yaml"]; ok {
					return parse(t, text), nil
				}
				return nil, &pipeline.RefusedError{Rule: "ConversionFailed", Message: "no conversion to " + to}
			}
		}
	}
	return h
}

// render formats a trace for readers.
func render(trace *pipeline.Trace) string {
	var b strings.Builder
	for i := range trace.Steps {
		s := &trace.Steps[i]
		fmt.Fprintf(&b, "%s %s %s\n", s.Phase, s.Name, s.Version)
		for _, c := range s.Changes {
			fmt.Fprintf(&b, "  %s %s %s → %s\n", c.Op, c.Path, value(c.Before), value(c.After))
		}
		for _, f := range s.Findings {
			fmt.Fprintf(&b, "  %s %s: %s\n", f.Severity, f.Rule, f)
		}
		if s.Note != "" {
			fmt.Fprintf(&b, "  note: %s\n", s.Note)
		}
		for _, c := range s.NotDefaulted {
			fmt.Fprintf(&b, "  not defaulted: %s %s\n", c.Path, value(c.After))
		}
	}
	return b.String()
}

func value(v any) string {
	if v == nil {
		return "·"
	}
	text, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(text)
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

func format(t *testing.T, object map[string]any) []byte {
	t.Helper()
	text, err := yaml.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestRunErrors checks that Run returns an error, and not a rejection, for a request that cannot be simulated.
func TestRunErrors(t *testing.T) {
	archive, err := txtar.ParseFile("testdata/defaults-of-the-stored-version.txtar")
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]string{}
	for _, f := range archive.Files {
		in[f.Name] = string(f.Data)
	}
	definition, err := structural.New(parse(t, in["crd.yaml"]))
	if err != nil {
		t.Fatal(err)
	}
	down := errors.New("connection refused")
	cases := map[string]struct {
		reason string
		change func(map[string]any)
		read   string
		hooks  pipeline.Hooks
		steps  int
		err    error // nil for any error.
	}{
		"UnknownKind": {
			reason: "The object must be of the definition's kind.",
			change: func(o map[string]any) { o["kind"] = "Stove" }, read: "v1beta1",
		},
		"UnknownVersion": {reason: "The version to read must exist.", read: "v2"},
		"MutateDown": {
			reason: "If the mutating webhook cannot be called, the request cannot be simulated.", read: "v1beta1", steps: 2, err: down,
			hooks: pipeline.Hooks{Mutate: func(map[string]any) (map[string]any, error) { return nil, down }},
		},
		"AdmitDown": {
			reason: "If the validating webhook cannot be called, the request cannot be simulated.", read: "v1beta1", steps: 3, err: down,
			hooks: pipeline.Hooks{Admit: func(map[string]any) error { return down }},
		},
		"ConvertDown": {
			reason: "The trace contains the steps before the failed one.", read: "v1beta1", steps: 6, err: down,
			hooks: pipeline.Hooks{Convert: func(map[string]any, string) (map[string]any, error) { return nil, down }},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			object := parse(t, in["object.yaml"])
			if tc.change != nil {
				tc.change(object)
			}
			trace, err := pipeline.Run(definition, object, tc.read, tc.hooks)
			if err == nil || (tc.err != nil && !errors.Is(err, tc.err)) {
				t.Errorf("%s\nRun() error = %v, want %v", tc.reason, err, tc.err)
			}
			if len(trace.Steps) != tc.steps {
				t.Errorf("%s\nRun() made %d steps, want %d", tc.reason, len(trace.Steps), tc.steps)
			}
		})
	}
}
