package output

import (
	"strings"
	"testing"
)

func TestCount(t *testing.T) {
	for n, want := range map[int]string{0: "0 copies", 1: "1 copy", 999: "999 copies", 1000: "1,000 copies", 1234567: "1,234,567 copies"} {
		if got := Count(n, "copy", "copies"); got != want {
			t.Errorf("want %q, got %q", want, got)
		}
	}
}

func TestCut(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		most         int
		want         string
	}{
		"Short":     {"A text within the limit stays.", "abc", 3, "abc"},
		"Long":      {"A longer text ends with an ellipsis.", "abcd", 3, "abc…"},
		"Character": {"No character is split.", "aüb", 2, "a…"},
		"Nothing":   {"The limit may be zero.", strings.Repeat("a", 10), 0, "…"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Cut(tc.text, tc.most); got != tc.want {
				t.Errorf("%s\nwant %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}
