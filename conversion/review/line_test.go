package review

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestFirstLine checks that the error has only the first line of the answer of a webhook.
func TestFirstLine(t *testing.T) {
	cases := map[string]struct{ reason, body, want string }{
		"Line":   {"The line of the answer is shown.", "informers not ready\n", ": informers not ready"},
		"Lines":  {"Only the first line is shown.", "\n first \nsecond", ": first"},
		"Empty":  {"An empty answer is not shown.", " \n", ""},
		"Bytes":  {"Binary content is not shown.", "\xff\xfe", ""},
		"Escape": {"Control characters are not written to the terminal.", "\x1b[2J", ""},
		"Long":   {"A long line is cut.", strings.Repeat("a", 2*maxLine), ": " + strings.Repeat("a", maxLine)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := firstLine(&http.Response{Body: io.NopCloser(strings.NewReader(tc.body))}); got != tc.want {
				t.Errorf("%s\nfirstLine() = %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
