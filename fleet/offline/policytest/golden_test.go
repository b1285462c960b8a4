package policytest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/internal/golden"
)

// TestGolden runs the tests in the folder tests of each archive, and updates them. The expected output:
//
//   - want/problems.txt: the mistakes in the tests or their inputs; then there is no other output;
//   - want/result.txt: the result, and the unexercised rules;
//   - want/updated.txt and want/tests/*: the output of the update, and the files that it
//     changed.
func TestGolden(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", rerun)
}

// rerun returns the files of expected output.
func rerun(t *testing.T, archive *txtar.Archive) (got []txtar.File) {
	t.Helper()
	t.Chdir(t.TempDir())
	inputs := golden.Inputs(archive)
	for _, f := range inputs {
		write(t, f.Name, f.Data)
	}
	add := func(name, text string) {
		if text != "" {
			got = append(got, txtar.File{Name: "want/" + name, Data: []byte(text)})
		}
	}
	result, problems := runAll(t)
	if len(problems) > 0 {
		add("problems.txt", listed(problems))
		return got
	}
	var text bytes.Buffer
	if err := WriteText(&text, result, true); err != nil {
		t.Fatal(err)
	}
	for i := range result.Coverage.Unexercised {
		fmt.Fprintf(&text, "%s\n", &result.Coverage.Unexercised[i])
	}
	add("result.txt", text.String())
	updated, refused, err := Update(result)
	text.Reset()
	for i := range updated {
		fmt.Fprintf(&text, "%s\n", &updated[i])
	}
	for i := range refused {
		fmt.Fprintf(&text, "refused %s\n", &refused[i])
	}
	if err != nil {
		fmt.Fprintf(&text, "error: %v\n", err)
	}
	add("updated.txt", text.String())
	for _, f := range inputs {
		if now := read(t, f.Name); now != string(f.Data) {
			add(f.Name, now)
		}
	}
	checkSettled(t, result)
	return got
}

// checkSettled verifies that the updated expectations hold, and that a second update changes nothing.
func checkSettled(t *testing.T, before *Result) {
	t.Helper()
	after, problems := runAll(t)
	if len(problems) > 0 {
		t.Fatalf("after the update:\n%s", listed(problems))
	}
	again, _, _ := Update(after)
	if len(again) > 0 {
		t.Errorf("the second update is not idle: %s", &again[0])
	}
	if _, was := before.Count(); was < len(after.Cases) {
		_, is := after.Count()
		if is > was {
			t.Errorf("%d cases failed before the update, %d after it", was, is)
		}
	}
}

func runAll(t *testing.T) (*Result, []*manifest.Problem) {
	t.Helper()
	tests, problems := Load([]string{"tests"})
	if len(problems) > 0 {
		return nil, problems
	}
	return Run(tests, findExactly)
}

// findExactly finds KIND/NAMESPACE/NAME.
func findExactly(set *manifest.Set, reference string) (*manifest.Object, string, error) {
	for i := range set.Objects {
		o := set.Objects[i].Content
		if strings.EqualFold(o.GetKind()+"/"+o.GetNamespace()+"/"+o.GetName(), reference) {
			return &set.Objects[i], "", nil
		}
	}
	return nil, "look again", fmt.Errorf("object %q is not in the input", reference)
}

func listed(problems []*manifest.Problem) string {
	var b strings.Builder
	for _, p := range problems {
		fmt.Fprintf(&b, "%v\n", p)
		if p.Hint != "" {
			fmt.Fprintf(&b, "  %s\n", p.Hint)
		}
	}
	return b.String()
}

func write(t *testing.T, name string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		return "" // The file is only expected.
	}
	return string(data)
}
