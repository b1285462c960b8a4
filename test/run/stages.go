package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// timesVariable names the file that stages append the durations of their parts to.
const timesVariable = "REFRACT_TEST_TIMES"

// took is the duration of a stage, a package or a test.
type took struct {
	What    string  `json:"what"`           // A stage or a package.
	Test    string  `json:"test,omitempty"` // Name of the test; empty for a package.
	Seconds float64 `json:"seconds"`
	Again   bool    `json:"again,omitempty"` // The test failed, and passed when it ran once more.
}

// record appends durations to the file that stages reads, if there is one.
func record(times []took) (err error) {
	path := os.Getenv(timesVariable)
	if path == "" {
		return nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	to := json.NewEncoder(file)
	for _, t := range times {
		if err := to.Encode(t); err != nil {
			return err
		}
	}
	return nil
}

// stages runs make for each target until one fails. It then prints the durations of the targets, and of the packages
// and tests in them.
func stages(ctx context.Context, to io.Writer, targets []string) (err error) {
	times, err := os.CreateTemp("", "refract-times-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, times.Close(), os.Remove(times.Name())) }()
	began := time.Now()
	var all []took
	var failed error
	for _, target := range targets {
		from := time.Now()
		// The terminal sends interrupts to make, too. Without a terminal, only SIGTERM ends make, because it may ignore
		// interrupts.
		cmd := exec.CommandContext(ctx, cmp.Or(os.Getenv("MAKE"), "make"), target)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
		cmd.Env = append(os.Environ(), timesVariable+"="+times.Name())
		cmd.Stdout, cmd.Stderr = to, os.Stderr
		failed = cmd.Run()
		all = append(all, took{What: target, Seconds: time.Since(from).Seconds()})
		if failed != nil {
			failed = fmt.Errorf("make %s: %w", target, failed)
			break
		}
	}
	if ctx.Err() != nil {
		return errors.Join(errors.New("interrupted"), failed)
	}
	parts, err := decode[took](times)
	if err != nil {
		return errors.Join(failed, fmt.Errorf("reading %s: %w", times.Name(), err))
	}
	return errors.Join(failed, report(to, time.Since(began), all, parts))
}

// decode returns all JSON values of a stream.
func decode[T any](from io.Reader) (all []T, err error) {
	for d := json.NewDecoder(from); ; {
		var one T
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
}

// report prints the stages in their order, then the slowest packages and tests. Packages and tests may have run concurrently.
func report(to io.Writer, whole time.Duration, stages, parts []took) error {
	const packages, tests = 15, 10
	slices.SortStableFunc(parts, func(a, b took) int { return cmp.Compare(b.Seconds, a.Seconds) })
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	section := func(title string, of []took) {
		fmt.Fprintf(w, "\n%s\n", title)
		for _, t := range of {
			fmt.Fprintf(w, "%s\t  %s\n", seconds(t.Seconds), strings.TrimSpace(t.What+" "+t.Test))
		}
	}
	section("What took how long:", append(stages, took{What: "all", Seconds: whole.Seconds()}))
	if again := first(len(parts), parts, func(t took) bool { return t.Again }); len(again) > 0 {
		fmt.Fprintln(w, "\nFailed, and passed when run once more, alone. Each has something to be mended:")
		for _, t := range again {
			fmt.Fprintf(w, "  %s %s\n", t.What, t.Test)
		}
	}
	section("The slowest packages:", first(packages, parts, func(t took) bool { return t.Test == "" }))
	section("The slowest tests:", first(tests, parts, func(t took) bool { return t.Test != "" && !t.Again && !strings.Contains(t.Test, "/") }))
	return w.Flush()
}

// first returns the first n entries for which the function wanted returns true.
func first(n int, of []took, wanted func(took) bool) []took {
	var out []took
	for _, t := range of {
		if wanted(t) && len(out) < n {
			out = append(out, t)
		}
	}
	return out
}

// seconds formats a duration: 12.3 s, 4 min 5 s.
func seconds(s float64) string {
	if s < 60 {
		return fmt.Sprintf("%.1f s", s)
	}
	whole := int(s + 0.5)
	return fmt.Sprintf("%d min %02d s", whole/60, whole%60)
}
