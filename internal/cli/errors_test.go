package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestReport(t *testing.T) {
	one, two := errors.New("one"), errors.New("two")
	cases := map[string]struct {
		reason string
		err    error
		code   int
		want   string
	}{
		"Nothing":     {reason: "Without an error, the exit code is 0.", code: 0},
		"Error":       {reason: "An unclassified error means that the command could not run.", err: one, code: 2, want: "error: one\n"},
		"Found":       {reason: "Findings are already shown, so there is no message.", err: errFound, code: 1},
		"FoundBehind": {reason: "Findings in a wrapped error are already shown, too.", err: fmt.Errorf("rendering: %w", errFound), code: 1},
		"Joined":      {reason: "Each joined error has its own line.", err: errors.Join(one, errors.Join(two)), code: 2, want: "error: one\nerror: two\n"},
		"Hint":        {reason: "A hint follows its error.", err: withHint(one, "try"), code: 2, want: "error: one\nhint: try\n"},
		"OneHint":     {reason: "Only the first hint is shown.", err: errors.Join(one, withHint(two, "try"), withHint(one, "or")), code: 2, want: "error: one\nerror: two\nhint: try\nerror: one\n"},
		"WrappedHint": {reason: "A wrapped error keeps its hint.", err: fmt.Errorf("reading: %w", withHint(one, "try")), code: 2, want: "error: reading: one\nhint: try\n"},
		"NoHint":      {reason: "An empty hint adds nothing.", err: withHint(one, ""), code: 2, want: "error: one\n"},
		"Interrupted": {reason: "A canceled context is reported as an interrupt.", err: fmt.Errorf("waiting: %w", context.Canceled), code: 2, want: "error: interrupted\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := exitCode(tc.err); got != tc.code {
				t.Errorf("%s\nexitCode() = %d, want %d", tc.reason, got, tc.code)
			}
			if tc.err == nil {
				return
			}
			var got bytes.Buffer
			report(&got, tc.err)
			if diff := cmp.Diff(tc.want, got.String()); diff != "" {
				t.Errorf("%s\nreport(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
