package nearest

import "testing"

func TestTo(t *testing.T) {
	commands := []string{"render", "version", "run", "up"}
	cases := map[string]struct {
		reason     string
		name       string
		candidates []string
		want       string
	}{
		"Exact":        {reason: "A name is nearest to itself.", name: "run", candidates: commands, want: "run"},
		"Missing":      {reason: "A missing letter is one edit.", name: "rendr", candidates: commands, want: "render"},
		"Swapped":      {reason: "A swap of two letters is one edit.", name: "redner", candidates: commands, want: "render"},
		"Case":         {reason: "Wrong case is the most frequent typo.", name: "overriderules", candidates: []string{"overrideRules"}, want: "overrideRules"},
		"Far":          {reason: "A far-fetched suggestion is worse than none.", name: "delete", candidates: commands},
		"Short":        {reason: "One edit is near even for a short name.", name: "ap", candidates: commands, want: "up"},
		"Empty":        {reason: "Only a name of one letter is near an empty name.", name: "", candidates: commands},
		"NoCandidates": {reason: "Without candidates, the result is empty.", name: "render"},
		"Beginning":    {reason: "A name may be an abbreviation, the beginning of a candidate.", name: "op", candidates: []string{"operator", "path", "value"}, want: "operator"},
		"Beginnings":   {reason: "If two candidates begin with the name, none is returned.", name: "ver", candidates: []string{"versions", "verification"}},
		"FirstOfEqual": {reason: "The first of equally near names wins.", name: "member-x", candidates: []string{"member-1", "member-2"}, want: "member-1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := To(tc.name, tc.candidates); got != tc.want {
				t.Errorf("%s\nTo(%q) = %q, want %q", tc.reason, tc.name, got, tc.want)
			}
		})
	}
}

func TestDistance(t *testing.T) {
	cases := map[string]struct {
		a, b string
		want int
	}{
		"Same":       {a: "abc", b: "abc"},
		"Empty":      {a: "", b: "abc", want: 3},
		"Inserted":   {a: "abc", b: "abxc", want: 1},
		"Replaced":   {a: "abc", b: "axc", want: 1},
		"Swapped":    {a: "abcd", b: "acbd", want: 1},
		"SwappedEnd": {a: "ab", b: "ba", want: 1},
		"Far":        {a: "kitten", b: "sitting", want: 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			for _, pair := range [][2]string{{tc.a, tc.b}, {tc.b, tc.a}} {
				if got := distance(pair[0], pair[1]); got != tc.want {
					t.Errorf("distance(%q, %q) = %d, want %d", pair[0], pair[1], got, tc.want)
				}
			}
		})
	}
}
