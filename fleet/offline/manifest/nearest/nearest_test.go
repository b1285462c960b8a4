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
		"Missing":      {reason: "A letter left out is one edit.", name: "rendr", candidates: commands, want: "render"},
		"Swapped":      {reason: "Two letters swapped are one edit.", name: "redner", candidates: commands, want: "render"},
		"Case":         {reason: "Case is the commonest slip.", name: "overriderules", candidates: []string{"overrideRules"}, want: "overrideRules"},
		"Far":          {reason: "A guess that is wild is worse than none.", name: "delete", candidates: commands},
		"Short":        {reason: "One edit is near even for a short name.", name: "ap", candidates: commands, want: "up"},
		"Empty":        {reason: "Nothing is near an empty name but a name of one letter.", name: "", candidates: commands},
		"NoCandidates": {reason: "Without candidates there is no answer.", name: "render"},
		"Beginning":    {reason: "A name that is cut short is one that was abbreviated.", name: "op", candidates: []string{"operator", "path", "value"}, want: "operator"},
		"Beginnings":   {reason: "Where two names begin so, neither is meant more than the other.", name: "ver", candidates: []string{"versions", "verification"}},
		"FirstOfEqual": {reason: "The answer must not vary.", name: "member-x", candidates: []string{"member-1", "member-2"}, want: "member-1"},
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
