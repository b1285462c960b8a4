package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestMain replaces the simulation by [pretend] if REFRACT_FAKE is set. The variable lists what happens with some
// seeds.
func TestMain(m *testing.M) {
	if fates, ok := os.LookupEnv("REFRACT_FAKE"); ok {
		os.Exit(pretend(fates))
	}
	os.Exit(m.Run())
}

// pretend prints the same as TestSimulate of test/simulate. fates has the form 3=violates,9=crashes.
func pretend(fates string) (code int) {
	fate := map[int]string{}
	for of := range strings.SplitSeq(fates, ",") {
		n, what, _ := strings.Cut(of, "=")
		seed, _ := strconv.Atoi(n)
		fate[seed] = what
	}
	first, _ := strconv.Atoi(os.Getenv("REFRACT_FIRST"))
	n, _ := strconv.Atoi(os.Getenv("REFRACT_SEEDS"))
	steps, _ := strconv.Atoi(os.Getenv("REFRACT_STEPS"))
	line := func(seed int, violation string) {
		fmt.Fprintf(os.Stdout, "SIM {\"seed\":%d,\"steps\":%d,\"requests\":10,\"hash\":\"h%d\",\"ops\":{\"edit\":2,\"kill\":1},\"violation\":%q}\n", seed, steps, seed, violation)
	}
	block := "1 0"
	for seed := first; seed < first+n && code == 0; seed++ {
		switch fate[seed] {
		case "violates":
			line(seed, "stuck: it waits")
			fmt.Fprintf(os.Stdout, "the story of %d\n", seed)
			code = 1
		case "crashes":
			fmt.Fprintln(os.Stdout, "panic: oh")
			os.Exit(2)
		case "hangs":
			ctx, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM)
			<-ctx.Done()
		case "unsaid":
			fmt.Fprintln(os.Stdout, "nothing")
		default:
			line(seed, "")
			block = "1 1"
		}
	}
	if os.Getenv("REFRACT_STORY") != "" {
		fmt.Fprintln(os.Stdout, "the whole story")
	}
	for _, arg := range os.Args {
		if file, ok := strings.CutPrefix(arg, "-test.coverprofile="); ok {
			_ = os.WriteFile(file, []byte("mode: set\nrefract.dev/fleet/policy/rollout/plan.go:3.18,3.33 "+block+"\n"), 0o600)
		}
	}
	fmt.Fprintln(os.Stdout, map[bool]string{true: "PASS", false: "FAIL"}[code == 0])
	return code
}

