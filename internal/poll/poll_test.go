package poll

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// recorder is a testing.TB that records failures. Code under test must call only the methods below.
type recorder struct {
	testing.TB

	ctx   context.Context //nolint:containedctx // A test has one.
	fatal string
	logs  []string
}

func (r *recorder) Helper()                  {}
func (r *recorder) Context() context.Context { return r.ctx }
func (r *recorder) Logf(format string, args ...any) {
	r.logs = append(r.logs, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// record runs do as a test, and returns the recorded failures.
func record(ctx context.Context, do func(testing.TB)) *recorder {
	r := &recorder{ctx: ctx}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		do(r)
	}()
	<-ended
	return r
}

var errFirst, errNext = errors.New("the first"), errors.New("the next")

func TestAwait(t *testing.T) {
	cases := map[string]struct {
		reason string
		// try gets the number of the call, and the time when the wait began.
		try func(ctx context.Context, n int, began time.Time) error
		// until is how long the caller waits; 0 if it does not give up.
		until time.Duration
		want  error
		// Bounds of the duration.
		after, most time.Duration
	}{
		"AtOnce": {
			reason: "A condition that holds already needs no wait.",
			try:    func(context.Context, int, time.Time) error { return nil },
		},
		"Soon": {
			reason: "A condition that holds soon is noticed soon.",
			try: func(_ context.Context, n int, _ time.Time) error {
				if n < 3 {
					return errFirst
				}
				return nil
			},
			after: 3 * time.Millisecond, most: 3 * time.Millisecond,
		},
		"Later": {
			reason: "A condition that holds late is noticed within a fifth of a second, with a bounded number of checks.",
			try: func(_ context.Context, n int, began time.Time) error {
				if n > 60 {
					return fmt.Errorf("it was checked %d times", n)
				}
				if time.Since(began) < 10*time.Second {
					return errFirst
				}
				return nil
			},
			after: 10 * time.Second, most: 10200 * time.Millisecond,
		},
		"Never": {
			reason: "The last error is returned.",
			try: func(_ context.Context, n int, _ time.Time) error {
				if n == 1 {
					return errFirst
				}
				return errNext
			},
			want: errNext, after: Patience, most: Patience,
		},
		"CallerEnds": {
			reason: "When the context ends, the error is that of the condition, not of the context.",
			try:    func(context.Context, int, time.Time) error { return errNext },
			until:  time.Second,
			want:   errNext, after: time.Second, most: time.Second,
		},
		"Hangs": {
			reason: "The error of the last complete check says more than that of the interrupted one.",
			try: func(ctx context.Context, n int, _ time.Time) error {
				if n == 1 {
					return errFirst
				}
				<-ctx.Done()
				return ctx.Err()
			},
			want: errFirst, after: Patience, most: Patience,
		},
		"HangsAtOnce": {
			reason: "Without a complete check, the error is that of the interrupted one.",
			try: func(ctx context.Context, _ int, _ time.Time) error {
				<-ctx.Done()
				return ctx.Err()
			},
			want: context.DeadlineExceeded, after: Patience, most: Patience,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, began, n := t.Context(), time.Now(), 0
				if tc.until > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.until)
					defer cancel()
				}
				err := Await(ctx, func(ctx context.Context) error {
					n++
					return tc.try(ctx, n, began)
				})
				if !errors.Is(err, tc.want) || (err == nil) != (tc.want == nil) {
					t.Errorf("\n%s\nAwait(...): want %v, got %v", tc.reason, tc.want, err)
				}
				if took := time.Since(began); took < tc.after || took > tc.most {
					t.Errorf("\n%s\nAwait(...): want it to take %s to %s, got %s", tc.reason, tc.after, tc.most, took)
				}
			})
		})
	}
}

func TestEventually(t *testing.T) {
	cases := map[string]struct {
		reason string
		ended  bool          // Whether the test is over, so that only cleanups still run.
		after  time.Duration // When the condition becomes true; 0 for at once, negative for never.
		fatal  string
		logs   int
	}{
		"Soon":    {reason: "A short wait is not logged.", after: 500 * time.Millisecond},
		"Late":    {reason: "A long wait is logged.", after: 5 * time.Second, logs: 1},
		"Never":   {reason: "The test fails with the last error.", after: -1, fatal: "it is so: not within 5m0s: the first"},
		"Cleanup": {reason: "Cleanups may wait too, when the context of the test has ended.", ended: true, after: 500 * time.Millisecond},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tc.ended {
					cancel()
				}
				got := record(ctx, func(t testing.TB) {
					t.Helper()
					Eventually(t, "it is so", func(ctx context.Context) error {
						if ctx.Err() != nil {
							return ctx.Err()
						}
						if tc.after < 0 || time.Since(began) < tc.after {
							return errFirst
						}
						return nil
					})
				})
				if got.fatal != tc.fatal || len(got.logs) != tc.logs {
					t.Errorf("\n%s\nEventually(...): want the failure %q and %d lines, got %q and %q", tc.reason, tc.fatal, tc.logs, got.fatal, got.logs)
				}
			})
		})
	}
}

func TestConsistently(t *testing.T) {
	cases := map[string]struct {
		reason  string
		during  time.Duration
		until   time.Duration // When the condition becomes false; 0 for never.
		ends    time.Duration // When the context of the test ends; 0 for never.
		fatal   string
		took    time.Duration
		atLeast int // The minimum number of checks.
	}{
		"Always": {reason: "The condition is checked ten times a second.", during: time.Second, took: time.Second, atLeast: 10},
		"AtOnce": {reason: "The condition is checked at least once.", during: 0, atLeast: 1},
		"NotLong": {
			reason: "One failed check fails the test.",
			during: time.Second, until: 450 * time.Millisecond, fatal: "it is so: not any more: the first", took: 500 * time.Millisecond, atLeast: 6,
		},
		"Ends": {
			reason: "The end of the test ends the checks.",
			during: time.Hour, ends: time.Second, fatal: "it is so: context deadline exceeded", took: time.Second, atLeast: 10,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, ctx, asked := time.Now(), t.Context(), 0
				if tc.ends > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tc.ends)
					defer cancel()
				}
				got := record(ctx, func(t testing.TB) {
					t.Helper()
					Consistently(t, "it is so", tc.during, func(context.Context) error {
						asked++
						if tc.until > 0 && time.Since(began) > tc.until {
							return errFirst
						}
						return nil
					})
				})
				if took := time.Since(began); got.fatal != tc.fatal || took != tc.took || asked < tc.atLeast {
					t.Errorf("\n%s\nConsistently(...): want the failure %q after %s and %d times, got %q after %s and %d times",
						tc.reason, tc.fatal, tc.took, tc.atLeast, got.fatal, took, asked)
				}
			})
		})
	}
}
