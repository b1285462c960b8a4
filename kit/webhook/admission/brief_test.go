package admission

import "testing"

func TestBrief(t *testing.T) {
	cases := map[string]struct {
		reason, text, want string
	}{
		"Short":   {"What fits stays as it is.", "twelve bytes", "twelve bytes"},
		"Long":    {"What does not is cut, and says so.", "thirteen bytes", "thirteen …"},
		"Between": {"No character is cut in two.", "0123456ää9012", "0123456ä…"},
		"Wide":    {"Bytes are counted.", "üüüüüüüüüüüü", "üüüü…"},
		"Lines":   {"A header is one line.", "a\nb\tc\x7f", "a b c "},
		"Invalid": {"And valid text.", "a\xffb", "a?b"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Brief(tc.text, 12); got != tc.want {
				t.Errorf("%s\nBrief(%q): got %q, want %q", tc.reason, tc.text, got, tc.want)
			}
		})
	}
}
