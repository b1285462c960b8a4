package tree

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/json"
	"sigs.k8s.io/yaml"
)

// parse reads YAML like an API server: integers are int64.
func parse(tb testing.TB, text string) map[string]any {
	tb.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	var v map[string]any
	if err := json.Unmarshal(data, &v); err != nil {
		tb.Fatal(err)
	}
	return v
}

// do makes one edit. The verb is add, replace, set or remove.
func do(d *Doc, verb, path string, value any) (Change, error) {
	p, err := Parse(path)
	if err != nil {
		return Change{}, err
	}
	switch verb {
	case "add":
		return d.Add(p, value)
	case "replace":
		return d.Replace(p, value)
	case "set":
		return d.Set(p, value)
	case "remove":
		return d.Remove(p)
	default:
		return Change{}, fmt.Errorf("no verb %q", verb)
	}
}

func TestDoc(t *testing.T) {
	cases := map[string]struct {
		reason string
		doc    string
		verb   string
		path   string
		value  any
		want   string // The whole document after the edit.
		change Change
		err    error // The wrapped fact.
		text   string
	}{
		"AddMember": {
			reason: "RFC 6902, A.1: a member is added.",
			doc:    "{foo: bar}", verb: "add", path: "/baz", value: "qux",
			want:   "{foo: bar, baz: qux}",
			change: Change{Path: "/baz", Op: OpAdd, After: "qux"},
		},
		"AddElement": {
			reason: "RFC 6902, A.2: the new element is inserted before the element with that index.",
			doc:    "{foo: [bar, baz]}", verb: "add", path: "/foo/1", value: "qux",
			want:   "{foo: [bar, qux, baz]}",
			change: Change{Path: "/foo/1", Op: OpAdd, Element: true, After: "qux"},
		},
		"AddAtTheEnd": {
			reason: "The change has the index in place of -.",
			doc:    "{foo: [bar]}", verb: "add", path: "/foo/-", value: "qux",
			want:   "{foo: [bar, qux]}",
			change: Change{Path: "/foo/1", Op: OpAdd, Element: true, After: "qux"},
		},
		"AddAtTheLength": {
			reason: "RFC 6902, section 4.1: the index may be the length of the array.",
			doc:    "{foo: [bar]}", verb: "add", path: "/foo/1", value: "qux",
			want:   "{foo: [bar, qux]}",
			change: Change{Path: "/foo/1", Op: OpAdd, Element: true, After: "qux"},
		},
		"AddToEmpty": {
			reason: "An element can be added to an empty array.",
			doc:    "{foo: []}", verb: "add", path: "/foo/-", value: int64(1),
			want:   "{foo: [1]}",
			change: Change{Path: "/foo/0", Op: OpAdd, Element: true, After: int64(1)},
		},
		"AddReplaces": {
			reason: "RFC 6902, section 4.1: an existing member is replaced.",
			doc:    "{foo: bar}", verb: "add", path: "/foo", value: nil,
			want:   "{foo: null}",
			change: Change{Path: "/foo", Op: OpReplace, Before: "bar"},
		},
		"AddBeyondTheEnd": {
			reason: "RFC 6902, section 4.1: an index beyond the end is an error.",
			doc:    "{foo: [bar]}", verb: "add", path: "/foo/2", value: "qux",
			err: ErrIndex, text: "/foo/2 is not an index of the array: it has 1 element",
		},
		"AddLast": {
			reason: "-1 names an existing element, not the place of a new one.",
			doc:    "{foo: [bar]}", verb: "add", path: "/foo/-1", value: "qux",
			err: ErrIndex, text: "/foo/-1 is not an index of the array: it has 1 element; - is its end",
		},
		"AddWithoutParent": {
			reason: "RFC 6902, A.12: a missing parent is not created.",
			doc:    "{foo: bar}", verb: "add", path: "/baz/bat", value: "qux",
			err: ErrNotFound, text: "/baz does not exist",
		},
		"AddInsideAString": {
			reason: "A string contains no places.",
			doc:    "{foo: bar}", verb: "add", path: "/foo/bat", value: "qux",
			err: ErrType, text: "/foo has the wrong type: want an object or an array, got a string",
		},
		"AddFarInsideNull": {
			reason: "The error names the first place of the path that is wrong.",
			doc:    "{foo: {a: null}}", verb: "add", path: "/foo/a/b/c", value: "qux",
			err: ErrType, text: "/foo/a has the wrong type: want an object or an array, got null",
		},
		"AddToTheWhole": {
			reason: "The root stays an object.",
			doc:    "{}", verb: "add", path: "", value: map[string]any{},
			err: errWhole, text: "the object is the whole: only what is inside can be written",
		},
		"Replace": {
			reason: "RFC 6902, A.5: a member is replaced.",
			doc:    "{baz: qux, foo: bar}", verb: "replace", path: "/baz", value: "boo",
			want:   "{baz: boo, foo: bar}",
			change: Change{Path: "/baz", Op: OpReplace, Before: "qux", After: "boo"},
		},
		"ReplaceElement": {
			reason: "A replaced element keeps its index.",
			doc:    "{a: [1, 2, 3]}", verb: "replace", path: "/a/1", value: true,
			want:   "{a: [1, true, 3]}",
			change: Change{Path: "/a/1", Op: OpReplace, Element: true, Before: int64(2), After: true},
		},
		"ReplaceLast": {
			reason: "The change has the index in place of -1.",
			doc:    "{foos: [bar1, bar2]}", verb: "replace", path: "/foos/-1", value: "x",
			want:   "{foos: [bar1, x]}",
			change: Change{Path: "/foos/1", Op: OpReplace, Element: true, Before: "bar2", After: "x"},
		},
		"ReplaceInsideLast": {
			reason: "-1 also works in the middle of a path.",
			doc:    "{a: [{b: [{c: 1}]}]}", verb: "replace", path: "/a/-1/b/-1/c", value: int64(2),
			want:   "{a: [{b: [{c: 2}]}]}",
			change: Change{Path: "/a/0/b/0/c", Op: OpReplace, Before: int64(1), After: int64(2)},
		},
		"ReplaceMissing": {
			reason: "RFC 6902, section 4.3: the target must exist.",
			doc:    "{a: {}}", verb: "replace", path: "/a/b", value: "x",
			err: ErrNotFound, text: "/a/b does not exist",
		},
		"ReplaceTheEnd": {
			reason: "- names no existing element.",
			doc:    "{a: [1, 2]}", verb: "replace", path: "/a/-", value: "x",
			err: ErrIndex, text: "/a/- is not an index of the array: it has 2 elements; -1 is the last",
		},
		"ReplaceThroughTheEnd": {
			reason: "- has no places inside.",
			doc:    "{a: [1]}", verb: "replace", path: "/a/-/b", value: "x",
			err: ErrIndex, text: "/a/- is not an index of the array: it has 1 element; -1 is the last",
		},
		"ReplaceLastOfNone": {
			reason: "An empty array has no last element.",
			doc:    "{a: []}", verb: "replace", path: "/a/-1", value: "x",
			err: ErrIndex, text: "/a/-1 is not an index of the array: it has 0 elements",
		},
		"ReplaceByName": {
			reason: "A name is not an index.",
			doc:    "{a: [1]}", verb: "replace", path: "/a/one", value: "x",
			err: ErrIndex, text: "/a/one is not an index of the array: it has 1 element",
		},
		"LeadingZero": {
			reason: "RFC 6901, section 4: no leading zeros.",
			doc:    "{a: [1, 2]}", verb: "replace", path: "/a/01", value: "x",
			err: ErrIndex, text: "/a/01 is not an index of the array: it has 2 elements",
		},
		"Sign": {
			reason: "RFC 6901, section 4: digits only.",
			doc:    "{a: [1, 2]}", verb: "replace", path: "/a/+1", value: "x",
			err: ErrIndex, text: "/a/+1 is not an index of the array: it has 2 elements",
		},
		"SecondToLast": {
			reason: "-1 is the only number below zero.",
			doc:    "{a: [1, 2]}", verb: "remove", path: "/a/-2",
			err: ErrIndex, text: "/a/-2 is not an index of the array: it has 2 elements",
		},
		"HugeIndex": {
			reason: "A number beyond int is not an index.",
			doc:    "{a: [1, 2]}", verb: "remove", path: "/a/18446744073709551616",
			err: ErrIndex, text: "/a/18446744073709551616 is not an index of the array: it has 2 elements",
		},
		"MembersNamedLikeIndexes": {
			reason: "In an object every segment is a key.",
			doc:    `{"-": {"-1": {"0": {"01": {"": 1}}}}}`, verb: "replace", path: "/-/-1/0/01/", value: int64(2),
			want:   `{"-": {"-1": {"0": {"01": {"": 2}}}}}`,
			change: Change{Path: "/-/-1/0/01/", Op: OpReplace, Before: int64(1), After: int64(2)},
		},
		"EscapedKeys": {
			reason: "The example of the source document.",
			doc:    `{"foo/bar~": x}`, verb: "replace", path: "/foo~1bar~0", value: "baz",
			want:   `{"foo/bar~": baz}`,
			change: Change{Path: "/foo~1bar~0", Op: OpReplace, Before: "x", After: "baz"},
		},
		"Set": {
			reason: "Set replaces an existing value.",
			doc:    "{a: 1}", verb: "set", path: "/a", value: int64(2),
			want:   "{a: 2}",
			change: Change{Path: "/a", Op: OpReplace, Before: int64(1), After: int64(2)},
		},
		"SetMissing": {
			reason: "Set adds a missing member, and the change is an addition.",
			doc:    "{a: {}}", verb: "set", path: "/a/b", value: int64(2),
			want:   "{a: {b: 2}}",
			change: Change{Path: "/a/b", Op: OpAdd, After: int64(2)},
		},
		"SetNull": {
			reason: "A null member exists.",
			doc:    "{a: null}", verb: "set", path: "/a", value: int64(2),
			want:   "{a: 2}",
			change: Change{Path: "/a", Op: OpReplace, After: int64(2)},
		},
		"SetMissingElement": {
			reason: "Set does not create elements.",
			doc:    "{a: [1]}", verb: "set", path: "/a/1", value: int64(2),
			err: ErrIndex, text: "/a/1 is not an index of the array: it has 1 element",
		},
		"SetWithoutParent": {
			reason: "Set does not create parents.",
			doc:    "{}", verb: "set", path: "/a/b", value: int64(2),
			err: ErrNotFound, text: "/a does not exist",
		},
		"Remove": {
			reason: "RFC 6902, A.3: a member is removed.",
			doc:    "{baz: qux, foo: bar}", verb: "remove", path: "/baz",
			want:   "{foo: bar}",
			change: Change{Path: "/baz", Op: OpRemove, Before: "qux"},
		},
		"RemoveElement": {
			reason: "RFC 6902, A.4: an element is removed.",
			doc:    "{foo: [bar, qux, baz]}", verb: "remove", path: "/foo/1",
			want:   "{foo: [bar, baz]}",
			change: Change{Path: "/foo/1", Op: OpRemove, Element: true, Before: "qux"},
		},
		"RemoveLast": {
			reason: "The removal of the only element leaves an empty array.",
			doc:    "{foo: [bar]}", verb: "remove", path: "/foo/-1",
			want:   "{foo: []}",
			change: Change{Path: "/foo/0", Op: OpRemove, Element: true, Before: "bar"},
		},
		"RemoveMissing": {
			reason: "RFC 6902, section 4.2: the target must exist.",
			doc:    "{foo: bar}", verb: "remove", path: "/baz",
			err: ErrNotFound, text: "/baz does not exist",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := parse(t, tc.doc)
			before := runtime.DeepCopyJSON(in)
			d := Edit(in)
			c, err := do(d, tc.verb, tc.path, tc.value)
			if diff := cmp.Diff(before, in); diff != "" {
				t.Errorf("the original changed: -before, +after:\n%s", diff)
			}
			if tc.err != nil {
				var at *PathError
				if !errors.Is(err, tc.err) || !errors.As(err, &at) || err.Error() != tc.text {
					t.Fatalf("%s\nerror: want %s, got %v", tc.reason, tc.text, err)
				}
				if diff := cmp.Diff(before, d.Root()); diff != "" {
					t.Errorf("%s\na failed edit changed the document: -before, +after:\n%s", tc.reason, diff)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s\n%v", tc.reason, err)
			}
			if diff := cmp.Diff(parse(t, tc.want), d.Root()); diff != "" {
				t.Errorf("%s\nRoot(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.change, c); diff != "" {
				t.Errorf("%s\nChange: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestLookup(t *testing.T) {
	doc := parse(t, `{a: {b: [x, {c: 1}]}, "null": null}`)
	cases := map[string]struct {
		reason string
		path   string
		want   any
		err    error
		text   string
	}{
		"Whole":       {"The empty pointer is the whole.", "", doc, nil, ""},
		"Deep":        {"A path can lead through objects and arrays.", "/a/b/1/c", int64(1), nil, ""},
		"Null":        {"Null is a value.", "/null", nil, nil, ""},
		"Missing":     {"The error names the first missing place.", "/a/x/y", nil, ErrNotFound, "/a/x does not exist"},
		"NoElement":   {"An index beyond the last element is an error.", "/a/b/2", nil, ErrIndex, "/a/b/2 is not an index of the array: it has 2 elements"},
		"Last":        {"Reads follow RFC 6901: -1 works only in writes.", "/a/b/-1", nil, ErrIndex, "/a/b/-1 is not an index of the array: it has 2 elements"},
		"End":         {"RFC 6901, section 4: - names no existing element.", "/a/b/-", nil, ErrIndex, "/a/b/- is not an index of the array: it has 2 elements"},
		"InsideValue": {"A string contains no places.", "/a/b/0/c", nil, ErrType, "/a/b/0 has the wrong type: want an object or an array, got a string"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := Edit(doc).Lookup(MustParse(tc.path))
			if !errors.Is(err, tc.err) || (err != nil && err.Error() != tc.text) {
				t.Fatalf("%s\nerror: want %s, got %v", tc.reason, tc.text, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestDocShares verifies that unedited parts are shared with the original, and that each edited part is copied once.
func TestDocShares(t *testing.T) {
	in := parse(t, "{a: {x: 1}, b: {c: {e: 1}, d: [1]}}")
	d := Edit(in)
	mustDo(t, d, "replace", "/b/c/e", int64(2))
	first := d.Root()
	mustDo(t, d, "add", "/b/c/f", int64(3))

	same := func(p string, a, b map[string]any) bool {
		t.Helper()
		x, errX := Lookup(a, MustParse(p))
		y, errY := Lookup(b, MustParse(p))
		if errX != nil || errY != nil {
			t.Fatal(errX, errY)
		}
		return address(x.(map[string]any)) == address(y.(map[string]any))
	}
	if !same("/a", in, d.Root()) {
		t.Error("/a was copied without need")
	}
	if same("/b", in, d.Root()) || same("/b/c", in, d.Root()) {
		t.Error("/b/c was edited without a copy")
	}
	if !same("", first, d.Root()) || !same("/b/c", first, d.Root()) {
		t.Error("/b/c was copied twice")
	}
}

// TestDocGivenValues verifies that a later edit does not write to a value that a caller passed to Add: other documents
// may share it.
func TestDocGivenValues(t *testing.T) {
	given := parse(t, "{list: [{a: 1}], map: {b: 1}}")
	before := runtime.DeepCopyJSON(given)
	d := Edit(parse(t, "{}"))
	mustDo(t, d, "add", "/x", given)
	mustDo(t, d, "add", "/z", given)
	mustDo(t, d, "replace", "/x/list/0/a", int64(2))
	mustDo(t, d, "add", "/x/list/-", "end")
	mustDo(t, d, "remove", "/x/map/b", nil)
	mustDo(t, d, "replace", "/z/list/0", "whole")
	if diff := cmp.Diff(before, given); diff != "" {
		t.Errorf("the given value changed: -before, +after:\n%s", diff)
	}
	want := parse(t, "{x: {list: [{a: 2}, end], map: {}}, z: {list: [whole], map: {b: 1}}}")
	if diff := cmp.Diff(want, d.Root()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// TestDocManyEdits edits more objects and arrays than the list of owned values holds.
func TestDocManyEdits(t *testing.T) {
	const n = 3 * aFew
	in := map[string]any{"a": []any{}}
	for i := range n {
		in["a"] = append(in["a"].([]any), map[string]any{"i": int64(i), "l": []any{int64(i)}})
	}
	before := runtime.DeepCopyJSON(in)
	d := Edit(in)
	for range 2 {
		for i := range n {
			mustDo(t, d, "replace", fmt.Sprintf("/a/%d/i", i), int64(-i))
			mustDo(t, d, "replace", fmt.Sprintf("/a/%d/l/0", i), int64(-i))
		}
	}
	if diff := cmp.Diff(before, in); diff != "" {
		t.Fatalf("the original changed: -before, +after:\n%s", diff)
	}
	for i, v := range d.Root()["a"].([]any) {
		if diff := cmp.Diff(map[string]any{"i": int64(-i), "l": []any{int64(-i)}}, v); diff != "" {
			t.Fatalf("element %d: -want, +got:\n%s", i, diff)
		}
	}
}

// TestEditOwned verifies that a Doc writes to owned maps, and ignores nil maps.
func TestEditOwned(t *testing.T) {
	inner := map[string]any{}
	root := map[string]any{"inner": inner, "none": map[string]any(nil)}
	d := Edit(root, root, inner, nil)
	mustDo(t, d, "add", "/inner/a", int64(1))
	mustDo(t, d, "add", "/none/a", int64(1))
	want := map[string]any{"inner": map[string]any{"a": int64(1)}, "none": map[string]any{"a": int64(1)}}
	if diff := cmp.Diff(want, root); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	d = Edit(nil)
	mustDo(t, d, "add", "/a", int64(1))
	if diff := cmp.Diff(map[string]any{"a": int64(1)}, d.Root()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func mustDo(tb testing.TB, d *Doc, verb, path string, value any) Change {
	tb.Helper()
	c, err := do(d, verb, path, value)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}
