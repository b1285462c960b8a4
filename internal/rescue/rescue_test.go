package rescue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// counted returns the number of panics that the metric has for this work.
func counted(t *testing.T, work string) float64 {
	t.Helper()
	m := &dto.Metric{}
	if err := panics.WithLabelValues(work).Write(m); err != nil {
		t.Fatal(err)
	}
	return m.GetCounter().GetValue()
}

func TestTo(t *testing.T) {
	cases := map[string]struct {
		reason string
		do     func() error
		want   string
		panic  bool
	}{
		"Well":      {"Successful work is unchanged.", func() error { return nil }, "<nil>", false},
		"Error":     {"An error of the work is unchanged.", func() error { return errors.New("no") }, "no", false},
		"Assertion": {"A failed type assertion becomes an error.", func() error { return fmt.Errorf("%s", any(1).(string)) }, "which its log tells of", true},
		"Secret":    {"The error omits the message of the panic, which may be confidential.", func() error { panic("password " + strings.Repeat("x", 10_000)) }, "which its log tells of", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var lines []string
			log := funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{})
			work, before := "testing "+name, Count()
			run := func() (err error) {
				defer To(&err, log, work, "object", "web")
				return tc.do()
			}
			err := run()
			if got := fmt.Sprint(err); !strings.HasSuffix(got, tc.want) || strings.Contains(got, "password") {
				t.Errorf("%s\nwant an error that ends in %q, got %q", tc.reason, tc.want, got)
			}
			if Is(fmt.Errorf("doing it: %w", err)) != tc.panic {
				t.Errorf("%s\nIs(): want %t of %v", tc.reason, tc.panic, err)
			}
			if !tc.panic {
				if len(lines) != 0 || counted(t, work) != 0 {
					t.Errorf("%s\nwant nothing logged and counted, got %q and %v", tc.reason, lines, counted(t, work))
				}
				return
			}
			_ = run()
			if got := counted(t, work); got != 2 {
				t.Errorf("want each panic counted, 2, got %v", got)
			}
			if got := Count() - before; got != 2 {
				t.Errorf("Count(): want 2 more than before, got %d", got)
			}
			if len(lines) != 1 || len(lines[0]) > 9000 || !strings.Contains(lines[0], "rescue_test.go") || !strings.Contains(lines[0], `"object"="web"`) {
				t.Errorf("want one place logged once, with its stack and what it was about, got %q", lines)
			}
		})
	}
}

// TestLibraries checks that a panic in a goroutine of client-go does not end the process, and is counted and logged.
func TestLibraries(t *testing.T) {
	crash, handlers := utilruntime.ReallyCrash, utilruntime.PanicHandlers
	t.Cleanup(func() { utilruntime.ReallyCrash, utilruntime.PanicHandlers = crash, handlers }) //nolint:reassign // As it was.
	var lines []string
	Libraries(funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}))
	before := counted(t, "library")
	func() {
		defer utilruntime.HandleCrashWithContext(context.Background())
		var list []string
		_ = list[len(lines)]
	}()
	if diff := cmp.Diff(before+1, counted(t, "library")); diff != "" {
		t.Errorf("panics counted: -want, +got:\n%s", diff)
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "index out of range") {
		t.Errorf("want the panic logged, got %q", lines)
	}
}
