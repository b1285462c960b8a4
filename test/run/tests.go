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
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// atOnce is how many live packages run at the same time, on any machine: they wait half of
// the time, and with three of them two cores are busy all the time.
const atOnce = 2

// unit runs the tests that need no control plane: those of packages with goroutines with
// the race detector, if there is a C compiler, which that takes.
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
	var errs []error
	for _, of := range []struct {
		kind  kind
		flags []string
	}{{plain, nil}, {race, detector}} {
		paths, err := ofKind(all, of.kind)
		if err != nil {
			return err
		}
		errs = append(errs, test(ctx, slices.Concat([]string{"-timeout=30m"}, of.flags, flags), paths, nil))
	}
	return errors.Join(errs...)
}

// quick is [unit] without the race detector.
func quick(ctx context.Context, args []string) error {
	flags, patterns := split(args)
	all, err := list(ctx, patterns...)
	if err != nil {
		return err
	}
	paths, err := withoutControlPlanes(all)
	if err != nil {
		return err
	}
	return test(ctx, append([]string{"-timeout=30m"}, flags...), paths, nil)
}

// detector returns the flag of the race detector, which takes a C compiler. Without one
// Go turns cgo off.
func detector(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, goTool(), "env", "CGO_ENABLED").Output()
	if err != nil {
		return nil, fmt.Errorf("asking whether there is a C compiler: %w", err)
	}
	if strings.TrimSpace(string(out)) == "1" {
		return []string{"-race"}, nil
	}
	fmt.Fprintln(os.Stderr, "There is no C compiler: testing without the race detector.")
	return nil, nil
}

// live runs the tests that need control planes, several packages at a time, and never
// from the cache, which does not know the programs that a test starts.
func live(ctx context.Context, args []string) (err error) {
	flags, patterns := split(args)
	all, err := list(ctx, patterns...)
	if err != nil {
		return err
	}
	paths, err := ofKind(all, alive)
	if err != nil || len(paths) == 0 {
		return err
	}
	// What an interrupted test leaves goes with this folder.
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
	if len(paths) > 1 { // One alone starts what it needs.
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
	// What must never be is never excused; and they have the machine to themselves.
	err = errors.Join(err, test(ctx, flags, attacking, env))
	return errors.Join(err, patiently(ctx, flags, others, env))
}

// attacks is the package whose tests attack: it runs alone, or what stands beside it would starve, and so would what it
// measures.
const attacks = "refract.dev/test/adversary"

// alone runs the tests of a package that has a target of its own, and that say what they have found.
func alone(ctx context.Context, path string, args []string) error {
	flags, _ := split(args)
	_, built, err := programs()
	if err != nil {
		return err
	}
	return test(ctx, append([]string{"-count=1", "-timeout=20m", "-v"}, flags...), []string{path}, built)
}

// programs returns the folder of what was built, and the variables by which tests find it.
func programs() (bin string, env []string, err error) {
	bin, err = filepath.Abs("bin")
	return bin, []string{
		"REFRACT_TEST_BINARY=" + filepath.Join(bin, "refract"),
		"KUBEBUILDER_ASSETS=" + cmp.Or(os.Getenv("KUBEBUILDER_ASSETS"), bin),
	}, err
}

// keep starts the program that keeps control planes, and returns the variable by which
// tests find them.
func keep(ctx context.Context, program, dir string, env []string) (variable string, stop func() error, err error) {
	began := time.Now()
	cmd := exec.Command(program, dir) // It ends in order, with its input.
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
	fmt.Fprintf(os.Stderr, "control planes that tests share are ready after %.1f s\n", time.Since(began).Seconds())
	return strings.TrimSpace(line), stop, nil
}

// benchmarks runs those of packages that need no control plane.
func benchmarks(ctx context.Context, args []string) error {
	flags, patterns := split(args)
	all, err := list(ctx, patterns...)
	if err != nil {
		return err
	}
	paths, err := withoutControlPlanes(all)
	if err != nil {
		return err
	}
	return test(ctx, append([]string{"-v", "-run=^$", "-bench=.", "-benchmem"}, flags...), paths, nil)
}

// split parts what go test is given into flags and packages; all packages if there are
// none.
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

// event is one of `go test -json`: https://pkg.go.dev/cmd/test2json
type event struct {
	Action  string  `json:"Action"`
	Package string  `json:"Package"`
	Test    string  `json:"Test"`
	Output  string  `json:"Output"`
	Elapsed float64 `json:"Elapsed"` // Seconds.
}

// runtimeFault is what Go's runtime says when it loses its way in a stack of its own: seen of Go 1.26.8 with the race
// detector, once in some thirty runs of a package. No test has failed then, and none can be judged.
const runtimeFault = "traceback: unexpected SPWRITE function"

// test runs go test and prints what it would, and writes down how long things took for
// who has asked for that. Packages whose process ended by a fault of Go's runtime are run once more.
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
	if err == nil || ctx.Err() != nil || len(again) == 0 || len(again) < len(r.failed) {
		return r, err
	}
	fmt.Fprintf(os.Stderr, "Go's runtime has failed (%s), and no test has: running once more %s\n", runtimeFault, strings.Join(again, " "))
	return testOnce(ctx, flags, again, env)
}

