package simulate

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// invariants are the promises that the simulation checks.
var invariants = []string{
	"deletion-without-cause", "volume-deleted", "unreleased-content", "halted-or-reverted", "two-writers",
	"old-decision", "differs-from-render", "wrong-status", "too-many-requests", "stuck",
	"restart-beyond-budget", "policy-status", "two-injectors", // Restarts for injection.
}

const (
	// leastFaults is the minimum number of faults.
	leastFaults = 44
	// longestSearch is the time limit of a run of a program.
	longestSearch = 20 * time.Minute
)

// TestFaultsApply: each fault can still be applied to the code.
func TestFaultsApply(t *testing.T) {
	if len(faults) < leastFaults {
		t.Errorf("want at least %d faults, got %d", leastFaults, len(faults))
	}
	names := map[string]bool{}
	for i := range faults {
		f := &faults[i]
		if _, _, err := mutated(f); err != nil {
			t.Error(err)
		}
		if !slices.Contains(invariants, f.Invariant) {
			t.Errorf("fault %q: want one of the invariants %q, got %q", f.Name, invariants, f.Invariant)
		}
		if names[f.Name] {
			t.Errorf("fault %q is listed twice", f.Name)
		}
		names[f.Name] = true
	}
}

// violation matches the line of TestSimulate that names the broken promise.
var violation = regexp.MustCompile(`violation: (\S+) seed=(\d+) step=(\d+): (.*)`)

// TestFaults: TestSimulate finds each fault. It runs only with REFRACT_FAULTS=all, or with the numbers of faults, such
// as REFRACT_FAULTS=3,14. REFRACT_FIRST and REFRACT_SEEDS are the lowest and the highest seed of the search (1, 2000),
// REFRACT_STEPS is the length of a history. It needs -timeout 0. Faults 16 and 17 need
// the scenes of seeds from 10001 on, and histories of 80 steps.
//
// A program contains several faults at once, because its compilation and each history take seconds. When a seed breaks
// a promise, programs with one fault each show which fault is the cause. The seed counts only if the code without
// faults keeps all promises with it. A history that does not end in time does not count, because the machine may be
// busy.
func TestFaults(t *testing.T) {
	list := os.Getenv("REFRACT_FAULTS")
	if list == "" {
		t.Skip("each fault needs a compilation of the controllers: set REFRACT_FAULTS=all, or the numbers of faults")
	}
	s := &search{dir: t.TempDir(), highest: numberFrom(t, "REFRACT_SEEDS", 2000)}
	for i := range faults {
		if list == "all" || slices.Contains(strings.Split(list, ","), strconv.Itoa(i)) {
			s.queue = append(s.queue, &sought{Fault: &faults[i], number: i, next: numberFrom(t, "REFRACT_FIRST", 1)})
		}
	}
	if want := len(strings.Split(list, ",")); list != "all" && len(s.queue) != want {
		t.Fatalf("REFRACT_FAULTS=%s: want all, or numbers below %d, each once", list, len(faults))
	}
	var err error
	if s.healthy, _, err = s.compile(t.Context(), "healthy"); err != nil {
		t.Fatal(err)
	}
	lanes, ctx := errgroup.WithContext(t.Context())
	for lane := range runtime.NumCPU() {
		lanes.Go(func() error { return s.run(ctx, fmt.Sprint("lane", lane)) })
	}
	if err := lanes.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, f := range s.missed {
		t.Errorf("fault %d, %s: not found by %d seeds (endless: %t): %s", f.number, f.Row, f.tried, f.endless, f.Name)
	}
}

const (
	// groupSize is the number of faults in a program. After groupHistories histories without a violation, the faults of
	// a group are mixed with those of other groups.
	groupSize, groupHistories = 8, 40
	// mostUnexplained is the number of violations without a single cause after which a group is divided.
	mostUnexplained = 3
)

// search looks for seeds that show the faults.
type search struct {
	dir, healthy string
	highest      int

	mu     sync.Mutex
	queue  []*sought
	missed []*sought
}

// sought is a fault without a known seed.
type sought struct {
	*Fault
	number int
	next   int    // The next seed.
	tried  int    // Number of seeds tried. A group skips seeds, because it begins with the highest next seed of its faults.
	alone  string // The program with this fault only; empty before its compilation.
	// endless is true if the search was given up because the violations with this fault alone did not count: the
	// histories did not end in time, or the code without faults broke a promise, too.
	endless bool
}

// run looks for groups of faults until the queue is empty.
func (s *search) run(ctx context.Context, lane string) error {
	for {
		s.mu.Lock()
		n := min(groupSize, len(s.queue))
		group := slices.Clone(s.queue[:n])
		s.queue = s.queue[n:]
		s.mu.Unlock()
		if n == 0 {
			return nil
		}
		if err := s.find(ctx, lane, group); err != nil {
			return err
		}
	}
}

