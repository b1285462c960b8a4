// Command coverage is `make simulate`: it runs the simulation of test/simulate on all processors, and prints
// violations, the speed, and the coverage of the controllers.
//
// It builds the test of the simulation with coverage, and runs one process per processor. Each process gets some dozens
// of seeds, and a new process continues with the next seeds. So all processors finish at about the same time, and a
// crash loses little coverage. A process prints one line for each seed: `SIM ` and a JSON object (see [seed]). All
// other lines are the story of a violation.
//
// The coverage counts the basic blocks of Go, not statements: a long block is one branch, like a short one. A condition
// without `else` has one branch. unreached.txt lists functions that no simulation can reach, with their reasons.
//
// The command writes bin/simulate/coverage.out for `go tool cover -html`, and bin/simulate/uncovered.txt with all
// uncovered blocks.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// results is the folder of the output files.
const results = "bin/simulate"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1) //nolint:forbidigo // It is main.
	}
}

func run(ctx context.Context, args []string, to io.Writer) (err error) {
	p := plan{Seeds: 1000}
	flags := flag.NewFlagSet("coverage", flag.ContinueOnError)
	flags.Uint64Var(&p.First, "first", 1, "the first `seed`")
	flags.Uint64Var(&p.Seeds, "seeds", p.Seeds, "how `many` seeds")
	flags.IntVar(&p.Steps, "steps", 300, "how `many` steps each history has")
	flags.BoolVar(&p.Keep, "keep", false, "go on after a violation")
	story := flags.Uint64("seed", 0, "print the story of this `seed` alone")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *story > 0 {
		p.First, p.Seeds, p.Story = *story, 1, true
	}
	if flags.NArg() > 0 || p.Seeds == 0 || p.Steps < 1 {
		return errors.New("want at least one seed and one step, and nothing but flags")
	}
	dir, err := os.MkdirTemp("", "refract-simulate-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	program := filepath.Join(dir, "simulate.test")
	from, err := readSources(os.DirFS("."))
	if err != nil {
		return err
	}
	if err := build(ctx, program, to); err != nil {
		return err
	}
	s := newSimulation(p, runtime.GOMAXPROCS(0), program, dir, to)
	began := time.Now()
	ran := s.run(ctx)
	if len(s.seeds) == 0 {
		return ran
	}
	s.printRun(to, time.Since(began))
	if p.Story {
		return ran
	}
	return errors.Join(ran, s.printCoverage(from))
}

// build compiles the test of the simulation, with coverage of the simulated packages.
func build(ctx context.Context, program string, to io.Writer) error {
	fmt.Fprintln(to, "compiling the simulation with coverage (minutes at first)")
	cmd := exec.CommandContext(ctx, cmp.Or(os.Getenv("GO"), "go"),
		"test", "-c", "-vet=off", "-ldflags=-w", "-cover", "-covermode=set", "-coverpkg="+strings.Join(packages(), ","), "-o", program, "./test/simulate")
	cmd.Stdout, cmd.Stderr = to, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("compiling ./test/simulate: %w", err)
	}
	return nil
}

// printCoverage prints the covered branches, and writes the output files.
func (s *simulation) printCoverage(from sources) error {
	var merged, uncovered strings.Builder
	s.profile.write(&merged)
	if err := errors.Join(os.MkdirAll(results, 0o755), os.WriteFile(results+"/coverage.out", []byte(merged.String()), 0o600)); err != nil {
		return err
	}
	text, err := os.ReadFile(unreachedFile)
	if err != nil {
		return err
	}
	reasons, err := parseUnreached(unreachedFile, string(text))
	if err != nil {
		return err
	}
	c, err := s.profile.coverage(from, reasons)
	c.print(s.to)
	c.list(&uncovered)
	if s.lost > 0 {
		fmt.Fprintf(s.to, "\nThe coverage of stopped or crashed processes is missing: %d\n", s.lost)
	}
	fmt.Fprintf(s.to, "\nAll uncovered blocks are in %s/uncovered.txt. To see them in the code: go tool cover -html=%s/coverage.out\n", results, results)
	return errors.Join(err, os.WriteFile(results+"/uncovered.txt", []byte(uncovered.String()), 0o600))
}
