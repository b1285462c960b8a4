package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// atOnce is the number of live packages that run at the same time, on any machine. With three, two processors would be
// busy all the time, although each package waits half of the time.
const atOnce = 2

// unit runs the tests that need no control plane. Packages with goroutines run with the race detector, except for their
// [sequential] tests. The race detector needs a C compiler; without one, all tests run without it.
func unit(ctx context.Context, args []string) error {
	flags, patterns := split(args)
	all, err := list(ctx, patterns...)
	if err != nil {
		return err
	}
	detector, err := detector(ctx)
	if err != nil {
		return err
	}
	alone, detected := ofKind(all, plain), ofKind(all, race)
	slow := slices.DeleteFunc(slices.Sorted(maps.Keys(sequential)), func(path string) bool { return !slices.Contains(detected, path) })
	names := fmt.Sprintf("^(%s)$", strings.Join(slices.Sorted(maps.Values(sequential)), "|"))
	timeout := []string{"-timeout=30m"}
	return errors.Join(
		test(ctx, slices.Concat(timeout, flags), alone, nil),
		test(ctx, slices.Concat(timeout, []string{"-run=" + names}, flags), slow, nil),
		test(ctx, slices.Concat(timeout, detector, []string{"-skip=" + names}, flags), detected, []string{"CGO_ENABLED=1"}),
	)
}

// quick is [unit] without the race detector.
func quick(ctx context.Context, args []string) error {
	flags, patterns := split(args)
	all, err := list(ctx, patterns...)
	if err != nil {
		return err
	}
	return test(ctx, append([]string{"-timeout=30m"}, flags...), ofKind(all, plain, race), nil)
}

// detector returns the flag of the race detector, or nil if there is no C compiler, which the race detector needs. It
// asks for cgo, which Go disables without a C compiler, and which CI disables for all other builds.
func detector(ctx context.Context) ([]string, error) {
	cmd := exec.CommandContext(ctx, goTool(), "env", "CGO_ENABLED")
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "CGO_ENABLED=") })
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("asking whether there is a C compiler: %w", err)
	}
	if strings.TrimSpace(string(out)) == "1" {
		return []string{"-race"}, nil
	}
	fmt.Fprintln(os.Stderr, "There is no C compiler: testing without the race detector.")
	return nil, nil
}

// live runs the tests that need control planes, several packages at a time. It does not use the test cache, which
// ignores changes of the programs that tests start.
func live(ctx context.Context, args []string) (err error) {
	flags, patterns := split(args)
	all, err := list(ctx, patterns...)
	if err != nil {
		return err
	}
	paths := ofKind(all, alive)
	if len(paths) == 0 {
		return nil
	}
	// The removal of this folder also removes the files of interrupted tests.
	dir, err := os.MkdirTemp("", "refract-live-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	bin, built, err := programs()
	if err != nil {
		return err
	}
	env := append([]string{"TMPDIR=" + dir}, built...)
	if len(paths) > 1 { // A single package starts its control planes itself.
		kept, stop, err := keep(ctx, filepath.Join(bin, "test-clusters"), filepath.Join(dir, "clusters"), env)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, stop()) }()
		env = append(env, kept)
	}
	flags = append([]string{"-count=1", "-timeout=60m", fmt.Sprint("-p=", atOnce)}, flags...)
	attacking := slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return path != attacks })
	others := slices.DeleteFunc(paths, func(path string) bool { return path == attacks })
	err = errors.Join(err, patiently(ctx, flags, others, env))
	// The attack tests run alone. They never run a second time: a leak that happens once is a failure.
	return errors.Join(err, test(ctx, flags, attacking, env))
}

// attacks is the package of the attack tests. It runs alone, because it and other packages would slow each other down,
// and it measures durations.
const attacks = "refract.dev/test/adversary"

// alone runs the tests of a package with its own make target, with verbose output.
func alone(ctx context.Context, path string, args []string) error {
	flags, _ := split(args)
	_, built, err := programs()
	if err != nil {
		return err
	}
	return test(ctx, append([]string{"-count=1", "-timeout=20m", "-v"}, flags...), []string{path}, built)
}

// programs returns the folder of the built programs, and the environment variables with their paths for tests.
func programs() (bin string, env []string, err error) {
	bin, err = filepath.Abs("bin")
	return bin, []string{
		"REFRACT_TEST_BINARY=" + filepath.Join(bin, "refract"),
		"KUBEBUILDER_ASSETS=" + cmp.Or(os.Getenv("KUBEBUILDER_ASSETS"), bin),
	}, err
}

// keep starts the program that keeps control planes, and returns the environment variable that lets tests find them.
func keep(ctx context.Context, program, dir string, env []string) (variable string, stop func() error, err error) {
	cmd := exec.Command(program, dir) // The program ends, after its cleanup, when its standard input is closed.
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	apart(cmd)
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, fmt.Errorf("starting control planes for all: %w", err)
	}
	stop = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	called := context.AfterFunc(ctx, func() { _ = in.Close() })
	line, err := bufio.NewReader(out).ReadString('\n')
	called()
	if err != nil {
		return "", nil, errors.Join(fmt.Errorf("starting control planes for all: %w", err), stop())
	}
	return strings.TrimSpace(line), stop, nil
}

