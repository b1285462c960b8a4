package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

// plan is what the user requests: a number of seeds, beginning with First.
type plan struct {
	First, Seeds uint64
	Steps        int
	Keep         bool // Continues after a violation.
	Story        bool // Prints the events.
}

// seed is the report of a process on one history.
type seed struct {
	Seed       uint64         `json:"seed"`
	Steps      int            `json:"steps"`
	Requests   int            `json:"requests"`
	Hash       string         `json:"hash"`
	Operations map[string]int `json:"ops"`
	Violation  string         `json:"violation"`
}

// prefix is the prefix of the line of a report.
const prefix = "SIM "

// simulation runs processes and collects their reports.
type simulation struct {
	plan      plan
	processes int
	program   string // The test binary of the simulation.
	dir       string // Folder for the profiles.
	folder    string // Working directory of the test.
	to        io.Writer
	progress  *progress

	mu       sync.Mutex
	next     uint64 // The first unassigned seed.
	seeds    map[uint64]seed
	violated map[uint64]string
	profile  profile
	lost     int                // Number of processes without a profile.
	stop     context.CancelFunc // Ends all processes except failing.
	failing  *exec.Cmd          // The process with the first violation. It ends by itself after it has printed its story.
}

func newSimulation(p plan, processes int, program, dir string, to io.Writer) *simulation {
	return &simulation{
		plan: p, processes: processes, program: program, dir: dir, folder: "test/simulate", to: to, progress: newProgress(to, p),
		next: p.First, seeds: map[uint64]seed{}, violated: map[uint64]string{}, profile: profile{},
	}
}

// run runs all seeds. It also returns an error if an invariant is violated.
func (s *simulation) run(ctx context.Context) error {
	var going context.Context
	going, s.stop = context.WithCancel(ctx)
	defer s.stop()
	var all sync.WaitGroup
	errs := make([]error, s.processes)
	for i := range errs {
		all.Go(func() {
			if errs[i] = s.work(ctx, going); errs[i] != nil {
				s.stop()
			}
		})
	}
	all.Wait()
	s.progress.end()
	err := errors.Join(errs...)
	if ctx.Err() != nil {
		err = errors.Join(err, errors.New("interrupted"))
	}
	if len(s.violated) > 0 {
		err = errors.Join(err, fmt.Errorf("invariants are violated in %d of %d histories", len(s.violated), len(s.seeds)))
	}
	return err
}

// work runs one process after the other, until no seeds are left or the context going ends.
func (s *simulation) work(ctx, going context.Context) error {
	for going.Err() == nil {
		first, n := s.take()
		if n == 0 {
			break
		}
		for n > 0 && going.Err() == nil {
			done, err := s.process(ctx, going, first, n)
			if err != nil {
				return err
			}
			first, n = first+done, n-done // The process has ended early because of a violation.
		}
	}
	return nil
}

// take returns the seeds for the next process. It returns fewer toward the end, so that all processes end at about the
// same time.
func (s *simulation) take() (first, n uint64) {
	const most, least = 50, 5
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.plan.First + s.plan.Seeds - s.next
	if left == 0 {
		return 0, 0
	}
	first, n = s.next, min(left, most, max(least, left/uint64(2*s.processes)))
	s.next += n
	return first, n
}

// process runs one process, and returns the number of finished seeds. A process ends early after a violation or a
// crash.
func (s *simulation) process(ctx, going context.Context, first, n uint64) (done uint64, err error) {
	ctx, end := context.WithCancel(ctx)
	defer end()
	file := filepath.Join(s.dir, fmt.Sprintf("%d.out", first))
	cmd := exec.CommandContext(ctx, s.program, "-test.run=^TestSimulate$", "-test.timeout=0", "-test.coverprofile="+file)
	cmd.Dir = s.folder
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=800", "GOMEMLIMIT=1GiB", // One goroutine runs at a time, and much memory is free.
		fmt.Sprint("REFRACT_FIRST=", first), fmt.Sprint("REFRACT_SEEDS=", n), fmt.Sprint("REFRACT_STEPS=", s.plan.Steps), "REFRACT_STRIDE=1")
	if s.plan.Story {
		cmd.Env = append(cmd.Env, "REFRACT_STORY=1")
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("starting the simulation: %w", err)
	}
	defer context.AfterFunc(going, func() {
		if !s.tells(cmd) {
			end()
		}
	})()
	said, last, err := s.read(out, cmd, first, n)
	failed := cmd.Wait()
	if ctx.Err() != nil {
		s.lose()
		return n, nil
	}
	if err := errors.Join(err, s.cover(file)); err != nil {
		return 0, err
	}
	told := s.told(first, last)
	switch all := last == first+n-1; {
	case failed == nil && !all:
		return 0, fmt.Errorf("TestSimulate in %s: want a line %q of seed %d, got an end after\n%s", s.folder, prefix, last+1, said)
	case failed != nil && all && told == nil:
		return 0, fmt.Errorf("TestSimulate in %s fails (%w) after histories without a violation:\n%s", s.folder, failed, said)
	case failed != nil && told == nil: // The process crashed in the next history.
		last++
		s.crashed(last, failed)
		told = []uint64{last}
	}
	s.tell(cmd, said, told)
	return last + 1 - first, nil
}

