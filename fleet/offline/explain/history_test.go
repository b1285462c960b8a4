package explain

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"refract.dev/fleet/policy/override"
	"refract.dev/tree"
)

// change is a write: the operation (add, set or remove), a place and a value.
type change struct {
	verb, path string
	value      any
}

// recorded returns the history of an object after the changes. Impossible changes are left out.
func recorded(object map[string]any, kind schema.GroupKind, changes ...change) *history {
	doc := tree.Edit(object)
	v := &override.Variant{}
	var record tree.Record
	for i, c := range changes {
		at := tree.MustParse(c.path)
		do := map[string]func() (tree.Change, error){
			"add":    func() (tree.Change, error) { return doc.Add(at, c.value) },
			"set":    func() (tree.Change, error) { return doc.Set(at, c.value) },
			"remove": func() (tree.Change, error) { return doc.Remove(at) },
		}
		made, err := do[c.verb]()
		if err != nil {
			continue
		}
		made.By = &tree.Author{Policy: tree.Policy{Kind: "P", Name: "p"}, Overrider: "jsonpatch", Item: i}
		record.Add(made)
	}
	v.Changes = record.Changes()
	v.Object = &unstructured.Unstructured{Object: doc.Root()}
	return historyOf(kind, object, v)
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	var v map[string]any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// drawn returns one line for each field: "PATH (FROM): INITIAL → VALUE → VALUE = FINAL", with an arrow for each write. A
// value is followed by "@PLACE" if the write replaced a place that contains the field, and by "~" if a later write
// shadows it.
func drawn(fields []Field) []string {
	var lines []string
	for _, f := range fields {
		b := &strings.Builder{}
		b.WriteString(f.Path)
		if f.From != "" {
			fmt.Fprintf(b, " (%s)", f.From)
		}
		b.WriteString(":")
		if f.Initial != nil {
			fmt.Fprintf(b, " %v", *f.Initial)
		}
		for _, w := range f.Writes {
			value := fmt.Sprint(w.After)
			if w.Op == tree.OpRemove {
				value = "gone"
			}
			fmt.Fprintf(b, " → %s", value)
			if w.Around {
				b.WriteString("@" + w.Path)
			}
			if w.Shadowed {
				b.WriteString("~")
			}
		}
		if f.Final != nil {
			fmt.Fprintf(b, " = %v", *f.Final)
		}
		lines = append(lines, b.String())
	}
	return lines
}

func TestFields(t *testing.T) {
	cases := map[string]struct {
		reason  string
		changes []change
		path    string // Empty for all.
		want    []string
	}{
		"Nothing": {
			reason: "Without changes there are no fields.",
		},
		"Chain": {
			reason:  "The chain of a place has all writes to it, and the last one counts.",
			changes: []change{{"set", "/m/a", 2}, {"set", "/m/b", 7}, {"set", "/m/a", 3}},
			want:    []string{"/m/a: 1 → 2~ → 3 = 3", "/m/b: → 7 = 7"},
		},
		"RemovedAndAdded": {
			reason:  "A removal is shadowed by a later write.",
			changes: []change{{"remove", "/m/a", nil}, {"add", "/m/a", 5}},
			want:    []string{"/m/a: 1 → gone~ → 5 = 5"},
		},
		"Around": {
			reason:  "A write of a whole object also writes the changed places inside it.",
			changes: []change{{"set", "/m/a", 2}, {"set", "/m", map[string]any{"a": 3}}, {"set", "/m/a", 4}},
			want:    []string{"/m/a: 1 → 2~ → 3@/m~ → 4 = 4", "/m: map[a:1] → map[a:3] = map[a:4]"},
		},
		"AroundTakesAway": {
			reason:  "The same applies if the new object lacks such a place.",
			changes: []change{{"set", "/m/a", 2}, {"set", "/m", map[string]any{}}},
			want:    []string{"/m/a: 1 → 2~ → gone@/m", "/m: map[a:1] → map[] = map[]"},
		},
		"MovedUp": {
			reason:  "An insertion moves the element behind it, and the chain continues at the new place.",
			changes: []change{{"set", "/l/0/v", 9}, {"add", "/l/0", map[string]any{"v": 0}}, {"set", "/l/1/v", 8}, {"set", "/l/0/v", 7}},
			want:    []string{"/l/1/v (/l/0/v): 1 → 9~ → 8 = 8", "/l/0: → map[v:0] = map[v:7]", "/l/0/v: → 0@/l/0~ → 7 = 7"},
		},
		"MovedDown": {
			reason:  "A removal ends the chain of the element, and the next element takes its place.",
			changes: []change{{"set", "/l/0/v", 9}, {"remove", "/l/0", nil}, {"set", "/l/0/v", 7}},
			want:    []string{"/l/0/v: 1 → 9~ → gone@/l/0", "/l/0: map[v:1] → gone", "/l/0/v (/l/1/v): 2 → 7 = 7"},
		},
		"RemovedThenReplaced": {
			reason:  "A write of the whole array shadows the removal of an element.",
			changes: []change{{"remove", "/l/0", nil}, {"set", "/l", []any{}}},
			want:    []string{"/l/0: map[v:1] → gone~", "/l: [map[v:1] map[v:2]] → [] = []"},
		},
		"InsertedAndRemoved": {
			reason:  "An element that was inserted and then removed was never on the hub.",
			changes: []change{{"add", "/l/1", "x"}, {"remove", "/l/1", nil}},
			want:    []string{"/l/1: → x~ → gone"},
		},
		"PathAt": {
			reason:  "The result for a changed place has only its own chain.",
			changes: []change{{"set", "/m/a", 2}, {"set", "/m/b", 7}},
			path:    "/m/a",
			want:    []string{"/m/a: 1 → 2 = 2"},
		},
		"PathAround": {
			reason:  "If only a part inside the place was changed, the chain of the part is returned.",
			changes: []change{{"set", "/m/a", 2}, {"set", "/l/0/v", 7}},
			path:    "/m",
			want:    []string{"/m/a: 1 → 2 = 2"},
		},
		"PathAroundWritten": {
			reason:  "If the whole place was written too, both chains are returned.",
			changes: []change{{"set", "/m", map[string]any{"a": 2}}, {"set", "/m/a", 3}},
			path:    "/m",
			want:    []string{"/m: map[a:1] → map[a:2] = map[a:3]", "/m/a: 1 → 2@/m~ → 3 = 3"},
		},
		"PathInside": {
			reason:  "A place inside a written value has a chain, although no change names the place.",
			changes: []change{{"add", "/l/0", map[string]any{"v": map[string]any{"w": 5}}}},
			path:    "/l/0/v/w",
			want:    []string{"/l/0/v/w: → 5@/l/0 = 5"},
		},
		"PathUntouched": {
			reason:  "The value of an unchanged place comes from the hub.",
			changes: []change{{"set", "/m/b", 2}},
			path:    "/m/a",
			want:    []string{"/m/a: 1 = 1"},
		},
		"PathMoved": {
			reason:  "The path is a place in the final object; its element was at another place before.",
			changes: []change{{"add", "/l/0", "x"}, {"set", "/l/1/v", 8}},
			path:    "/l/1/v",
			want:    []string{"/l/1/v (/l/0/v): 1 → 8 = 8"},
		},
		"PathMovedAway": {
			reason:  "If the final object has no such place, the path means the element that was there on the hub.",
			changes: []change{{"remove", "/l/0", nil}},
			path:    "/l/1",
			want:    []string{"/l/0 (/l/1): map[v:2] = map[v:2]"},
		},
		"PathRemoved": {
			reason:  "If the next element takes the place of a removed one, the path means both.",
			changes: []change{{"remove", "/l/0", nil}},
			path:    "/l/0",
			want:    []string{"/l/0 (/l/1): map[v:2] = map[v:2]", "/l/0: map[v:1] → gone"},
		},
		"PathNull": {
			reason: "Null is a value, unlike an absent value.",
			path:   "/z",
			want:   []string{"/z: <nil> = <nil>"},
		},
		"Null": {
			reason:  "Null can be written and overwritten.",
			changes: []change{{"set", "/m/a", nil}, {"set", "/z", 1}},
			want:    []string{"/m/a: 1 → <nil> = <nil>", "/z: <nil> → 1 = 1"},
		},
		"PathNowhere": {
			reason: "A place that never had a value gives one field without values.",
			path:   "/m/x",
			want:   []string{"/m/x:"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			const text = "{m: {a: 1}, l: [{v: 1}, {v: 2}], z: null}"
			object := parse(t, text)
			h := recorded(object, schema.GroupKind{}, tc.changes...)
			fields := h.fields()
			if tc.path != "" {
				fields = h.fieldsAt(tc.path)
			}
			if diff := gocmp.Diff(tc.want, drawn(fields)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if diff := gocmp.Diff(parse(t, text), object); diff != "" {
				t.Errorf("the object was changed: -before, +after:\n%s", diff)
			}
		})
	}
}

func TestFieldsOfSecret(t *testing.T) {
	object := parse(t, "{apiVersion: v1, kind: Secret, data: {a: QQ==}, metadata: {labels: {l: x}}}")
	h := recorded(object, schema.GroupKind{Kind: "Secret"},
		change{"set", "/data/a", "Qg=="}, change{"set", "/data", map[string]any{"b": "Qw=="}}, change{"set", "/metadata/labels/l", "y"})
	want := []string{
		"/data/a: *** → *** (after)~ → gone@/data",
		"/data: map[a:***] → map[b:*** (after)] = map[b:***]",
		"/metadata/labels/l: x → y = y",
	}
	if diff := gocmp.Diff(want, drawn(h.fields())); diff != "" {
		t.Errorf("The values of a Secret are masked.\n-want, +got:\n%s", diff)
	}
}

func TestFieldsOfSecretAnnotations(t *testing.T) {
	cases := map[string]struct {
		reason  string
		kind    string // Secret if empty.
		changes []change
		path    string
		want    []string
	}{
		"FromHub": {
			reason: "A tool may store the whole Secret in an annotation with any key.",
			path:   "/metadata/annotations/tool~1applied",
			want:   []string{"/metadata/annotations/tool~1applied: *** = ***"},
		},
		"Ours": {
			reason: "Refract's own annotations contain no values of the Secret.",
			path:   "/metadata/annotations/refract.dev~1note",
			want:   []string{"/metadata/annotations/refract.dev~1note: told = told"},
		},
		"All": {
			reason: "The result for all annotations masks each of them.",
			path:   "/metadata/annotations",
			want:   []string{"/metadata/annotations: map[m:map[in:***] refract.dev/note:told tool/applied:***] = map[m:map[in:***] refract.dev/note:told tool/applied:***]"},
		},
		"Around": {
			reason: "The same applies to the result for the metadata.",
			path:   "/metadata",
			want: []string{"/metadata: map[annotations:map[m:map[in:***] refract.dev/note:told tool/applied:***] name:s]" +
				" = map[annotations:map[m:map[in:***] refract.dev/note:told tool/applied:***] name:s]"},
		},
		"Inside": {
			reason: "An API server rejects an annotation with members, but a file may contain one.",
			path:   "/metadata/annotations/m/in",
			want:   []string{"/metadata/annotations/m/in: *** = ***"},
		},
		"ByPolicy": {
			reason:  "A value from a policy is shown, but the value before it is masked.",
			changes: []change{{"set", "/metadata/annotations/tool~1applied", "a"}, {"set", "/metadata/annotations/tool~1applied", "b"}},
			path:    "/metadata/annotations/tool~1applied",
			want:    []string{"/metadata/annotations/tool~1applied: *** → a~ → b = b"},
		},
		"BesidePolicy": {
			reason:  "A policy that sets another annotation does not unmask this one.",
			changes: []change{{"set", "/metadata/annotations/other", "a"}},
			path:    "/metadata/annotations/tool~1applied",
			want:    []string{"/metadata/annotations/tool~1applied: *** = ***"},
		},
		"AllByPolicy": {
			reason:  "A policy that replaces all annotations does not reveal the former values.",
			changes: []change{{"set", "/metadata/annotations", map[string]any{"tool/applied": "a"}}},
			path:    "/metadata/annotations/tool~1applied",
			want:    []string{"/metadata/annotations/tool~1applied: *** → a@/metadata/annotations = a"},
		},
		"OtherKind": {
			reason: "Annotations of other kinds are not masked.",
			kind:   "ConfigMap",
			path:   "/metadata/annotations/tool~1applied",
			want:   []string{"/metadata/annotations/tool~1applied: hidden = hidden"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			const object = "{metadata: {name: s, annotations: {tool/applied: hidden, refract.dev/note: told, m: {in: hidden}}}}"
			h := recorded(parse(t, object), schema.GroupKind{Kind: cmp.Or(tc.kind, "Secret")}, tc.changes...)
			fields := h.fieldsAt(tc.path)
			if diff := gocmp.Diff(tc.want, drawn(fields)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			for _, f := range fields {
				for _, w := range f.Writes {
					if strings.Contains(fmt.Sprint(w.Before), "hidden") {
						t.Errorf("%s\nwrite %d: before is %v", tc.reason, w.Change, w.Before)
					}
				}
			}
		})
	}
}

// FuzzFields makes random changes and verifies the rules for all chains: each change is in its field once, a write is
// shadowed if and only if the list of changes says so, and successive values have no gaps.
func FuzzFields(f *testing.F) {
	for seed := range uint64(200) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		h := recorded(parse(t, "{m: {a: 1, l: [5, 6]}, l: [{v: 1}, {v: 2, l: [7, 8]}, 3]}"), schema.GroupKind{}, randomChanges(seed)...)
		written := map[int]int{}
		for _, field := range h.fields() {
			for _, w := range field.Writes {
				if w.Around {
					continue
				}
				written[w.Change]++
				if w.Shadowed != h.hidden[w.Change] {
					t.Errorf("%s: change %d: shadowed is %t, and in the list of changes %t", field.Path, w.Change, w.Shadowed, h.hidden[w.Change])
				}
				if c := h.changes[w.Change]; w.Path != c.Path || w.Op != c.Op || !tree.Equal(w.Before, c.Before) || !tree.Equal(w.After, c.After) {
					t.Errorf("%s: change %d is %v, and its write %v", field.Path, w.Change, c, w)
				}
			}
			checkChain(t, &field)
		}
		for i := range h.changes {
			if written[i] != 1 {
				t.Errorf("change %d is a write of %d fields", i, written[i])
			}
		}
		checkPlaces(t, h, "", h.object)
	})
}

// checkChain verifies that the chain of a value without parts has no gaps.
func checkChain(t *testing.T, f *Field) {
	t.Helper()
	values := []any{valueOf(f.Initial)}
	for _, w := range f.Writes {
		values = append(values, w.Before, w.After)
	}
	values = append(values, valueOf(f.Final))
	if slices.ContainsFunc(values, hasInside) {
		return
	}
	for i := 0; i < len(values); i += 2 {
		if !tree.Equal(values[i], values[i+1]) {
			t.Errorf("%s: the chain has a gap: %v", f.Path, values)
			return
		}
	}
}

// valueOf returns nil for null and for an absent value.
func valueOf(v *any) any {
	if v == nil {
		return nil
	}
	return *v
}

func hasInside(v any) bool {
	switch v.(type) {
	case map[string]any, []any:
		return true
	}
	return false
}

// checkPlaces verifies the answers for every place of the final object.
func checkPlaces(t *testing.T, h *history, place string, value any) {
	t.Helper()
	if place != "" {
		fields := h.fieldsAt(place)
		at := slices.IndexFunc(fields, func(f Field) bool { return f.Path == place && f.Final != nil && tree.Equal(*f.Final, value) })
		if !hasInside(value) && at < 0 {
			t.Errorf("%s is %v, and not among %v", place, value, drawn(fields))
		}
		if at >= 0 {
			checkChain(t, &fields[at])
		}
	}
	switch v := value.(type) {
	case map[string]any:
		for key, inside := range v {
			checkPlaces(t, h, place+"/"+key, inside)
		}
	case []any:
		for i, inside := range v {
			checkPlaces(t, h, fmt.Sprintf("%s/%d", place, i), inside)
		}
	}
}

func randomChanges(seed uint64) []change {
	r := rand.New(rand.NewPCG(seed, 1))
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	var changes []change
	for i := range 1 + r.IntN(12) {
		path := pick("/m", "/m/a", "/m/l", "/l", "/n", "/m/l", "/l")
		if strings.HasSuffix(path, "l") && r.IntN(5) > 0 {
			path += pick("/0", "/1", "/2")
			if r.IntN(2) == 0 {
				path += pick("/v", "/l", "/l/0", "/l/1")
			}
		}
		n := 10 * (i + 1)
		value := []any{n, n, map[string]any{"v": n, "l": []any{n + 1, n + 2}}, []any{n + 3, map[string]any{"v": n + 4}}}[r.IntN(4)]
		changes = append(changes, change{pick("add", "add", "set", "remove"), path, value})
	}
	return changes
}
