package propagation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"refract.dev/fleet/policy/override"
	"refract.dev/tree"
)

func TestLines(t *testing.T) {
	by := &tree.Author{Policy: tree.Policy{Kind: "OverridePolicy", Namespace: "shop", Name: "op"}, Overrider: "jsonpatch"}
	cases := map[string]struct {
		reason string
		change tree.Change
		secret bool
		want   string
	}{
		"Add": {
			reason: "There was no value before.", change: tree.Change{Path: "/a", Op: tree.OpAdd, After: int64(1)},
			want: "/a: (nothing) → 1 (OverridePolicy shop/op rule 0 jsonpatch[0])",
		},
		"Remove": {
			reason: "There is no value after.", change: tree.Change{Path: "/a", Op: tree.OpRemove, Before: "x"},
			want: `/a: "x" → (nothing) (OverridePolicy shop/op rule 0 jsonpatch[0])`,
		},
		"Secret": {
			reason: "Readers of reports may lack the right to read Secrets.", change: tree.Change{Path: "/a", Op: tree.OpReplace, Before: "x", After: "y"}, secret: true,
			want: "/a: *** → *** (OverridePolicy shop/op rule 0 jsonpatch[0])",
		},
		"Long": {
			reason: "Paths and values may be as long as a policy.",
			change: tree.Change{Path: "/" + strings.Repeat("a", maxPath), Op: tree.OpAdd, After: []any{strings.Repeat("中", 1000)}},
			want: "/" + strings.Repeat("a", maxPath-1) + `…: (nothing) → ["` + strings.Repeat("中", maxValueRunes-2) +
				"… (OverridePolicy shop/op rule 0 jsonpatch[0])",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.change.By = by
			if diff := cmp.Diff([]string{tc.want}, lines([]tree.Change{tc.change}, tc.secret, maxText)); diff != "" {
				t.Errorf("%s\nlines(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
	short := tree.Change{Path: "/a", Op: tree.OpAdd, After: int64(1), By: by}
	if got := lines(slices.Repeat([]tree.Change{short}, maxChanges+1), false, maxText); len(got) != maxChanges {
		t.Errorf("want the first %d changes, got %d", maxChanges, len(got))
	}
	line := len(lines([]tree.Change{short}, false, maxText)[0])
	if got := lines(slices.Repeat([]tree.Change{short}, 3), false, 2*line); len(got) != 2 {
		t.Errorf("want the 2 lines that fit, got %d", len(got))
	}
	if got := lines(slices.Repeat([]tree.Change{short}, 3), false, 2*line-1); len(got) != 1 {
		t.Errorf("want the 1 line that fits, got %d", len(got))
	}
}

// TestExcerpt compares excerpts with the beginning of the full JSON.
func TestExcerpt(t *testing.T) {
	deep := any("x")
	for range 100 {
		deep = map[string]any{"a": []any{deep}}
	}
	many := map[string]any{}
	for i := range 1000 {
		many[fmt.Sprint("k", i)] = []any{int64(i), 1.5, true, nil, "<&>"}
	}
	for name, v := range map[string]any{
		"Scalars": []any{int64(1), 2.5, false, nil, "a\n\"b"}, "Empty": []any{map[string]any{}, []any{}},
		"Deep": deep, "Many": many, "Long": strings.Repeat("🙂", 1000), "Exact": strings.Repeat("b", maxValueRunes-2), "OneMore": strings.Repeat("b", maxValueRunes-1),
	} {
		t.Run(name, func(t *testing.T) {
			whole, err := json.Marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			want := string(whole)
			if utf8.RuneCountInString(want) > maxValueRunes {
				want = string([]rune(want)[:maxValueRunes]) + "…"
			}
			if diff := cmp.Diff(want, value(v, true, false)); diff != "" {
				t.Errorf("value(): -want, +got:\n%s", diff)
			}
		})
	}
}

// TestTextOfAllVariants: the text about an object is bounded, whatever the number of its variants.
func TestTextOfAllVariants(t *testing.T) {
	by := &tree.Author{Policy: tree.Policy{Kind: "OverridePolicy", Namespace: "shop", Name: strings.Repeat("n", 63)}, Overrider: "jsonpatch"}
	change := tree.Change{Path: "/" + strings.Repeat("a", 2*maxPath), Op: tree.OpAdd, After: strings.Repeat("v", 100), By: by}
	var p desiredState
	for i := range maxVariants + 1 {
		p.variant(&content{hash: fmt.Sprint(i)}, slices.Repeat([]tree.Change{change}, maxChanges), false)
	}
	n := 0
	for _, v := range p.variants {
		n += sizeOf(v.changes)
	}
	if n > maxText || n < maxText-1000 || n != p.text || len(p.variants) != maxVariants+1 {
		t.Errorf("want %d bytes at most, and all variants: got %d and %d", maxText, n, len(p.variants))
	}
	var few desiredState
	for i := range maxVariants + 1 {
		few.variant(&content{hash: fmt.Sprint(i)}, []tree.Change{{Path: "/a", Op: tree.OpAdd, After: "b", By: by}}, false)
	}
	if len(few.variants[maxVariants-1].changes) != 1 || len(few.variants[maxVariants].changes) != 0 {
		t.Errorf("want only the changes of the first %d variants", maxVariants)
	}
}

func TestWarned(t *testing.T) {
	w := override.Warning{Message: strings.Repeat("m", 2*maxWarning)}
	got := warned(slices.Repeat([]override.Warning{w}, maxWarnings+3), maxText)
	if len(got) != maxWarnings+1 || got[maxWarnings] != "and 3 more warnings" || len(got[0]) > maxWarning+len("…") {
		t.Errorf("warned(): want the first %d, shortened, and the number of the others, got %d: %v", maxWarnings, len(got), got[len(got)-1])
	}
	all := slices.Repeat([]override.Warning{w}, maxWarnings)
	whole := warned(all, maxText)
	if len(whole) != maxWarnings {
		t.Errorf("warned(): want all %d, got %d", maxWarnings, len(whole))
	}
	if got := warned(all, sizeOf(whole)); len(got) != maxWarnings {
		t.Errorf("warned(): want all %d, because they fit, got %d", maxWarnings, len(got))
	}
	if got := warned(all, sizeOf(whole)-1); len(got) != maxWarnings || got[maxWarnings-1] != "and 1 more warnings" {
		t.Errorf("warned(): want all but one, which does not fit, got %q", got[maxWarnings-1])
	}
	some := slices.Repeat([]string{"w"}, maxWarnings+1)
	if got := fewer(some); len(got) != maxWarnings+1 || got[maxWarnings] != "and 1 more warnings" {
		t.Errorf("fewer(): got %q", got)
	}
	if diff := cmp.Diff(some[:maxWarnings], fewer(some[:maxWarnings])); diff != "" {
		t.Errorf("fewer(): -want, +got:\n%s", diff)
	}
}
