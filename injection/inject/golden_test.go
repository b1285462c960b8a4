package inject

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/rogpeppe/go-internal/txtar"
	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/golden"
)

// TestGolden injects into the pod of every archive in testdata. The archives are written for readers: each begins with
// its purpose.
//
// Besides policies.yaml and pod.yaml an archive may contain:
//   - another-webhook.yaml, a JSON patch that is applied after the first injection and before a second one;
//   - later-webhook.yaml, a JSON patch that is applied after all injections;
//   - later.yaml, the policies for the examination of the pod at the end;
//   - old.yaml, the pod before an update of its ephemeral containers.
//
// The expected files are the pod, a report, and the patch if the archive already has one.
func TestGolden(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", injectArchive)
}

// injectArchive returns the expected files.
func injectArchive(t *testing.T, archive *txtar.Archive) []txtar.File {
	t.Helper()
	in := golden.Texts(golden.Inputs(archive))
	var report strings.Builder
	set := parseSet(t, in["policies.yaml"], &report)
	pod := parseYAML(t, in["pod.yaml"])

	if old, updates := in["old.yaml"]; updates {
		result, err := set.InjectEphemeral(pod, parseYAML(t, old))
		if err != nil {
			t.Fatal(err)
		}
		describeResult(&report, result)
		return wanted(t, archive, &report, pod, apply(t, pod, result.Patch), result.Patch)
	}

	result := checkedInject(t, set, pod)
	describeResult(&report, result)
	final := apply(t, pod, result.Patch)
	if another, ok := in["another-webhook.yaml"]; ok {
		final = apply(t, final, parseYAML(t, another))
		report.WriteString("\nafter the other webhook:\n")
		result = checkedInject(t, set, final)
		describeResult(&report, result)
		final = apply(t, final, result.Patch)
	}
	if later, ok := in["later-webhook.yaml"]; ok {
		final = apply(t, final, parseYAML(t, later))
	}
	report.WriteString("\nexamined:\n")
	examined := set
	if later, ok := in["later.yaml"]; ok {
		examined = parseSet(t, later, &report)
	}
	x, err := examined.Examine(final)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range x.Statuses {
		fmt.Fprintf(&report, "  %s %s%s\n", s.Policy.Name(), s.State, because(s.Reason, "", s.Message))
	}
	if len(x.Statuses) == 0 {
		report.WriteString("  no policy selects the pod\n")
	}
	return wanted(t, archive, &report, pod, final, result.Patch)
}

// checkedInject injects into the pod and checks the laws.
func checkedInject(t *testing.T, set *Set, pod []byte) *Result {
	t.Helper()
	result, err := set.Explain(pod)
	if err != nil {
		t.Fatal(err)
	}
	checkLaws(t, set, pod)
	return result
}

func wanted(t *testing.T, archive *txtar.Archive, report *strings.Builder, before, after, patch []byte) []txtar.File {
	t.Helper()
	var out []txtar.File
	if !jsonpatch.Equal(before, after) {
		out = append(out, txtar.File{Name: "want/pod.yaml", Data: block(t, after)})
	}
	if _, has := golden.Texts(archive.Files)["want/patch.json"]; has {
		out = append(out, txtar.File{Name: "want/patch.json", Data: lines(t, patch)})
	}
	return append(out, txtar.File{Name: "want/report.txt", Data: []byte(report.String())})
}

// block returns JSON as YAML in block style, without changes to the order of members and the digits of numbers.
func block(t *testing.T, data []byte) []byte {
	t.Helper()
	var document yamlv3.Node
	if err := yamlv3.Unmarshal(data, &document); err != nil {
		t.Fatal(err)
	}
	clearStyle(&document)
	var out bytes.Buffer
	e := yamlv3.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(&document); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func clearStyle(n *yamlv3.Node) {
	if len(n.Content) > 0 || n.Kind == yamlv3.ScalarNode {
		n.Style = 0
	}
	for _, inner := range n.Content {
		clearStyle(inner)
	}
}

// lines returns a patch with one operation on each line.
func lines(t *testing.T, patch []byte) []byte {
	t.Helper()
	var operations []json.RawMessage
	if err := json.Unmarshal(patch, &operations); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	for _, o := range operations {
		out.Write(o)
		out.WriteByte('\n')
	}
	return out.Bytes()
}

// parseSet compiles the documents of a file, and reports invalid ones.
func parseSet(t *testing.T, text string, report *strings.Builder) *Set {
	t.Helper()
	var policies []*Policy
	for document := range strings.SplitSeq(text, "---\n") {
		object := &refractv1beta1.ServiceInjectionPolicy{}
		if err := yaml.UnmarshalStrict([]byte(document), object); err != nil {
			t.Fatal(err)
		}
		policy, errs := Compile(object)
		if len(errs) > 0 {
			fmt.Fprintf(report, "invalid %s: %v\n", object.Name, errs.ToAggregate())
			continue
		}
		policies = append(policies, policy)
	}
	return NewSet(policies...)
}

func parseYAML(t *testing.T, text string) []byte {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func describeResult(out *strings.Builder, r *Result) {
	for i := range r.Applied {
		a := &r.Applied[i]
		fmt.Fprintf(out, "applied %s:", a.Policy.Name())
		n := out.Len()
		for _, list := range []struct {
			name  string
			names []string
		}{{"env", a.Env}, {"envFrom", a.EnvFrom}, {"volumes", a.Volumes}, {"volumeMounts", a.Mounts}} {
			if len(list.names) > 0 {
				fmt.Fprintf(out, " %s %s;", list.name, strings.Join(list.names, ", "))
			}
		}
		if out.Len() == n {
			out.WriteString(" the pod has it all;")
		}
		if a.Containers != nil {
			fmt.Fprintf(out, " in %s", strings.Join(a.Containers, ", "))
		}
		out.WriteString("\n")
	}
	for i := range r.Skipped {
		s := &r.Skipped[i]
		fmt.Fprintf(out, "skipped %s%s\n", s.Policy.Name(), because(s.Reason, s.Path, s.Message))
	}
	if r.Rejected != nil {
		fmt.Fprintf(out, "the pod is refused because of %s%s\n", r.Rejected.Policy.Name(), because(r.Rejected.Reason, r.Rejected.Path, r.Rejected.Message))
	}
	if len(r.Applied)+len(r.Skipped) == 0 {
		out.WriteString("no policy selects the pod\n")
	}
}

func because(reason, path, message string) string {
	if reason == "" {
		return ""
	}
	if path != "" {
		message = path + ": " + message
	}
	return ": " + reason + ": " + message
}
