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
		"Nothing":     {reason: "All is well.", code: 0},
		"Error":       {reason: "An error that nobody has classified means that the command could not run.", err: one, code: 2, want: "error: one\n"},
		"Found":       {reason: "What was found has been shown already.", err: errFound, code: 1},
		"FoundBehind": {reason: "So has what came with more.", err: fmt.Errorf("rendering: %w", errFound), code: 1},
		"Joined":      {reason: "Joined errors are a line each.", err: errors.Join(one, errors.Join(two)), code: 2, want: "error: one\nerror: two\n"},
		"Hint":        {reason: "A hint follows its error.", err: withHint(one, "try"), code: 2, want: "error: one\nhint: try\n"},
		"OneHint":     {reason: "There is one hint at most.", err: errors.Join(one, withHint(two, "try"), withHint(one, "or")), code: 2, want: "error: one\nerror: two\nhint: try\nerror: one\n"},
		"WrappedHint": {reason: "A hint survives its error being wrapped.", err: fmt.Errorf("reading: %w", withHint(one, "try")), code: 2, want: "error: reading: one\nhint: try\n"},
		"NoHint":      {reason: "An empty hint is none.", err: withHint(one, ""), code: 2, want: "error: one\n"},
		"Interrupted": {reason: "Nobody wants to read of contexts.", err: fmt.Errorf("waiting: %w", context.Canceled), code: 2, want: "error: interrupted\n"},
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
