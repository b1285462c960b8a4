package crd

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFirstLines verifies that a long text shows its first lines and how to see the rest.
func TestFirstLines(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		most         int
		want         string
	}{
		"Short":   {"What fits stays.", "a\nb\n", 2, "a\nb\n"},
		"OneMore": {"A line is not longer than the sentence that it is left out.", "a\nb\nc\n", 2, "a\nb\nc\n"},
		"Long":    {"What is left out is counted.", "a\nb\nc\nd\n", 2, "a\nb\n  … 2 more lines (-o json has all)\n"},
		"All":     {"Reports for machines have everything.", strings.Repeat("a\n", 100), 0, strings.Repeat("a\n", 100)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, firstLines(tc.text, tc.most)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
