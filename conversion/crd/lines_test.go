package crd

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFirstLines verifies that a long text is cut after its first lines, with a hint at the rest.
func TestFirstLines(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		most         int
		want         string
	}{
		"Short":   {"A short text is shown completely.", "a\nb\n", 2, "a\nb\n"},
		"OneMore": {"A single remaining line is shown, because the remark about it would be as long.", "a\nb\nc\n", 2, "a\nb\nc\n"},
		"Long":    {"The remaining lines are counted.", "a\nb\nc\nd\n", 2, "a\nb\n  … 2 more lines (-o json has all)\n"},
		"All":     {"Reports for programs are complete.", strings.Repeat("a\n", 100), 0, strings.Repeat("a\n", 100)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, firstLines(tc.text, tc.most)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
