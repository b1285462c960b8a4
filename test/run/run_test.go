package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"refract.dev/internal/poll"
)

// TestShow: the output of a real go test run of several packages is shown correctly.
func TestShow(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":         "module example.com/m\n\ngo 1.26\n",
		"good/a_test.go": "package good\n\nimport \"testing\"\n\nfunc TestGood(t *testing.T) { t.Log(\"nobody wants to know\") }\n",
		"bad/a_test.go": "package bad\n\nimport \"testing\"\n\nfunc TestBad(t *testing.T) {\n\tt.Run(\"part\", func(t *testing.T) { t.Error(\"this is why\") })\n}\n\n" +
			"func TestFine(t *testing.T) { t.Log(\"nobody wants to know\") }\n",
		"dead/a_test.go":   "package dead\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestDead(t *testing.T) {\n\tt.Log(\"these were its last words\")\n\tos.Exit(3)\n}\n",
		"broken/a_test.go": "package broken\n\nvar unknown = undefined\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command("go", "test", "-json", "-vet=off", "./...")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err == nil {
		t.Fatal("go test passes, although three of the packages fail")
	}

	var shown strings.Builder
	r, err := show(strings.NewReader("go: not an event\n"+string(out)), &shown, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"go: not an event\n", "ok  \texample.com/m/good", "FAIL\texample.com/m/bad", "--- FAIL: TestBad/part", "this is why", "undefined: undefined", "FAIL\texample.com/m/dead", "these were its last words"} {
		if !strings.Contains(shown.String(), want) {
			t.Errorf("show(...): want %q to be printed, got\n%s", want, &shown)
		}
	}
	if strings.Contains(shown.String(), "nobody wants to know") || strings.Contains(shown.String(), "PASS") {
		t.Errorf("show(...): want no output of passed tests, got\n%s", &shown)
	}
	var of []string
	var failed []string
	for of, p := range r.packages {
		if p.failed {
			failed = append(failed, of)
		}
	}
	slices.Sort(failed)
	if want := []string{"example.com/m/bad", "example.com/m/broken", "example.com/m/dead"}; !slices.Equal(want, failed) {
		t.Errorf("show(...): want %v to have failed, got %v", want, failed)
	}
	for _, took := range r.times {
		of = append(of, strings.TrimSpace(took.What+" "+took.Test))
	}
	for _, want := range []string{"example.com/m/good TestGood", "example.com/m/good", "example.com/m/bad TestBad/part", "example.com/m/bad"} {
		if !strings.Contains(strings.Join(of, "\n")+"\n", want+"\n") {
			t.Errorf("show(...): want a time for %s, got %q", want, of)
		}
	}
	shown.Reset()
	if _, err := show(strings.NewReader(string(out)), &shown, true); err != nil || !strings.Contains(shown.String(), "nobody wants to know") {
		t.Errorf("show(..., all): got %v and\n%s", err, &shown)
	}
}

// TestRuntimeFault: a package whose process ended by a fault of Go's runtime runs once more. Other packages do not.
func TestRuntimeFault(t *testing.T) {
	const says = "fmt.Println(\"" + runtimeFault + " runtime.systemstack\")"
	cases := map[string]struct {
		reason, first string
		another       string // Statements of a test in a second package.
		fails         bool
	}{
		"Fault":    {"The results of the package are unknown.", says + "; os.Exit(2)", "", false},
		"OwnFault": {"The tests caused the end of the process.", "fmt.Println(\"panic: oh\"); os.Exit(2)", "", true},
		"Both":     {"A test of the package has failed, too.", says + "; t.Error()", "", true},
		"Another":  {"A test of another package has failed.", says + "; os.Exit(2)", "t.Error()", true},
		"Printed":  {"A passed test prints the message, and a test of another package has failed.", says, "t.Error()", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for file, text := range map[string]string{
				"go.mod": "module example.com/m\n\ngo 1.26\n",
				"a_test.go": "package m\n\nimport (\n\t\"fmt\"\n\t\"os\"\n\t\"testing\"\n)\n\nfunc TestOnce(t *testing.T) {\n\tif _, err := os.Stat(\"ran\"); err != nil {\n" +
					"\t\t_ = os.WriteFile(\"ran\", nil, 0o600)\n\t\t" + tc.first + "\n\t}\n}\n",
				"another/a_test.go": "package another\n\nimport \"testing\"\n\nfunc TestAnother(t *testing.T) {\n\t" + tc.another + "\n}\n",
			} {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(dir)
			if err := test(t.Context(), []string{"-count=1"}, []string{"./..."}, nil); (err != nil) != tc.fails {
				t.Errorf("%s\ntest(): want an error: %t, got %v", tc.reason, tc.fails, err)
			}
		})
	}
}