// benchmarks runs the benchmarks of packages that need no control plane.
func benchmarks(ctx context.Context, args []string) error {
	flags, patterns := split(args)
	all, err := list(ctx, patterns...)
	if err != nil {
		return err
	}
	return test(ctx, append([]string{"-v", "-run=^$", "-bench=.", "-benchmem"}, flags...), ofKind(all, plain, race), nil)
}

// split separates arguments of go test into flags and packages. Without packages it returns all packages.
func split(args []string) (flags, patterns []string) {
	for _, a := range args {
		if strings.HasPrefix(a, "./") {
			patterns = append(patterns, a)
			continue
		}
		flags = append(flags, a)
	}
	if patterns == nil {
		patterns = []string{"./..."}
	}
	return flags, patterns
}

// event is an event of `go test -json`: https://pkg.go.dev/cmd/test2json
type event struct {
	Action  string  `json:"Action"`
	Package string  `json:"Package"`
	Test    string  `json:"Test"`
	Output  string  `json:"Output"`
	Elapsed float64 `json:"Elapsed"` // Seconds.
}

// runtimeFault is a message of Go's runtime when it fails to unwind one of its stacks. It occurred in Go 1.26.8 with
// the race detector, in about one of thirty runs of a package. It is not a failure of a test, and the results of the
// package are lost.
const runtimeFault = "traceback: unexpected SPWRITE function"

// test runs go test, prints its usual output, and records the durations. Packages whose process ended by a fault of
// Go's runtime run once more.
func test(ctx context.Context, flags, packages, env []string) error {
	_, err := tested(ctx, flags, packages, env)
	return err
}

func tested(ctx context.Context, flags, packages, env []string) (results, error) {
	if len(packages) == 0 {
		return results{}, nil
	}
	r, err := testOnce(ctx, flags, packages, env)
	again := r.faults()
	if err == nil || ctx.Err() != nil || len(again) == 0 {
		return r, err
	}
	fmt.Fprintf(os.Stderr, "Go's runtime has failed (%s), and no test has: running once more %s\n", runtimeFault, strings.Join(again, " "))
	return testOnce(ctx, flags, again, env)
}

// mostAgain is the maximum number of tests that run once more. More failures than that are not caused by a slow machine.
const mostAgain = 3

// patiently is [test] for tests of processes that share processors with other work: if a few tests fail, they run once
// more, one package at a time. If such a test then passes, the end of the output and the report still name it as a
// fault to be fixed. With flags for rare failures (-count or long drills), nothing runs twice.
func patiently(ctx context.Context, flags, packages, env []string) error {
	r, err := tested(ctx, flags, packages, env)
	if err == nil || ctx.Err() != nil || os.Getenv("REFRACT_SOAK") == "1" || slices.ContainsFunc(flags, insists) {
		return err
	}
	var status *exec.ExitError
	again := r.again(packages)
	if again == nil || !errors.As(err, &status) || status.ExitCode() != 1 {
		return err
	}
	for _, of := range slices.Sorted(maps.Keys(again)) {
		fmt.Fprintf(os.Stderr, "running once more, alone: %s %s\n", of, strings.Join(again[of], " "))
		second, err := tested(ctx, append(slices.Clone(flags), "-run=^("+strings.Join(again[of], "|")+")$"), []string{of}, env)
		if err != nil {
			return err
		}
		var times []took
		for _, name := range again[of] {
			if !slices.Contains(second.packages[of].passed, name) {
				return fmt.Errorf("%s %s has failed, and did not run once more", of, name)
			}
			times = append(times, took{What: strings.TrimPrefix(of, module), Test: name, Again: true})
			fmt.Fprintf(os.Stderr, "%s %s has failed, and passed when it was run once more: it has something to be mended\n", of, name)
		}
		if err := record(times); err != nil {
			return err
		}
	}
	return nil
}

// insists reports whether a flag of go test means that a failure must not be retried: several runs, or a stop at the
// first failure.
func insists(flag string) bool {
	name, value, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
	name = strings.TrimPrefix(name, "test.")
	return name == "failfast" || name == "count" && value != "1"
}