// mostAgain is how many tests may be run once more. If more have failed, the machine was not the reason.
const mostAgain = 3

// patiently is [test] for tests of processes that share processors with all else that goes on: few that have failed are run
// once more, one package at a time. Those that have passed then are named at the end of what is printed, and in the report: each
// has something to be mended. Who looks for what fails now and then, by -count or by long drills, is told at the first time.
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
			if !slices.Contains(second.passed[of], name) {
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

// insists reports whether a flag of go test asks for more than that each test passes: for several times, or an end at the first that fails.
func insists(flag string) bool {
	name, value, _ := strings.Cut(strings.TrimLeft(flag, "-"), "=")
	name = strings.TrimPrefix(name, "test.")
	return name == "failfast" || name == "count" && value != "1"
}

func testOnce(ctx context.Context, flags, packages, env []string) (r results, err error) {
	// The linter vets, and what only a debugger reads takes a quarter of the time of linking.
	args := slices.Concat([]string{"test", "-json", "-vet=off", "-ldflags=-w"}, flags, packages)
	cmd := exec.Command(goTool(), args...) // It is interrupted, and then has to clean up.
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	apart(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return results{}, err
	}
	if err := cmd.Start(); err != nil {
		return results{}, fmt.Errorf("starting go test: %w", err)
	}
	ended := make(chan struct{})
	go interrupt(ctx, cmd, ended)
	r, err = show(out, os.Stdout, slices.Contains(flags, "-v"))
	err = errors.Join(err, cmd.Wait())
	close(ended)
	if ctx.Err() != nil {
		return r, errors.Join(errors.New("interrupted"), err)
	}
	return r, errors.Join(err, record(r.times))
}

// grace is how long tests may take to clean up when they are interrupted.
const grace = 30 * time.Second

// interrupt interrupts go test and all tests when ctx ends, and kills them if they do
// not end.
func interrupt(ctx context.Context, cmd *exec.Cmd, ended <-chan struct{}) {
	select {
	case <-ended:
		return
	case <-ctx.Done():
	}
	signalAll(cmd, os.Interrupt)
	select {
	case <-ended:
	case <-time.After(grace):
		signalAll(cmd, os.Kill)
	}
}

// results are what came of tests: how long packages and tests took, which packages have failed, and which
// have printed what a fault of Go's runtime says.
type results struct {
	times          []took
	failed, faulty map[string]bool
	tests, passed  map[string][]string // Which tests have failed, and which have not, by package.
	ended          map[string]bool     // Which packages have come to an end, in whatever way,
	ran, broken    map[string]bool     // have run all tests, and have failed in another way, too.
}

// ranAll is what a package prints when it has run all tests and some have failed, theEnd how the last line begins that go test prints
// of it. What comes between is the error of a TestMain: that control planes did not end, or a program had crashed.
const (
	ranAll = "FAIL\n"
	theEnd = "FAIL\t"
)

// again returns the tests that are to be run once more, by package; nil if they are too many, if something else has failed,
// or if not all of the packages have come to an end.
func (r *results) again(packages []string) map[string][]string {
	n := 0
	for of := range r.failed {
		if len(r.tests[of]) == 0 || !r.ran[of] || r.broken[of] {
			return nil
		}
		n += len(r.tests[of])
	}
	for _, of := range packages {
		if !r.ended[of] {
			return nil
		}
	}
	if n == 0 || n > mostAgain {
		return nil
	}
	return r.tests
}

// show prints events as go test does without -json: of tests that pass nothing, unless
// all is wanted.
func show(from io.Reader, to io.Writer, all bool) (results, error) {
	r := results{
		failed: map[string]bool{}, faulty: map[string]bool{}, tests: map[string][]string{}, passed: map[string][]string{},
		ended: map[string]bool{}, ran: map[string]bool{}, broken: map[string]bool{},
	}
	output := map[string]*strings.Builder{} // Of tests that have not ended, by package and test.
	lines := bufio.NewReader(from)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var e event
			if json.Unmarshal(line, &e) != nil {
				fmt.Fprintf(to, "%s", line) // It is not of test2json.
				continue
			}
			r.times = append(r.times, e.show(to, output, all)...)
			r.add(&e)
		}
		if errors.Is(err, io.EOF) {
			return r, nil
		}
		if err != nil {
			return r, err
		}
	}
}

