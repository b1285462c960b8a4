package main

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"refract.dev/internal/golden"
)

// TestSummary: the profiles of processes are merged, and the summary is correct.
func TestSummary(t *testing.T) {
	golden.Run(t, "testdata/*.txtar", func(t *testing.T, archive *txtar.Archive) []txtar.File {
		t.Helper()
		files, merged := golden.Inputs(archive), profile{}
		for _, f := range files {
			if strings.HasSuffix(f.Name, ".out") {
				if err := merged.add(strings.NewReader(string(f.Data))); err != nil {
					t.Fatal(err)
				}
			}
		}
		reasons, err := parseUnreached("unreached.txt", golden.Texts(files)["unreached.txt"])
		if err != nil {
			t.Fatal(err)
		}
		var profile, summary, uncovered strings.Builder
		merged.write(&profile)
		from, err := readSources(golden.FS(files))
		if err != nil {
			t.Fatal(err)
		}
		c, err := merged.coverage(from, reasons)
		if err != nil {
			return []txtar.File{{Name: "want/error", Data: []byte(err.Error() + "\n")}}
		}
		c.print(&summary)
		c.list(&uncovered)
		return []txtar.File{
			{Name: "want/profile", Data: []byte(profile.String())},
			{Name: "want/summary", Data: []byte(summary.String())},
			{Name: "want/uncovered", Data: []byte(uncovered.String())},
		}
	})
}

func TestAdd(t *testing.T) {
	const plan = "refract.dev/fleet/policy/rollout/plan.go:"
	cases := map[string]struct {
		reason   string
		profiles []string
		want     string
		err      string
	}{
		"Either": {
			"A block is reached if one process has reached it, for any order of the profiles.",
			[]string{plan + "1.2,3.4 5 0\n" + plan + "4.1,5.1 2 1\n", plan + "1.2,3.4 5 1\n" + plan + "4.1,5.1 2 0\n"},
			plan + "1.2,3.4 5 1\n" + plan + "4.1,5.1 2 1\n", "",
		},
		"None":      {"A block that no process has reached is counted.", []string{plan + "1.2,3.4 5 0\n", plan + "1.2,3.4 5 0\n"}, plan + "1.2,3.4 5 0\n", ""},
		"Missing":   {"A process with fewer blocks takes none away.", []string{plan + "1.2,3.4 5 1\n", ""}, plan + "1.2,3.4 5 1\n", ""},
		"Ordered":   {"By numbers, not by their digits.", []string{plan + "10.1,11.1 1 0\n" + plan + "9.10,9.20 1 0\n" + plan + "9.9,9.10 1 0\n"}, plan + "9.9,9.10 1 0\n" + plan + "9.10,9.20 1 0\n" + plan + "10.1,11.1 1 0\n", ""},
		"Counted":   {"Of a count it is of interest whether there is one.", []string{plan + "1.2,3.4 5 37\n"}, plan + "1.2,3.4 5 1\n", ""},
		"Garbage":   {"What is no block is an error, not a block less.", []string{"nonsense\n"}, "", `line 2: want a block of a file of refract.dev/, got "nonsense"`},
		"Truncated": {"A process may be killed while it writes.", []string{plan + "1.2,3.4 5"}, "", `line 2: want a block of a file of refract.dev/, got "refract.dev/fleet/policy/rollout/plan.go:1.2,3.4 5"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, said := profile{}, ""
			for _, text := range tc.profiles {
				if err := p.add(strings.NewReader("mode: set\n" + text)); err != nil {
					said = err.Error()
				}
			}
			if diff := cmp.Diff(tc.err, said); diff != "" || said != "" {
				if diff != "" {
					t.Errorf("%s\nadd() error: -want, +got:\n%s", tc.reason, diff)
				}
				return
			}
			var got strings.Builder
			p.write(&got)
			if diff := cmp.Diff("mode: set\n"+tc.want, got.String()); diff != "" {
				t.Errorf("%s\nadd(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestUnreached: each function of unreached.txt exists, in a file of the summary.
func TestUnreached(t *testing.T) {
	root := os.DirFS("../../..")
	text, err := os.ReadFile("unreached.txt")
	if err != nil {
		t.Fatal(err)
	}
	reasons, err := parseUnreached("unreached.txt", string(text))
	if err != nil {
		t.Fatal(err)
	}
	for key := range reasons {
		file, _, _ := strings.Cut(key, ":")
		functions, err := functionsOf(root, file)
		if err != nil {
			t.Error(err)
			continue
		}
		if !slices.ContainsFunc(functions, func(f function) bool { return f.key() == key }) {
			t.Errorf("unreached.txt: there is no function %s: remove its line", key)
		}
		if !slices.ContainsFunc(parts, func(p part) bool { return p.holds(file) }) {
			t.Errorf("unreached.txt: %s belongs to no part of the summary: remove its line", key)
		}
	}
}

// TestParts: each file that a part names exists.
func TestParts(t *testing.T) {
	for _, p := range parts {
		for _, file := range append([]string{"."}, p.files...) {
			if _, err := os.Stat("../../../" + p.folder + "/" + file); err != nil {
				t.Errorf("%s: %v", p.name, err)
			}
		}
	}
}

func TestParseUnreached(t *testing.T) {
	cases := map[string]struct{ reason, text, err string }{
		"Fine":      {"Comments and empty lines say nothing.", "# why\n\na.go:F of commands\na.go:T.F of commands\n", ""},
		"NoReason":  {"Each function needs a reason.", "a.go:F\n", `u.txt:1: want file.go:Function and a reason, got "a.go:F"`},
		"NoFile":    {"Several files may have a function of that name.", "F of commands\n", `u.txt:1: want file.go:Function and a reason, got "F of commands"`},
		"Twice":     {"If a function had two reasons, one of them would be lost.", "a.go:F one\na.go:F two\n", "u.txt:2: want functions in their order and each once, got a.go:F after a.go:F"},
		"Unordered": {"In their order they are found.", "b.go:F one\na.go:F two\n", "u.txt:2: want functions in their order and each once, got a.go:F after b.go:F"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			said := ""
			if _, err := parseUnreached("u.txt", tc.text); err != nil {
				said = err.Error()
			}
			if diff := cmp.Diff(tc.err, said); diff != "" {
				t.Errorf("%s\nparseUnreached() error: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