// told returns the seeds with a violation.
func (s *simulation) told(first, last uint64) (seeds []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(s.violated)) {
		if first <= n && n <= last {
			seeds = append(seeds, n)
		}
	}
	return seeds
}

func (s *simulation) crashed(n uint64, with error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.violated[n] = fmt.Sprintf("the process has crashed: %v", with)
}

// tell prints the output of a process that found violations or crashed.
func (s *simulation) tell(cmd *exec.Cmd, said string, violated []uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(violated) > 0 || s.plan.Story {
		s.progress.end()
		fmt.Fprintln(s.to, strings.TrimSuffix(said, "\n"))
	}
	for _, n := range violated {
		fmt.Fprintf(s.to, "seed %d: %s\nagain: make simulate SEED=%d STEPS=%d\n\n", n, s.violated[n], n, s.plan.Steps)
		s.end(cmd)
	}
}

// end ends all processes except the one with the first violation. The caller must hold the lock.
func (s *simulation) end(cmd *exec.Cmd) {
	if s.plan.Keep {
		return
	}
	if s.failing == nil {
		s.failing = cmd
	}
	s.stop()
}

// tells reports whether a process has found the first violation, whose story is printed.
func (s *simulation) tells(cmd *exec.Cmd) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failing == cmd
}

// read records the reports of a process. It returns the rest of the output, and the last seed with a report.
func (s *simulation) read(from io.Reader, cmd *exec.Cmd, first, n uint64) (said string, last uint64, err error) {
	var rest strings.Builder
	last = first - 1
	for lines := bufio.NewReader(from); ; {
		line, end := lines.ReadString('\n')
		text, found := strings.CutPrefix(line, prefix)
		switch {
		case found:
			var one seed
			if err = errors.Join(err, json.Unmarshal([]byte(text), &one)); err == nil && (one.Seed != last+1 || one.Seed >= first+n) {
				err = fmt.Errorf("TestSimulate in %s: want a line %q of seed %d, got %d", s.folder, prefix, last+1, one.Seed)
			}
			if err == nil {
				last = one.Seed
				s.record(one, cmd)
			}
		case line == "PASS\n", line == "FAIL\n", strings.HasPrefix(line, "coverage: "):
		default:
			rest.WriteString(line)
		}
		if errors.Is(end, io.EOF) {
			return rest.String(), last, err
		}
		if end != nil {
			return rest.String(), last, errors.Join(err, end)
		}
	}
}

// record adds the report of a seed.
func (s *simulation) record(one seed, cmd *exec.Cmd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeds[one.Seed] = one
	if one.Violation != "" {
		s.violated[one.Seed] = one.Violation
		s.end(cmd) // The other processes end now, because the search for a shorter story may take a while.
	}
	s.progress.show(time.Now(), one.Steps, len(s.violated))
}

// cover adds the profile of a process.
func (s *simulation) cover(name string) error {
	file, err := os.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		s.lose()
		return nil
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := errors.Join(s.profile.add(file), file.Close(), os.Remove(name)); err != nil {
		return fmt.Errorf("reading coverage: %w", err)
	}
	return nil
}

func (s *simulation) lose() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lost++
}

// printRun prints the result of all seeds.
func (s *simulation) printRun(to io.Writer, took time.Duration) {
	steps, requests, operations := 0, 0, map[string]int{}
	for _, one := range s.seeds {
		steps, requests = steps+one.Steps, requests+one.Requests
		for name, n := range one.Operations {
			operations[name] += n
		}
	}
	fmt.Fprintf(to, "%d of %d seeds from %d on, %d steps each, violations: %d, in %s\n",
		len(s.seeds), s.plan.Seeds, s.plan.First, s.plan.Steps, len(s.violated), took.Round(time.Second))
	for _, n := range slices.Sorted(maps.Keys(s.violated)) {
		fmt.Fprintf(to, "  seed %d: %s\n", n, s.violated[n])
	}
	fmt.Fprintf(to, "%d steps, %.0f a second; %d requests; hash of the histories %016x\n", steps, float64(steps)/took.Seconds(), requests, s.hash())
	printTable(to, "Operations and faults, by how often:", operations)
}

// hash returns a hash of all histories. The order in which they end does not change it.
func (s *simulation) hash() uint64 {
	var sum uint64
	for _, one := range s.seeds {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d %d %s\n", one.Seed, one.Steps, one.Hash)
		sum += h.Sum64()
	}
	return sum
}
