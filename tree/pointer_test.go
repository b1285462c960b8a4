package tree

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     string
		keys   []string
		err    string
	}{
		"Whole":           {"The empty pointer is the whole value.", "", []string{}, ""},
		"EmptyKey":        {"A slash alone is the member with the empty key.", "/", []string{""}, ""},
		"Keys":            {"Every segment follows a slash.", "/spec/replicas", []string{"spec", "replicas"}, ""},
		"EmptyKeys":       {"Keys may be empty anywhere.", "/a//b/", []string{"a", "", "b", ""}, ""},
		"Escapes":         {"~1 is a slash and ~0 a tilde.", "/foo~1bar~0", []string{"foo/bar~"}, ""},
		"EscapesInOrder":  {"~01 is ~1 and not a slash: RFC 6901, section 4.", "/~01", []string{"~1"}, ""},
		"RFC6901Examples": {"Any other character stands for itself.", `/c%d/e^f/g|h/i\j/k"l/ `, []string{"c%d", "e^f", "g|h", `i\j`, `k"l`, " "}, ""},
		"NoSlash": {
			"A path without a leading slash is rejected, because other parsers would drop its first segment.",
			"spec/replicas", nil, `invalid JSON pointer "spec/replicas": it must begin with a slash`,
		},
		"TildeAtTheEnd": {"A tilde alone has no meaning.", "/a~", nil, `invalid JSON pointer "/a~": ~ must be followed by 0 or 1`},
		"TildeTwo":      {"~0 and ~1 are the only escapes.", "/a/~2", nil, `invalid JSON pointer "/a/~2": ~ must be followed by 0 or 1`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, err := Parse(tc.in)
			if tc.err != "" {
				if err == nil || err.Error() != tc.err || !errors.Is(err, ErrPointer) {
					t.Fatalf("%s\nParse(%q) error: want %s, got %v", tc.reason, tc.in, tc.err, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s\nParse(%q): %v", tc.reason, tc.in, err)
			}
			if diff := cmp.Diff(tc.keys, p.Keys()); diff != "" {
				t.Errorf("%s\nKeys(): -want, +got:\n%s", tc.reason, diff)
			}
			if p.String() != tc.in {
				t.Errorf("%s\nString(): want %q, got %q", tc.reason, tc.in, p.String())
			}
		})
	}
}

func TestMustParsePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("MustParse() of an invalid constant must panic")
		}
	}()
	MustParse("spec")
}

func TestPointerExtends(t *testing.T) {
	containers := MustParse("/spec/containers")
	image := containers.At(2).Member("image")
	slashed := containers.Member("a/b~c")
	for want, got := range map[string]Pointer{
		"/spec/containers":         containers,
		"/spec/containers/2/image": image,
		"/spec/containers/a~1b~0c": slashed,
	} {
		if got.String() != want {
			t.Errorf("want %s, got %s", want, got)
		}
		if !got.Equal(MustParse(want)) {
			t.Errorf("%s differs from the pointer that its text is parsed to", want)
		}
	}
	if image.Equal(slashed) || image.Equal(containers) {
		t.Error("different places are equal")
	}
}

func TestCovers(t *testing.T) {
	cases := []struct {
		outer, inner string
		want         bool
	}{
		{"/a", "/a", true},
		{"/a", "/a/b/c", true},
		{"", "/a", true},
		{"", "", true},
		{"/a", "/ab", false},
		{"/a/b", "/a", false},
		{"/a", "", false},
	}
	for _, tc := range cases {
		if got := Covers(tc.outer, tc.inner); got != tc.want {
			t.Errorf("Covers(%q, %q): want %t, got %t", tc.outer, tc.inner, tc.want, got)
		}
	}
}

// FuzzPointer verifies that a parsed pointer prints as the original text, and that its keys make an equal pointer.
func FuzzPointer(f *testing.F) {
	for _, s := range []string{"", "/", "/a/0/-/-1", "/foo~1bar~0", "/~01", "a", "/~", "//"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := Parse(s)
		if err != nil {
			if !errors.Is(err, ErrPointer) {
				t.Errorf("Parse(%q): %v is not ErrPointer", s, err)
			}
			return
		}
		var again Pointer
		for _, key := range p.Keys() {
			again = again.Member(key)
		}
		if p.String() != s || again.String() != s || !again.Equal(p) {
			t.Errorf("Parse(%q) prints %q, and its keys make %q", s, p, again)
		}
	})
}
