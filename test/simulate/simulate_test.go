// This setting makes seeds of math/rand effective: libraries draw their waits from it.

//go:debug randseednop=0

package simulate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand"
	"os"
	"runtime"
	"runtime/pprof"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

const (
	// defaultSeeds and defaultSteps apply to `go test`; `make histories` has its own values.
	defaultSeeds, defaultSteps = 3, 50
	// longestRun is the time limit of one history. longestShrink is the time limit of the search for a shorter one. A
	// history of TestRepeats takes up to 40 seconds with the race detector on a busy machine.
	longestRun, longestShrink = 4 * time.Minute, time.Minute
)

// inBubble runs a plan. If this takes too long, it ends the test binary, because a goroutine that holds a mutex during
// a request blocks the whole bubble forever.
func inBubble(t *testing.T, seed uint64, p Plan, to io.Writer) (r *Result) {
	t.Helper()
	if to == nil {
		klog.SetLogger(logr.Discard()) // klog reports broken watches.
	}
	watchdog := time.AfterFunc(longestRun, func() {
		fmt.Fprintf(os.Stderr, "seed %d (%d steps) has not ended after %s; all goroutines:\n", seed, len(p.Steps), longestRun)
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2) // The output is only for people.
		fmt.Fprintf(os.Stderr, "violation: stuck seed=%d step=0: the history has not ended after %s\n", seed, longestRun)
		os.Exit(2) // A test cannot end.
	})
	defer watchdog.Stop()
	ended := false
	defer func() {
		if !ended {
			fmt.Fprintf(os.Stderr, "seed %d (%d steps) ends with a panic\n", seed, len(p.Steps))
		}
	}()
	synctest.Test(t, func(*testing.T) { r = Run(p, to) })
	ended = true
	return r
}

// line is the report of a history, in the form that test/simulate/coverage reads.
type line struct {
	Seed       uint64         `json:"seed"`
	Steps      int            `json:"steps"`
	Requests   int            `json:"requests"`
	Hash       string         `json:"hash"`
	Operations map[string]int `json:"ops"`
	Violation  string         `json:"violation"`
}

// TestSimulate runs histories by their seeds. REFRACT_SEEDS is the number of histories, REFRACT_STEPS their length;
// REFRACT_FIRST and REFRACT_STRIDE select the seeds. REFRACT_SEED selects a single history and prints its story;
// REFRACT_LOG=1 prints all requests.
func TestSimulate(t *testing.T) {
	steps := numberFrom(t, "REFRACT_STEPS", defaultSteps)
	first, n, stride := numberFrom(t, "REFRACT_FIRST", 1), numberFrom(t, "REFRACT_SEEDS", defaultSeeds), numberFrom(t, "REFRACT_STRIDE", 1)
	if one := numberFrom(t, "REFRACT_SEED", 0); one > 0 {
		first, n = one, 1
		t.Setenv("REFRACT_STORY", "1")
	}
	var to io.Writer
	if os.Getenv("REFRACT_LOG") != "" {
		to = os.Stderr
	}
	says := cmp.Or(os.Getenv("REFRACT_JSON"), os.Getenv("REFRACT_FIRST")) != ""
	for i := range n {
		seed := uint64(first + i*stride) // All of them are positive.
		p := NewPlan(seed, steps)
		r := inBubble(t, seed, p, to)
		if says {
			say(seed, steps, r)
		}
		if os.Getenv("REFRACT_STORY") != "" && r.Violation == nil {
			Story(os.Stdout, seed, r, r)
		}
		if r.Violation == nil {
			continue
		}
		v, whole := r.Violation, r
		if numberFrom(t, "REFRACT_SHRINK", 1) != 0 {
			r = shorter(t, seed, p, r)
		}
		Story(os.Stdout, seed, whole, r)
		t.Fatalf("violation: %s seed=%d step=%d: %s", v.Invariant, seed, v.Step, v.Message)
	}
}

func say(seed uint64, steps int, r *Result) {
	said := line{seed, steps, r.Requests, r.Hash, r.Operations, ""}
	if v := r.Violation; v != nil {
		said.Violation = v.Invariant + ": " + v.Message
	}
	text, err := json.Marshal(said)
	if err != nil {
		panic(err) // Strings and numbers can be encoded.
	}
	fmt.Fprintf(os.Stdout, "SIM %s\n", text)
}

// shorter returns the result of a shorter plan that breaks the same promise.
func shorter(t *testing.T, seed uint64, p Plan, r *Result) *Result {
	t.Helper()
	end := time.Now().Add(longestShrink)
	best := r
	Shrink(p, func(p Plan) *Broken {
		if time.Now().After(end) {
			return nil
		}
		got := inBubble(t, seed, p, nil)
		if got.Violation != nil && got.Violation.Invariant == r.Violation.Invariant {
			best = got
		}
		return got.Violation
	})
	return best
}

// TestRepeats: a seed always gives the same history, even while other goroutines use all processors.
func TestRepeats(t *testing.T) {
	steps := numberFrom(t, "REFRACT_STEPS", 20)
	for seed := uint64(1); seed <= 2; seed++ {
		p := NewPlan(seed, steps)
		one, other := inBubble(t, seed, p, nil).Hash, inBubble(t, seed, p, nil).Hash
		end := loaded()
		third := inBubble(t, seed, p, nil).Hash
		end()
		if one != other || one != third {
			t.Errorf("seed %d gave different histories: %s, %s, and %s under load", seed, one, other, third)
		}
	}
}

// loaded starts goroutines that use all processors. end ends them.
func loaded() (end func()) {
	done := make(chan struct{})
	for range 2 * runtime.GOMAXPROCS(0) {
		go func() {
			for n := 0; ; n++ {
				if n%1000 != 0 {
					continue
				}
				select {
				case <-done:
					return
				default:
					runtime.Gosched() // Without this call, each switch to the history would take ten milliseconds.
				}
			}
		}()
	}
	return func() { close(done) }
}

// TestSeedsOfLibraries: a seed makes the random numbers of libraries repeatable. This needs a directive of this file.
func TestSeedsOfLibraries(t *testing.T) {
	draw := func() int64 {
		mathrand.Seed(7) //nolint:staticcheck // It is what is asked.
		return mathrand.Int63()
	}
	if one, other := draw(), draw(); one != other {
		t.Errorf("rand.Seed has no effect: %d and %d", one, other)
	}
}

// TestShrink: the search finds the three steps that a violation needs.
func TestShrink(t *testing.T) {
	runs := 0
	p := NewPlan(1, 300)
	needed := map[uint64]bool{p.Steps[3]: true, p.Steps[120]: true, p.Steps[121]: true}
	fails := func(p Plan) *Broken {
		runs++
		seen := 0
		for i, step := range p.Steps {
			if needed[step] {
				seen++
			}
			if seen == len(needed) {
				return &Broken{Invariant: "stuck", Step: i + 1}
			}
		}
		if len(p.Steps)%2 == 0 {
			return &Broken{Invariant: "wrong-status", Step: 1} // A violation of another promise does not count.
		}
		return nil
	}
	got := Shrink(p, fails)
	if len(got.Steps) != len(needed) || got.Seed != p.Seed {
		t.Errorf("want %d steps, got %d", len(needed), len(got.Steps))
	}
	if runs > mostShrinks {
		t.Errorf("want at most %d runs, got %d", mostShrinks, runs)
	}
}
