package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParsePlace(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		text   string
		want   string // The canonical text of the place, or the expected error if err.
		err    bool
	}{
		"Keys":         {"keys have dots between them", "spec.size", "spec.size", false},
		"Letters":      {"keys have letters, digits, - and _", "spec.a-b_C9", "spec.a-b_C9", false},
		"Elements":     {"elements of lists in elements of lists", "spec.a[*].b[*]", "spec.a[*].b[*]", false},
		"Twice":        {"lists of lists", "spec.a[*][*]", "spec.a[*][*]", false},
		"Quoted":       {"other keys are quoted", `spec["a.b/c"].d`, `spec["a.b/c"].d`, false},
		"QuotedPlain":  {"those that need not be are not", `spec["a"]`, "spec.a", false},
		"QuotedFirst":  {"the first one, too", `["a b"]`, `["a b"]`, false},
		"Escaped":      {"a quote in quotes", `spec["a\"b"]`, `spec["a\"b"]`, false},
		"Group":        {"several fields are one value", "spec.{host,port}", "spec.{host,port}", false},
		"GroupQuoted":  {"other fields are quoted there, too", `spec.a[*].{"a.b",c}`, `spec.a[*].{"a.b",c}`, false},
		"Empty":        {"the whole object has no place", "", "want keys with dots between them, such as spec.size", true},
		"Dot":          {"no key before a dot", ".spec", `".spec", column 1: want a key of letters, digits, - and _; others are quoted, as in spec["a.b"]`, true},
		"Dots":         {"no key between dots", "a..b", `"a..b", column 3: want a key of letters, digits, - and _; others are quoted, as in spec["a.b"]`, true},
		"Last":         {"no key behind a dot", "a.", `"a.", column 3: want a key of letters, digits, - and _; others are quoted, as in spec["a.b"]`, true},
		"Letter":       {"another letter", "a.é", `"a.é", column 3: want a key of letters, digits, - and _; others are quoted, as in spec["a.b"]`, true},
		"Index":        {"there are no numbers of elements", "a[0]", `"a[0]", column 2: want a dot, [*] or ["..."]`, true},
		"NoList":       {"elements of nothing", "[*].a", `"[*].a", column 1: want a key before [*]`, true},
		"Unquoted":     {"a quote that does not end", `a["b`, `"a[\"b", column 3: the quoted key has no end quote`, true},
		"QuotedEmpty":  {"an empty key", `a[""]`, `"a[\"\"]", column 3: want a quoted key that is a JSON string and not empty`, true},
		"Bracket":      {"a bracket that does not end", `a["b"`, `"a[\"b\"", column 6: want ] after the quoted key`, true},
		"GroupLast":    {"nothing is behind a group", "a.{b}.c", `"a.{b}.c", column 6: want nothing after {...}`, true},
		"GroupEmpty":   {"a group of nothing", "a.{}", `"a.{}", column 4: want the name of a field`, true},
		"GroupTwice":   {"a field twice", "a.{b,b}", `"a.{b,b}", column 7: duplicate field "b"`, true},
		"GroupOpen":    {"a group that does not end", "a.{b", `"a.{b", column 5: want a comma or }`, true},
		"GroupAtFirst": {"a group of the root", "{a,b}", `"{a,b}", column 1: want a key of letters, digits, - and _; others are quoted, as in spec["a.b"]`, true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := parsePlace(c.text)
			got := p.String()
			if err != nil {
				got = err.Error()
			}
			if (err != nil) != c.err {
				t.Errorf("%s: error %v, want one: %v", c.reason, err, c.err)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", c.reason, diff)
			}
		})
	}
}

// FuzzPlace checks that the text of a parsed place parses to the same place.
func FuzzPlace(f *testing.F) {
	for _, text := range []string{"a.b", "a[*].b", `a["b.c"]`, "a.{b,c}", `a["\u0000"]`, `a["\\"]`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePlace(text)
		if err != nil {
			return
		}
		again, err := parsePlace(p.String())
		if err != nil || again.String() != p.String() {
			t.Errorf("%q is %q, then %q, %v", text, p, again, err)
		}
	})
}