func testOnce(ctx context.Context, flags, packages, env []string) (r results, err error) {
	// The linter runs vet. Debug information would take a quarter of the link time.
	args := slices.Concat([]string{"test", "-json", "-vet=off", "-ldflags=-w"}, flags, packages)
	cmd := exec.CommandContext(ctx, goTool(), args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	apart(cmd)
	kill := time.AfterFunc(math.MaxInt64, func() { signalAll(cmd, os.Kill) })
	defer kill.Stop()
	cmd.Cancel = func() error {
		signalAll(cmd, os.Interrupt) // All tests can clean up.
		kill.Reset(grace)
		return nil
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return results{}, err
	}
	if err := cmd.Start(); err != nil {
		return results{}, fmt.Errorf("starting go test: %w", err)
	}
	r, err = show(out, os.Stdout, slices.Contains(flags, "-v"))
	err = errors.Join(err, cmd.Wait())
	if ctx.Err() != nil {
		return r, errors.Join(errors.New("interrupted"), err)
	}
	return r, errors.Join(err, record(r.times))
}

// grace is the time limit for the cleanup of interrupted tests. After it, all of them are killed.
const grace = 30 * time.Second

// results are the results of a test run: durations of packages and tests, and the outcome of each package.
type results struct {
	times    []took
	packages map[string]*outcome
}

// outcome is the result of a package.
type outcome struct {
	ended, failed bool
	ran, broken   bool              // It ran all tests; it failed in another way, too.
	faulty        bool              // It printed the message of a fault of Go's runtime.
	tests, passed []string          // Failed and passed tests.
	output        map[string][]byte // Output of running tests.
}

// ranAll is the line that a package prints if it has run all tests and some failed. theEnd begins the last line that go
// test prints for the package. Lines between these are errors of TestMain, for example that control planes did not end
// or that a program crashed.
const (
	ranAll = "FAIL\n"
	theEnd = "FAIL\t"
)

// again returns the failed tests that may run once more, by package. It returns nil if too many tests failed, if
// something else failed, or if a package did not end.
func (r *results) again(packages []string) map[string][]string {
	n, tests := 0, map[string][]string{}
	for _, of := range packages {
		p := r.packages[of]
		switch {
		case p == nil || !p.ended || p.failed && (len(p.tests) == 0 || !p.ran || p.broken):
			return nil
		case p.failed:
			tests[of] = p.tests
			n += len(p.tests)
		}
	}
	if n == 0 || n > mostAgain {
		return nil
	}
	return tests
}

// show prints events like go test without -json: without the output of passed tests, unless all is set.
func show(from io.Reader, to io.Writer, all bool) (results, error) {
	r := results{packages: map[string]*outcome{}}
	for lines := bufio.NewReader(from); ; {
		line, err := lines.ReadBytes('\n')
		var e event
		switch {
		case len(line) == 0:
		case json.Unmarshal(line, &e) != nil, e.Action == "build-output":
			fmt.Fprint(to, cmp.Or(e.Output, string(line))) // Other lines are not JSON events.
		default:
			r.add(&e, to, all)
		}
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return r, err
		}
	}
}

// harms are messages that a slow machine never causes, in any test: the harness reports a program that crashed or did
// not end, or the race detector reports a race.
var harms = []string{"a program has crashed", " did not end within ", "WARNING: DATA RACE"}

// faults returns the failed packages, if all of them failed only by a fault of Go's runtime. It requires that no test
// of the package failed, because tests may print the message, too, as the tests of this package do.
func (r *results) faults() (packages []string) {
	for _, of := range slices.Sorted(maps.Keys(r.packages)) {
		switch p := r.packages[of]; {
		case !p.failed:
		case !p.faulty || len(p.tests) > 0:
			return nil
		default:
			packages = append(packages, of)
		}
	}
	return packages
}

func (r *results) add(e *event, to io.Writer, all bool) {
	p := r.packages[e.Package]
	if p == nil {
		p = &outcome{output: map[string][]byte{}}
		r.packages[e.Package] = p
	}
	switch e.Action {
	case "output":
		p.read(e)
		if all || e.Test == "" && e.Output != "PASS\n" {
			fmt.Fprint(to, e.Output)
			return
		}
		p.output[e.Test] = append(p.output[e.Test], e.Output...)
	case "pass", "skip", "fail":
		p.end(e, to)
		r.times = append(r.times, took{What: strings.TrimPrefix(e.Package, module), Test: e.Test, Seconds: e.Elapsed})
	}
}

// end records the end of a package or a test, and prints the output of a failed test. When a package fails, its tests
// that have not ended count as failed, too.
func (p *outcome) end(e *event, to io.Writer) {
	failed := e.Action == "fail"
	for _, test := range slices.Sorted(maps.Keys(p.output)) {
		if failed && (test == e.Test || e.Test == "") {
			fmt.Fprintf(to, "%s", p.output[test])
		}
	}
	delete(p.output, e.Test)
	switch {
	case e.Test == "":
		p.ended, p.failed = true, failed
	case strings.Contains(e.Test, "/"):
	case failed:
		p.tests = append(p.tests, e.Test)
	case e.Action == "pass":
		p.passed = append(p.passed, e.Test)
	}
}

// read looks in the output of a package or its tests for failures that are not failures of tests.
func (p *outcome) read(e *event) {
	p.faulty = p.faulty || strings.Contains(e.Output, runtimeFault)
	p.broken = p.broken || slices.ContainsFunc(harms, func(harm string) bool { return strings.Contains(e.Output, harm) })
	switch {
	case e.Test != "":
	case e.Output == ranAll:
		p.ran = true
	case p.ran && !strings.HasPrefix(e.Output, theEnd):
		p.broken = true
	}
}
