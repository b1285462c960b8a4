package review

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestFirstLine checks that the error shows one line of the text of a webhook.
func TestFirstLine(t *testing.T) {
	cases := map[string]struct{ reason, body, want string }{
		"Line":   {"What it says is shown.", "informers not ready\n", ": informers not ready"},
		"Lines":  {"The first line says most.", "\n first \nsecond", ": first"},
		"Empty":  {"Nothing is said.", " \n", ""},
		"Bytes":  {"What is no text is not shown.", "\xff\xfe", ""},
		"Escape": {"A terminal is not for others to write to.", "\x1b[2J", ""},
		"Long":   {"A page is cut off.", strings.Repeat("a", 2*maxLine), ": " + strings.Repeat("a", maxLine)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := firstLine(&http.Response{Body: io.NopCloser(strings.NewReader(tc.body))}); got != tc.want {
				t.Errorf("%s\nfirstLine() = %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
