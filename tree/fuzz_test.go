package tree

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// choices turns the bytes of a fuzzer into decisions.
type choices struct{ rest []byte }

// below returns a number below n. It returns 0 when all bytes are used.
func (c *choices) below(n int) int {
	if len(c.rest) == 0 {
		return 0
	}
	b := c.rest[0]
	c.rest = c.rest[1:]
	return int(b) % n
}

// keys is a short list, so that paths often collide. Some keys look like indexes.
var keys = []string{"a", "b", "0", "1", "-", "-1", "x/y", "~"}

func (c *choices) value(depth int) any {
	kind := c.below(8)
	if depth == 0 {
		kind %= 5
	}
	switch kind {
	case 0:
		return int64(c.below(4))
	case 1:
		return "s" + strconv.Itoa(c.below(3))
	case 2:
		return nil
	case 3:
		return c.below(2) == 0
	case 4:
		return 0.5
	case 5:
		a := []any{}
		for range c.below(4) {
			a = append(a, c.value(depth-1))
		}
		return a
	default:
		return c.object(depth - 1)
	}
}

func (c *choices) object(depth int) map[string]any {
	m := map[string]any{}
	for range c.below(5) {
		m[keys[c.below(len(keys))]] = c.value(depth)
	}
	return m
}

// pointer returns a place; in most cases the place exists in doc.
func (c *choices) pointer(doc any) Pointer {
	var p Pointer
	for {
		switch v := doc.(type) {
		case map[string]any:
			there := slices.Sorted(maps.Keys(v))
			key := keys[c.below(len(keys))]
			if len(there) > 0 && c.below(4) > 0 {
				key = there[c.below(len(there))]
			}
			p, doc = p.Member(key), v[key]
		case []any:
			key := []string{"-", "-1", "a", strconv.Itoa(c.below(len(v) + 2))}[min(3, c.below(8))]
			p, doc = p.Member(key), nil
			if i, err := strconv.Atoi(key); err == nil && 0 <= i && i < len(v) {
				doc = v[i]
			}
		default:
			p, doc = p.Member(keys[c.below(len(keys))]), nil
		}
		if c.below(3) == 0 {
			return p
		}
	}
}

// FuzzDoc makes the same edits with a Doc and with json-patch, which reads and writes JSON text. It compares the
// results, and which edits fail. These differences are on purpose, and the function reference compensates for them:
//
//   - The index -1: the json-patch of this test supports no negative index. A Doc supports -1, except as the last
//     segment of an add.
//   - Set, which json-patch does not have: it adds a missing member.
//
// The test avoids these differences by its choice of keys, and TestDoc covers them:
//
//   - json-patch takes an empty key for the object itself;
//   - json-patch accepts all indexes that strconv.Atoi accepts, such as +1 and 01.
func FuzzDoc(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x03\x00\x06\x02\x00\x00\x01\x01\x05\x03\x00\x01\x00\x02\x00\x03\x01\x01\x02\x03\x04\x05"))
	f.Add([]byte("the quick brown fox jumps over the lazy dog, twice and then again"))
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &choices{rest: data}
		in := c.object(3)
		original := runtime.DeepCopyJSON(in)
		d := Edit(in)
		var given, givenBefore []any
		for i := 0; i < 20 && len(c.rest) > 0; i++ {
			verb := []string{"add", "replace", "set", "remove"}[c.below(4)]
			p := c.pointer(d.Root())
			value := c.value(2)
			given, givenBefore = append(given, value), append(givenBefore, runtime.DeepCopyJSONValue(value))

			before := runtime.DeepCopyJSON(d.Root())
			want, wantErr := reference(t, before, verb, p, value)
			change, err := do(d, verb, p.String(), value)
			if (err != nil) != (wantErr != nil) {
				t.Fatalf("%s %s %v in %v: want error %v, got %v", verb, p, value, before, wantErr, err)
			}
			if diff := cmp.Diff(want, d.Root()); diff != "" {
				t.Fatalf("%s %s %v in %v: -want, +got:\n%s", verb, p, value, before, diff)
			}
			if err == nil {
				checkChange(t, before, d.Root(), change)
			}
		}
		if diff := cmp.Diff(original, in); diff != "" {
			t.Errorf("the original changed: -before, +after:\n%s", diff)
		}
		if diff := cmp.Diff(givenBefore, given); diff != "" {
			t.Errorf("a given value changed: -before, +after:\n%s", diff)
		}
	})
}

// reference makes the edit with json-patch. It returns doc if the edit fails.
func reference(t *testing.T, doc map[string]any, verb string, p Pointer, value any) (map[string]any, error) {
	t.Helper()
	path, parent := resolve(doc, verb, p)
	op := verb
	if verb == "set" {
		op = "replace"
		key := p.Keys()[len(p.Keys())-1]
		if m, ok := parent.(map[string]any); ok {
			if _, there := m[key]; !there {
				op = "add"
			}
		}
	}
	got, err := patch(t, doc, op, path, value)
	if err != nil {
		return doc, err
	}
	return got, nil
}