func TestRun(t *testing.T) {
	const hash = "hash of the histories "
	cases := map[string]struct {
		reason string
		plan   plan
		fates  string
		err    string
		seeds  int
		lost   int
		has    []string
		hasNot []string
	}{
		"All": {
			"Each seed is simulated once.", plan{First: 7, Seeds: 12, Steps: 5}, "", "", 12, 0,
			[]string{"12 of 12 seeds from 7 on, 5 steps each, violations: 0", "60 steps", "120 requests", "24  edit", "12  kill"}, []string{"story", "PASS"},
		},
		"Violation": {
			"The first violation ends all processes, and its story is printed.", plan{First: 1, Seeds: 20, Steps: 5}, "3=violates,6=hangs", "invariants are violated in 1 of 3 histories", 3, 1,
			[]string{"the story of 3\nseed 3: stuck: it waits\nagain: make simulate SEED=3 STEPS=5\n", "3 of 20 seeds"}, []string{"FAIL"},
		},
		"Keep": {
			"With Keep, all violations are found, and all other seeds are simulated.", plan{First: 1, Seeds: 9, Steps: 5, Keep: true}, "3=violates,4=violates,9=violates", "invariants are violated in 3 of 9 histories", 9, 0,
			[]string{"the story of 3\n", "the story of 4\n", "the story of 9\n", "9 of 9 seeds", "violations: 3"}, nil,
		},
		"Crash": {
			"A crash is reported with the output of the process, and the seeds after it are simulated.", plan{First: 1, Seeds: 5, Steps: 5, Keep: true}, "4=crashes", "invariants are violated in 1 of 4 histories", 4, 1,
			[]string{"panic: oh\nseed 4: the process has crashed: exit status 2\n"}, nil,
		},
		"Story": {
			"With Story, the events are printed although there is no violation.", plan{First: 9, Seeds: 1, Steps: 5, Story: true}, "", "", 1, 0,
			[]string{"the whole story\n"}, nil,
		},
		"Unsaid": {
			"A process without a report on a seed is a failure.", plan{First: 1, Seeds: 2, Steps: 5}, "2=unsaid", "want a line \"SIM \" of seed 2, got an end after\nnothing\n", 1, 0,
			nil, nil,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Setenv("REFRACT_FAKE", tc.fates)
			program, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			s := newSimulation(tc.plan, 2, program, t.TempDir(), &out)
			s.folder = "."
			said := ""
			if err := s.run(t.Context()); err != nil {
				said = err.Error()
			}
			s.printRun(&out, time.Minute)
			if tc.err == "" && said != "" || !strings.Contains(said, tc.err) {
				t.Errorf("%s\nrun() error: want %q, got %q", tc.reason, tc.err, said)
			}
			if name != "Violation" && len(s.seeds) != tc.seeds || len(s.seeds) < tc.seeds || s.lost != tc.lost {
				t.Errorf("%s\nrun(): want %d seeds and %d lost profiles, got %d and %d", tc.reason, tc.seeds, tc.lost, len(s.seeds), s.lost)
			}
			for _, want := range append(tc.has, hash) {
				if !strings.Contains(out.String(), want) {
					t.Errorf("%s\nrun(): want %q to be printed, got\n%s", tc.reason, want, &out)
				}
			}
			for _, unwanted := range tc.hasNot {
				if strings.Contains(out.String(), unwanted) {
					t.Errorf("%s\nrun(): want %q not to be printed, got\n%s", tc.reason, unwanted, &out)
				}
			}
			if want := (profile{{"fleet/policy/rollout/plan.go", position{3, 18}, position{3, 33}}: {1, true}}); said == "" && !cmp.Equal(want, s.profile, cmp.AllowUnexported(block{}, position{}, visit{})) {
				t.Errorf("%s\nrun(): want the merged profile %v, got %v", tc.reason, want, s.profile)
			}
		})
	}
}

// TestInterrupted: processes end together with the program that started them.
func TestInterrupted(t *testing.T) {
	t.Setenv("REFRACT_FAKE", "1=hangs")
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	s := newSimulation(plan{First: 1, Seeds: 1, Steps: 1}, 1, program, t.TempDir(), &strings.Builder{})
	s.folder = "."
	if err := s.run(ctx); err == nil || err.Error() != "interrupted" {
		t.Errorf("run(): want an interruption, got %v", err)
	}
}

// TestHash: two runs have the same hash if, and only if, their histories have the same hashes.
func TestHash(t *testing.T) {
	of := func(all ...seed) uint64 {
		s := &simulation{seeds: map[uint64]seed{}}
		for _, one := range all {
			s.seeds[one.Seed] = one
		}
		return s.hash()
	}
	a, b := seed{Seed: 1, Steps: 3, Hash: "a"}, seed{Seed: 2, Steps: 3, Hash: "b"}
	if of(a, b) != of(b, a) {
		t.Error("hash(): want the same hash for any order of the ends of seeds")
	}
	swapped := []seed{{Seed: 1, Steps: 3, Hash: "b"}, {Seed: 2, Steps: 3, Hash: "a"}}
	if of(a, b) == of(a) || of(a, b) == of(swapped...) {
		t.Error("hash(): want another hash for other histories")
	}
}

func TestProgress(t *testing.T) {
	var out strings.Builder
	p := newProgress(&out, plan{First: 1, Seeds: 40, Steps: 300})
	for i := range 21 {
		p.show(p.began.Add(time.Duration(i)*time.Second), 300, i/15)
	}
	p.end()
	const want = "11 of 40 seeds, 3300 steps, 330 a second, violations: 0, 26s left\n21 of 40 seeds, 6300 steps, 315 a second, violations: 1, 18s left\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("show(): -want, +got:\n%s", diff)
	}
	out.Reset()
	p.terminal, p.every = true, 0
	p.show(p.began.Add(22*time.Second), 300, 1)
	p.end()
	if want := "\r22 of 40 seeds, 6600 steps, 300 a second, violations: 1, 18s left\x1b[K\n"; out.String() != want {
		t.Errorf("show(): want %q on a terminal, got %q", want, out.String())
	}
}
