package fuzzed

import (
	"fmt"
	"testing"
)

// failures is a test that records its errors.
type failures struct {
	testing.TB

	texts []string
}

func (*failures) Helper() {}

func (f *failures) Errorf(format string, args ...any) {
	f.texts = append(f.texts, fmt.Sprintf(format, args...))
}

// kept stores the allocations of the tests, so that the compiler cannot remove them.
var kept []byte

func TestRun(t *testing.T) {
	panics := 0
	count := func() int { return panics }
	cases := map[string]struct {
		reason string
		do     func()
		want   int
	}{
		"Little":  {"A small allocation is allowed.", func() { kept = make([]byte, 1<<10) }, 0},
		"Much":    {"A large allocation fails the test.", func() { kept = make([]byte, 2*always) }, 1},
		"Garbage": {"Many small allocations fail the test, too.", func() { garbage(2 * always) }, 1},
		"Rescued": {"A rescued panic fails the test.", func() { panics++ }, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := &failures{TB: t}
			Run(f, func() int { tc.do(); return 0 }, count)
			if len(f.texts) != tc.want {
				t.Errorf("%s\nwant %d failures, got %q", tc.reason, tc.want, f.texts)
			}
		})
	}
}

func garbage(size int) {
	for range size >> 10 {
		kept = make([]byte, 1<<10)
	}
}

func TestFor(t *testing.T) {
	if got := For(MiB); got != Most {
		t.Errorf("For(1 MiB): want %d, got %d", Most, got)
	}
	if got := For(0); got == 0 || got > Most/4 {
		t.Errorf("For(0): want something, and little, got %d", got)
	}
}