// resolve replaces each -1 that a Doc supports by the index of the last element. It returns the resulting path, and the
// value that contains the last segment.
func resolve(doc any, verb string, p Pointer) (path string, parent any) {
	var out Pointer
	segments := p.Keys()
	for i, key := range segments {
		parent = doc
		switch v := doc.(type) {
		case map[string]any:
			doc = v[key]
		case []any:
			added := verb == "add" && i == len(segments)-1
			if key == "-1" && len(v) > 0 && !added {
				key = strconv.Itoa(len(v) - 1)
			}
			doc = nil
			if n, err := strconv.Atoi(key); err == nil && 0 <= n && n < len(v) {
				doc = v[n]
			}
		default:
			doc = nil
		}
		out = out.Member(key)
	}
	return out.String(), parent
}

// patch applies one operation with json-patch.
func patch(t *testing.T, doc map[string]any, op, path string, value any) (map[string]any, error) {
	t.Helper()
	operation := map[string]any{"op": op, "path": path}
	if op != "remove" {
		operation["value"] = value
	}
	p, err := jsonpatch.DecodePatch(marshal(t, []any{operation}))
	if err != nil {
		t.Fatalf("%v in %v", err, operation)
	}
	options := jsonpatch.NewApplyOptions()
	options.SupportNegativeIndices = false
	text, err := p.ApplyWithOptions(marshal(t, doc), options)
	if err != nil {
		return nil, err
	}
	var got map[string]any
	if err := utiljson.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	return got, nil
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// checkChange verifies that the change is an RFC 6902 operation that turns before into after, and that it recorded the
// correct previous value.
func checkChange(t *testing.T, before, after map[string]any, c Change) {
	t.Helper()
	again, err := patch(t, before, string(c.Op), c.Path, c.After)
	if err != nil {
		t.Fatalf("%+v is no patch: %v", c, err)
	}
	if diff := cmp.Diff(after, again); diff != "" {
		t.Fatalf("%+v has another effect: -want, +got:\n%s", c, diff)
	}
	p := MustParse(c.Path)
	was, err := Lookup(before, p)
	if c.Op != OpAdd && (err != nil || !Equal(was, c.Before)) {
		t.Fatalf("%+v: want before %v, got error %v", c, was, err)
	}
	parent, err := Lookup(before, MustParse(c.Path[:strings.LastIndexByte(c.Path, '/')]))
	if err != nil {
		t.Fatal(err)
	}
	if _, array := parent.([]any); array != c.Element {
		t.Fatalf("%+v: want Element %t", c, array)
	}
}

// FuzzRecord compares the Shadows of changes to an array of objects with a model. In the model every element has its
// own history.
func FuzzRecord(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x00\x03\x01\x01\x00\x02\x01\x03\x00\x03\x01\x00\x00\x03\x00"))
	f.Add([]byte("0123456789abcdefghijklmnopqrstuvwxyz"))
	f.Fuzz(func(t *testing.T, data []byte) {
		type element struct {
			changes []int // Visible changes of the element or inside it.
			inside  []int // Visible changes of the member v of the element.
		}
		model := []*element{{}, {}, {}}
		d := Edit(map[string]any{"l": []any{map[string]any{"v": int64(0)}, map[string]any{"v": int64(0)}, map[string]any{"v": int64(0)}}})
		var changes Record
		hidden := map[int]bool{}
		c := &choices{rest: data}
		for n := 0; n < 30 && len(c.rest) > 0; n++ {
			verb, i := c.below(4), c.below(len(model)+1)
			if verb > 0 && i >= len(model) {
				verb = 0
			}
			at := MustParse("/l").At(i)
			fresh := map[string]any{"v": int64(n)}
			var change Change
			var err error
			var want []int
			switch verb {
			case 0:
				change, err = d.Add(at, fresh)
				model = slices.Insert(model, i, &element{changes: []int{n}})
			case 1:
				change, err = d.Remove(at)
				want = model[i].changes
				model = slices.Delete(model, i, i+1)
			case 2:
				change, err = d.Replace(at, fresh)
				want = model[i].changes
				model[i] = &element{changes: []int{n}}
			case 3:
				change, err = d.Replace(at.Member("v"), int64(-n))
				want = model[i].inside
				model[i].inside = []int{n}
				model[i].changes = append(slices.DeleteFunc(model[i].changes, func(j int) bool { return slices.Contains(want, j) }), n)
			}
			if err != nil {
				t.Fatal(err)
			}
			changes.Add(change)
			if diff := cmp.Diff(want, changes.Changes()[n].Shadows); diff != "" {
				t.Fatalf("%+v\nShadows: -want, +got:\n%s", changes.Changes(), diff)
			}
			for _, j := range want {
				if hidden[j] {
					t.Fatalf("%+v\nchange %d is hidden twice", changes.Changes(), j)
				}
				hidden[j] = true
			}
		}
	})
}