// find looks for one of the faults of a group, and returns the others to the queue. It returns the second half of a
// group to the queue if violations have no single cause, if histories do not end, or if the program cannot be compiled,
// and continues with the first half.
func (s *search) find(ctx context.Context, lane string, group []*sought) error {
	program, left, err := s.compile(ctx, lane, group...)
	if err != nil && len(group) > 1 {
		s.later(group[len(group)/2:]...)
		return s.find(ctx, lane, group[:len(group)/2])
	}
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(program))
	s.later(left...)
	group = slices.DeleteFunc(group, func(f *sought) bool { return slices.Contains(left, f) })
	seed := 0
	for _, f := range group {
		seed = max(seed, f.next)
	}
	var found *sought
	first, end, unexplained := seed, min(seed+groupHistories, s.highest+1), 0
	for seed < end && found == nil && unexplained < mostUnexplained {
		b, broken, err := simulated(ctx, program, seed, end-seed)
		if err != nil {
			return err
		}
		if !broken {
			seed = end
			break
		}
		seed = b.seed + 1
		if !b.slow {
			if found, err = s.explain(ctx, group, &b); err != nil {
				return err
			}
		}
		unexplained++
	}
	for _, f := range group {
		f.next, f.tried = seed, f.tried+seed-first
	}
	group = slices.DeleteFunc(group, func(f *sought) bool { return f == found })
	switch {
	case found != nil, unexplained < mostUnexplained:
		s.later(group...)
		return nil
	case len(group) == 1:
		group[0].next, group[0].endless = s.highest+1, true
		s.later(group...)
		return nil
	}
	s.later(group[len(group)/2:]...)
	return s.find(ctx, lane, group[:len(group)/2])
}

// explain returns the fault that alone breaks a promise with the seed. found is nil if no fault does, or if the code
// without faults breaks a promise with the seed, too.
func (s *search) explain(ctx context.Context, group []*sought, b *breach) (found *sought, err error) {
	if _, broken, err := simulated(ctx, s.healthy, b.seed, 1); err != nil || broken {
		return nil, err
	}
	var likely, others []*sought
	for _, f := range group {
		if f.Invariant == b.promise {
			likely = append(likely, f)
		} else {
			others = append(others, f)
		}
	}
	for _, f := range append(likely, others...) {
		if f.alone == "" {
			program, _, err := s.compile(ctx, fmt.Sprint(f.number), f)
			if err != nil {
				return nil, err
			}
			f.alone = program
		}
		alone, broken, err := simulated(ctx, f.alone, b.seed, 1)
		if err != nil {
			return nil, err
		}
		if broken && !alone.slow {
			fmt.Fprintf(os.Stderr, "found fault %d, %s: seed %d, %s (expected %s): %s\n   %s\n",
				f.number, f.Row, b.seed, alone.promise, f.Invariant, f.Name, alone.message)
			return f, os.RemoveAll(filepath.Dir(f.alone))
		}
	}
	return found, nil
}

// later returns faults to the queue. A fault without seeds left counts as missed.
func (s *search) later(faults ...*sought) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range faults {
		if f.next > s.highest {
			s.missed = append(s.missed, f)
			continue
		}
		s.queue = append(s.queue, f)
	}
}

// compile returns a test binary with the faults. left has the faults that it omits, because they change the same place
// as an earlier one.
func (s *search) compile(ctx context.Context, name string, together ...*sought) (program string, left []*sought, err error) {
	dir, err := os.MkdirTemp(s.dir, name)
	if err != nil {
		return "", nil, err
	}
	var all []*Fault
	for _, f := range together {
		all = append(all, f.Fault)
	}
	texts, apart, err := mutated(all...)
	if err != nil {
		return "", nil, err
	}
	for _, f := range together {
		if slices.Contains(apart, f.Fault) {
			left = append(left, f)
		}
	}
	file, err := overlay(dir, texts)
	if err != nil {
		return "", nil, err
	}
	program = filepath.Join(dir, "simulate.test")
	if out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-overlay", file, "-o", program, ".").CombinedOutput(); err != nil {
		return "", nil, fmt.Errorf("compiling %s: %w\n%s", name, err, out)
	}
	return program, left, nil
}

// breach is a broken promise.
type breach struct {
	promise, message string
	seed             int
	slow             bool // True if the history did not end in time.
}

// simulated runs histories until one breaks a promise, and returns the breach. broken is false if none does.
func simulated(ctx context.Context, program string, first, histories int) (b breach, broken bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, longestSearch)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "-test.run", "^TestSimulate$", "-test.timeout", "0")
	cmd.Env = append(os.Environ(), "REFRACT_SHRINK=0", "GOMAXPROCS=1", fmt.Sprint("REFRACT_FIRST=", first), fmt.Sprint("REFRACT_SEEDS=", histories))
	out, err := cmd.CombinedOutput()
	if err == nil {
		return breach{}, false, nil
	}
	v := violation.FindStringSubmatch(string(out))
	if v == nil {
		return breach{}, false, fmt.Errorf("TestSimulate ends in another way: %w\n%s", cmp.Or(ctx.Err(), err), last(string(out)))
	}
	seed, err := strconv.Atoi(v[2])
	if err != nil {
		return breach{}, false, fmt.Errorf("reading the seed: %w", err)
	}
	return breach{promise: v[1], message: v[4], seed: seed, slow: strings.Contains(v[4], "the history has not ended after")}, true, nil
}

// last returns the end of an output.
func last(out string) string {
	const most = 4000
	return out[max(0, len(out)-most):]
}
