package verify

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

func TestParsePlace(t *testing.T) {
	cases := map[string][][]string{
		"spec":                      {{"spec"}},
		"spec.size":                 {{"spec", "size"}},
		"spec.ports[*].name":        {{"spec", "ports", "[*]", "name"}},
		"spec.table[*]":             {{"spec", "table", "[*]"}},
		`spec["a.b"].c`:             {{"spec", "a.b", "c"}},
		`spec["a]\"b"]["c{d,e}"]`:   {{"spec", `a]"b`, "c{d,e}"}},
		"spec.{host,port}":          {{"spec", "host"}, {"spec", "port"}},
		"spec.list[*].{host, port}": {{"spec", "list", "[*]", "host"}, {"spec", "list", "[*]", "port"}},
	}
	for place, want := range cases {
		if diff := cmp.Diff(want, parsePlace(place)); diff != "" {
			t.Errorf("parsePlace(%s): -want, +got:\n%s", place, diff)
		}
	}
}

func TestWithout(t *testing.T) {
	cases := map[string]struct {
		reason, object, place, want string
	}{
		"Member":   {"The member is removed.", `{"spec":{"a":1,"b":2}}`, "spec.a", `{"spec":{"b":2}}`},
		"Parents":  {"Parents that become empty are removed, too.", `{"spec":{"a":{"b":2}},"x":1}`, "spec.a.b", `{"x":1}`},
		"Empty":    {"Parents that were empty are removed, too.", `{"spec":{"a":{}},"x":1}`, "spec.a.b", `{"x":1}`},
		"Elements": {"The member is removed from each element.", `{"l":[{"a":1,"b":2},{"b":3}]}`, "l[*].a", `{"l":[{"b":2},{"b":3}]}`},
		"Values":   {"The member is removed from each value of a table.", `{"t":{"x":{"a":1,"b":2},"y":{"b":3}}}`, "t[*].a", `{"t":{"x":{"b":2},"y":{"b":3}}}`},
		"Nowhere":  {"A missing member changes nothing.", `{"spec":{"b":"text"}}`, "spec.b.c", `{"spec":{"b":"text"}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := read(t, tc.object)
			got, _ := without(in, parsePlace(tc.place)[0])
			if diff := cmp.Diff(any(read(t, tc.want)), got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(read(t, tc.object), in); diff != "" {
				t.Errorf("without() changed its input: -before, +after:\n%s", diff)
			}
		})
	}
}

func TestPaths(t *testing.T) {
	obj := read(t, `{"spec":{"list":[{"name":"x"}],"a.b":{"c/d":7}}}`)
	if got := pathOf([]any{"spec", "list", 0, "a.b", "c"}); got != `spec.list[0]["a.b"].c` {
		t.Errorf("pathOf() = %s", got)
	}
	if got := pointed("/spec/a.b/c~1d", obj); got != `spec["a.b"]["c/d"]` {
		t.Errorf("pointed() = %s", got)
	}
	if got := pointed("/spec/list/0/name", obj); got != "spec.list[0].name" {
		t.Errorf("pointed() = %s", got)
	}
	for path, want := range map[string]any{"spec.list[0].name": "x", "spec.list[1].name": nil, "spec.list[x]": nil, `spec["a.b"]["c/d"]`: int64(7), "spec.none.x": nil} {
		if diff := cmp.Diff(want, valueAt(obj, path)); diff != "" {
			t.Errorf("valueAt(%s): -want, +got:\n%s", path, diff)
		}
	}
}

// TestHollowObjects: an object without values may get lost if it existed only because of other content.
func TestHollowObjects(t *testing.T) {
	cases := map[string]struct {
		reason, want, got, via string
		lost                   bool
	}{
		"InTheWay":   {"The other version has other content in the object.", `{"a":{}}`, `{}`, `{"a":{"x":1}}`, false},
		"ItMatters":  {"The other version has the object without content.", `{"a":{}}`, `{}`, `{"a":{}}`, true},
		"NotThere":   {"The other version has no place for the object.", `{"a":{}}`, `{}`, `{}`, true},
		"WithValues": {"The object had values.", `{"a":{"b":1}}`, `{}`, `{"a":{"x":1}}`, true},
		"Comes":      {"The object was added.", `{}`, `{"a":{}}`, `{"a":{}}`, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := differ{}.first("", read(t, tc.want), read(t, tc.got), between{value: read(t, tc.via), schema: anything})
			if (d != nil) != tc.lost {
				t.Errorf("%s\nfirst() = %v", tc.reason, d)
			}
		})
	}
	if d := (differ{}).first("", read(t, `{"a":{}}`), read(t, `{}`), between{value: map[string]any{}}); d != nil {
		t.Errorf("without a place in the other version: %v", d)
	}
}

func read(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := utiljson.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return out
}
