package policytest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"refract.dev/internal/manifest"
)

var update = flag.Bool("update", false, "take what is now for what is wanted")

// TestGolden runs the tests in each archive, in the folder tests of it, and
// updates them. What is wanted:
//
//   - want/problems.txt: what is wrong with the tests or their inputs; then there
//     is nothing else;
//   - want/result.txt: the result, and rules that nothing exercises;
//   - want/updated.txt and want/tests/*: what the update says, and files that it
//     changed.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no archives: %v", err)
	}
	for i, file := range files {
		if files[i], err = filepath.Abs(file); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			want, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := rerun(t, want)
			if *update {
				if err := os.WriteFile(file, txtar.Format(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(txtar.Format(want)), string(txtar.Format(got))); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// rerun keeps the comment and the inputs of an archive and makes the rest anew.
func rerun(t *testing.T, a *txtar.Archive) *txtar.Archive {
	t.Helper()
	t.Chdir(t.TempDir())
	got := &txtar.Archive{Comment: a.Comment}
	for _, f := range a.Files {
		if !strings.HasPrefix(f.Name, "want/") {
			got.Files = append(got.Files, f)
			write(t, f.Name, f.Data)
		}
	}
	add := func(name, text string) {
		if text != "" {
			got.Files = append(got.Files, txtar.File{Name: "want/" + name, Data: []byte(text)})
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
	for _, f := range got.Files {
		if now := read(t, f.Name); f.Name != "want/result.txt" && f.Name != "want/updated.txt" && now != string(f.Data) {
			add(f.Name, now)
		}
	}
	checkSettled(t, result)
	return got
}

// checkSettled checks that what was updated holds now, and that a second update
// finds nothing to do.
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
		return "" // One of those that are only wanted.
	}
	return string(data)
}