// TestInterrupted: after an interrupt, running tests also get the interrupt, and time for their cleanup.
func TestInterrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	for file, text := range map[string]string{
		"go.mod": "module example.com/m\n\ngo 1.26\n",
		"a_test.go": "package m\n\nimport (\n\t\"os\"\n\t\"os/signal\"\n\t\"testing\"\n\t\"time\"\n)\n\nfunc TestSlow(t *testing.T) {\n\tc := make(chan os.Signal, 1)\n" +
			"\tsignal.Notify(c, os.Interrupt)\n\t_ = os.WriteFile(\"begun\", nil, 0o600)\n\t<-c\n\ttime.Sleep(300 * time.Millisecond)\n" +
			"\t_ = os.WriteFile(\"cleaned\", nil, 0o600)\n}\n",
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		defer cancel()
		_ = poll.Await(ctx, func(context.Context) error { // It ends with the test.
			_, err := os.Stat("begun")
			return err
		})
	}()
	if err := test(ctx, []string{"-count=1"}, []string{"./..."}, nil); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("test(), interrupted: got %v", err)
	}
	if _, err := os.Stat("cleaned"); err != nil {
		t.Error(err)
	}
}

// TestOnceMore: if only a few tests have failed and nothing else, these tests run once more, alone.
func TestOnceMore(t *testing.T) {
	const once = "if _, err := os.Stat(t.Name()); err != nil {\n\t\t_ = os.WriteFile(t.Name(), nil, 0o600)\n\t\tt.Error(\"no\")\n\t}"
	part := "t.Run(\"part\", func(t *testing.T) { " + strings.ReplaceAll(once, "t.Name()", "\"part\"") + " })"
	says := func(what string) string { return strings.Replace(once, "\"no\"", fmt.Sprintf("%q", what), 1) }
	cases := map[string]struct {
		reason string
		flags  []string
		tests  []string // Statements of the test in each package.
		more   int      // Number of further tests in each package that fail once.
		again  []string // Tests reported as passed the second time; nil if the run fails.
	}{
		"Once": {
			reason: "The tests pass when they run alone.",
			tests:  []string{once, part}, again: []string{"example.com/m/p0 TestIt", "example.com/m/p1 TestIt"},
		},
		"Twice": {reason: "The test fails again.", tests: []string{"t.Error()"}},
		"Skipped": {
			reason: "A skipped test has not passed.",
			tests:  []string{strings.Replace(once, "if ", "if _, err := os.Stat(t.Name()); err == nil {\n\t\tt.Skip()\n\t}\n\tif ", 1)},
		},
		"OneDies": {reason: "The results of the other tests of the package are unknown.", tests: []string{once, "os.Exit(1)"}},
		"Panics":  {reason: "The results of the tests after a panic are unknown.", tests: []string{strings.Replace(once, "t.Error(\"no\")", "panic(1)", 1)}},
		"Spoilt":  {reason: "TestMain has failed, too.", tests: []string{once + "\n\tif t.Failed() {\n\t\tspoilt = \"clusters did not end\\n\"\n\t}"}},
		"Crashed": {reason: "A slow machine does not explain the crash of a program.", tests: []string{says("one.log: a program has crashed:")}},
		"Race":    {reason: "A slow machine does not explain a race.", tests: []string{says("WARNING: DATA RACE")}},
		"Many":    {reason: "So many failures have another cause than a slow machine.", tests: []string{once}, more: mostAgain},
		"Count":   {reason: "With -count the user looks for rare failures.", flags: []string{"-count=2"}, tests: []string{once}},
		"First":   {reason: "With -failfast the other tests have not run.", flags: []string{"-failfast"}, tests: []string{once}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string]string{"go.mod": "module example.com/m\n\ngo 1.26\n", "times": ""}
			var packages []string
			for i, body := range tc.tests {
				var text strings.Builder
				text.WriteString("package p\n\nimport (\n\t\"os\"\n\t\"testing\"\n)\n\nvar spoilt string\n\nfunc TestMain(m *testing.M) {\n\tstatus := m.Run()\n" +
					"\tos.Stderr.WriteString(spoilt)\n\tos.Exit(status)\n}\n\nfunc TestIt(t *testing.T) {\n\t" + body + "\n}\n")
				for n := range tc.more {
					fmt.Fprintf(&text, "\nfunc TestMore%d(t *testing.T) {\n\t%s\n}\n", n, once)
				}
				files[fmt.Sprintf("p%d/a_test.go", i)] = text.String()
				packages = append(packages, fmt.Sprintf("example.com/m/p%d", i))
			}
			for file, text := range files {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			t.Chdir(dir)
			t.Setenv(timesVariable, filepath.Join(dir, "times"))
			if err := patiently(t.Context(), append([]string{"-count=1"}, tc.flags...), packages, nil); (err == nil) != (tc.again != nil) {
				t.Errorf("%s\npatiently(): got %v", tc.reason, err)
			}
			text, err := os.ReadFile(filepath.Join(dir, "times"))
			if err != nil {
				t.Fatal(err)
			}
			all, err := decode[took](bytes.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			var again []string
			for _, took := range first(len(all), all, func(t took) bool { return t.Again }) {
				again = append(again, took.What+" "+took.Test)
			}
			if diff := cmp.Diff(tc.again, again); diff != "" {
				t.Errorf("%s\npatiently(): tests that passed the second time: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestReport(t *testing.T) {
	var got strings.Builder
	stages := []took{{What: "build", Seconds: 3.21}, {What: "e2e", Seconds: 601.4}}
	parts := []took{
		{What: "test/e2e", Test: "TestA", Seconds: 2}, {What: "test/e2e", Test: "TestB", Seconds: 30}, {What: "test/e2e", Test: "TestB/part", Seconds: 29},
		{What: "test/e2e", Seconds: 90}, {What: "tree", Seconds: 0.1}, {What: "test/e2e", Test: "TestA", Again: true},
	}
	if err := report(&got, 605*time.Second, stages, parts); err != nil {
		t.Fatal(err)
	}
	const want = `
What took how long:
        3.2 s  build
  10 min 01 s  e2e
  10 min 05 s  all

Failed, and passed when run once more, alone. Each has something to be mended:
  test/e2e TestA

The slowest packages:
  1 min 30 s  test/e2e
       0.1 s  tree

The slowest tests:
  30.0 s  test/e2e TestB
   2.0 s  test/e2e TestA
`
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("report(...): -want, +got:\n%s", diff)
	}
}

// TestStages: stages runs make, and stops after the first target that fails.
func TestStages(t *testing.T) {
	t.Chdir(t.TempDir())
	const makefile = "one:\n\t@echo '{\"what\":\"p\",\"seconds\":1}' >> $$" + timesVariable + "; touch one\ntwo:\n\t@false\nthree:\n\t@touch three\n"
	if err := os.WriteFile("Makefile", []byte(makefile), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := stages(t.Context(), io.Discard, []string{"one"}); err != nil {
		t.Errorf("stages(one): %v", err)
	}
	if err := stages(t.Context(), io.Discard, []string{"one", "two", "three"}); err == nil || !strings.Contains(err.Error(), "make two") {
		t.Errorf("stages(one, two, three): want an error that names two, got %v", err)
	}
	if _, err := os.Stat("one"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat("three"); err == nil {
		t.Error("stages(one, two, three): the stage after a failed one must not run")
	}
}

// TestStagesInterrupted: a running target ends even if the process ignores interrupts, as processes in the background
// of a script do.
func TestStagesInterrupted(t *testing.T) {
	t.Chdir(t.TempDir())
	signal.Ignore(os.Interrupt)
	defer signal.Reset(os.Interrupt)
	if err := os.WriteFile("Makefile", []byte("slow:\n\t@echo begun; exec sleep 3600\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if err := stages(ctx, printed(cancel), []string{"slow"}); err == nil || !strings.Contains(err.Error(), "interrupted") {
		t.Errorf("stages(slow), interrupted: got %v", err)
	}
}

// printed is a writer that calls a function on each write.
type printed func()

func (h printed) Write(text []byte) (int, error) {
	h()
	return len(text), nil
}

// TestKinds: every package of this module with tests is run, and packages with control planes or goroutines have the
// correct kind.
func TestKinds(t *testing.T) {
	all, err := list(t.Context(), "refract.dev/...")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]kind{}
	tested := 0
	for i := range all {
		got[strings.TrimPrefix(all[i].ImportPath, module)] = all[i].kind
		if len(all[i].TestGoFiles)+len(all[i].XTestGoFiles) > 0 {
			tested++
		}
	}
	for path, want := range map[string]kind{
		"api": none, "test/bench": none, "test/node": none, "test/browser": none, "tree": plain, "fleet/policy/podtemplate": plain, "internal/cli": plain,
		"fleet/propagation": race, "fleet/member": race, "kit/webhook": race, "fleet/policy/override": race, "test/e2e": alive, "test/drills": alive, "internal/playground": alive,
	} {
		if got[path] != want {
			t.Errorf("%s is of kind %d, want %d", path, got[path], want)
		}
	}
	run := 0
	for _, k := range []kind{plain, race, alive} {
		run += len(ofKind(all, k))
	}
	if run != tested-len(elsewhere) {
		t.Errorf("Of %d packages with tests, %d are run and %q have their own targets: the others would never run.", tested, run, elsewhere)
	}
}

// TestSequential: each sequential test exists in its package. No other package has a test with its name, because the
// run with the race detector skips this name in all packages.
func TestSequential(t *testing.T) {
	all, err := list(t.Context(), "refract.dev/...")
	if err != nil {
		t.Fatal(err)
	}
	for path, names := range sequential {
		for name := range strings.SplitSeq(names, "|") {
			var has []string
			for i := range all {
				for _, file := range slices.Concat(all[i].TestGoFiles, all[i].XTestGoFiles) {
					text, err := os.ReadFile(filepath.Join(all[i].Dir, file))
					if err != nil {
						t.Fatal(err)
					}
					if strings.Contains(string(text), "\nfunc "+name+"(") {
						has = append(has, all[i].ImportPath)
					}
				}
			}
			if diff := cmp.Diff([]string{path}, has); diff != "" {
				t.Errorf("packages with %s: -want, +got:\n%s", name, diff)
			}
		}
	}
}

func TestSplit(t *testing.T) {
	flags, patterns := split([]string{"-run", "TestA", "./test/e2e", "-v"})
	if diff := cmp.Diff([][]string{{"-run", "TestA", "-v"}, {"./test/e2e"}}, [][]string{flags, patterns}); diff != "" {
		t.Errorf("split(...): -want, +got:\n%s", diff)
	}
	if _, patterns := split([]string{"-v"}); !cmp.Equal([]string{"./..."}, patterns) {
		t.Errorf("split(-v): want all packages, got %q", patterns)
	}
}
