package admission

import "testing"

func TestBrief(t *testing.T) {
	cases := map[string]struct {
		reason, text, want string
	}{
		"Short":   {"A text within the limit does not change.", "twelve bytes", "twelve bytes"},
		"Long":    {"A longer text is cut, and ends with an ellipsis.", "thirteen bytes", "thirteen …"},
		"Between": {"The cut is between two characters.", "0123456ää9012", "0123456ä…"},
		"Wide":    {"The limit counts bytes, not characters.", "üüüüüüüüüüüü", "üüüü…"},
		"Lines":   {"Control characters become spaces, because an HTTP header is one line.", "a\nb\tc\x7f", "a b c "},
		"Invalid": {"Invalid UTF-8 is replaced.", "a\xffb", "a?b"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Brief(tc.text, 12); got != tc.want {
				t.Errorf("%s\nBrief(%q): got %q, want %q", tc.reason, tc.text, got, tc.want)
			}
		})
	}
}
