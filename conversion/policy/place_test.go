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
		want   string // The usual text of the place. If err is set, the expected error.
		err    bool
	}{
		"Keys":         {"keys are separated by dots", "spec.size", "spec.size", false},
		"Letters":      {"keys consist of letters, digits, - and _", "spec.a-b_C9", "spec.a-b_C9", false},
		"Elements":     {"elements of lists may contain lists of objects", "spec.a[*].b[*]", "spec.a[*].b[*]", false},
		"Twice":        {"lists may contain lists", "spec.a[*][*]", "spec.a[*][*]", false},
		"Quoted":       {"keys with other characters are quoted", `spec["a.b/c"].d`, `spec["a.b/c"].d`, false},
		"QuotedPlain":  {"quotes that are not necessary are removed", `spec["a"]`, "spec.a", false},
		"QuotedFirst":  {"the first key can be quoted, too", `["a b"]`, `["a b"]`, false},
		"Escaped":      {"quotes inside a quoted key are escaped", `spec["a\"b"]`, `spec["a\"b"]`, false},
		"Group":        {"several fields can be one value", "spec.{host,port}", "spec.{host,port}", false},
		"GroupQuoted":  {"fields of a group can be quoted, too", `spec.a[*].{"a.b",c}`, `spec.a[*].{"a.b",c}`, false},
		"Empty":        {"the empty place is invalid", "", "want keys with dots between them, such as spec.size", true},
		"Dot":          {"the first key is missing", ".spec", `".spec", column 1: want a key of letters, digits, - and _; others are quoted, as in spec["a.b"]`, true},
		"Dots":         {"a key between dots is missing", "a..b", `"a..b", column 3: want a key of letters, digits, - and _; others are quoted, as in spec["a.b"]`, true},
		"Last":         {"the last key is missing", "a.", `"a.", column 3: want a key of letters, digits, - and _; others are quoted, as in spec["a.b"]`, true},
		"Letter":       {"the letter needs quotes", "a.é", `"a.é", column 3: want a key of letters, digits, - and _; others are quoted, as in spec["a.b"]`, true},
		"Index":        {"elements cannot have an index", "a[0]", `"a[0]", column 2: want a dot, [*] or ["..."]`, true},
		"NoList":       {"the key of the list is missing", "[*].a", `"[*].a", column 1: want a key before [*]`, true},
		"Unquoted":     {"the quote is not closed", `a["b`, `"a[\"b", column 3: the quoted key has no end quote`, true},
		"QuotedEmpty":  {"a key cannot be empty", `a[""]`, `"a[\"\"]", column 3: want a quoted key that is a JSON string and not empty`, true},
		"Bracket":      {"the bracket is not closed", `a["b"`, `"a[\"b\"", column 6: want ] after the quoted key`, true},
		"GroupLast":    {"a group must be the last part", "a.{b}.c", `"a.{b}.c", column 6: want nothing after {...}`, true},
		"GroupEmpty":   {"a group cannot be empty", "a.{}", `"a.{}", column 4: want the name of a field`, true},
		"GroupTwice":   {"a field can be in a group only once", "a.{b,b}", `"a.{b,b}", column 7: duplicate field "b"`, true},
		"GroupOpen":    {"the group is not closed", "a.{b", `"a.{b", column 5: want a comma or }`, true},
		"GroupAtFirst": {"the root cannot have a group", "{a,b}", `"{a,b}", column 1: want a key of letters, digits, - and _; others are quoted, as in spec["a.b"]`, true},
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

// FuzzPlace checks that the text of a parsed place is parsed to an equal place.
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