// harms are what no machine is too slow for, whichever test it fails: what the harness says of a program that has crashed or does not
// end, and what the race detector says.
var harms = []string{"a program has crashed", " did not end within ", "WARNING: DATA RACE"}

// faults returns the packages that have failed by a fault of Go's runtime, and by nothing else. Tests print what it says, too: those of
// this package do.
func (r *results) faults() (packages []string) {
	for _, of := range slices.Sorted(maps.Keys(r.failed)) {
		if r.faulty[of] && len(r.tests[of]) == 0 {
			packages = append(packages, of)
		}
	}
	return packages
}

func (r *results) add(e *event) {
	top := e.Test != "" && !strings.Contains(e.Test, "/")
	switch e.Action {
	case "pass", "skip", "fail":
		if e.Test == "" {
			r.ended[e.Package] = true
		}
		if e.Test == "" && e.Action == "fail" {
			r.failed[e.Package] = true
		}
		if top && e.Action == "fail" {
			r.tests[e.Package] = append(r.tests[e.Package], e.Test)
		}
		if top && e.Action == "pass" {
			r.passed[e.Package] = append(r.passed[e.Package], e.Test)
		}
	case "output":
		r.read(e)
	}
}

// read takes from what a package or its tests print whether more has failed than tests.
func (r *results) read(e *event) {
	if strings.Contains(e.Output, runtimeFault) {
		r.faulty[e.Package] = true
	}
	if slices.ContainsFunc(harms, func(harm string) bool { return strings.Contains(e.Output, harm) }) {
		r.broken[e.Package] = true
	}
	switch {
	case e.Test != "":
	case e.Output == ranAll:
		r.ran[e.Package] = true
	case r.ran[e.Package] && !strings.HasPrefix(e.Output, theEnd):
		r.broken[e.Package] = true
	}
}

func (e *event) show(to io.Writer, output map[string]*strings.Builder, all bool) []took {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "build-output":
		fmt.Fprint(to, e.Output)
	case "output":
		if all || (e.Test == "" && e.Output != "PASS\n") {
			fmt.Fprint(to, e.Output)
			return nil
		}
		if output[key] == nil {
			output[key] = &strings.Builder{}
		}
		output[key].WriteString(e.Output)
	case "fail":
		if text := output[key]; text != nil {
			fmt.Fprint(to, text)
		}
		if e.Test == "" {
			unended(to, output, e.Package)
		}
		fallthrough
	case "pass", "skip":
		delete(output, key)
		return []took{{What: strings.TrimPrefix(e.Package, module), Test: e.Test, Seconds: e.Elapsed}}
	}
	return nil
}

// unended prints what those tests of a package said that never ended, as their process did.
func unended(to io.Writer, output map[string]*strings.Builder, of string) {
	for _, key := range slices.Sorted(maps.Keys(output)) {
		if strings.HasPrefix(key, of+" ") {
			fmt.Fprint(to, output[key])
			delete(output, key)
		}
	}
}
