package verify

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	"refract.dev/convert"
	"refract.dev/structural"
	"refract.dev/tree"
)

// nothing stands for a value that is not there.
type nothing struct{}

var none any = nothing{}

// shown returns a value as a violation has it.
func shown(v any) any {
	if v == none {
		return nil
	}
	return v
}

// difference is the first place where two objects differ.
type difference struct {
	path      string
	want, got any
	// unreadable is why one of them is no object of its version, if it is not.
	unreadable string
}

func (d *difference) String() string {
	switch {
	case d.unreadable != "":
		return "cannot be read: " + d.unreadable
	case d.got == none:
		return "is lost"
	case d.want == none:
		return "was not there"
	default:
		return fmt.Sprintf("is %s, not %s", brief(d.got), brief(d.want))
	}
}

// brief returns a value as short JSON.
func brief(v any) string {
	const most = 60
	text := []rune(string(encode(v)))
	if len(text) > most {
		return string(text[:most-1]) + "…"
	}
	return string(text)
}

// differ compares trees.
type differ struct {
	// lenient allows got to have more members.
	lenient bool
	// hollow allows objects without values to come and go: places were left out.
	hollow bool
}

// between is what has been at a place in between, in another version.
type between struct {
	value any
	// schema is that of the other version there; nil if there is none.
	schema *schema.Structural
}

// member returns what has been at a member.
func (b between) member(key string) between {
	if b.value == unknown {
		return between{value: unknown, schema: below(b.schema, key)}
	}
	return between{value: memberOf(b.value, key), schema: below(b.schema, key)}
}

// element returns what has been at the elements of a list: which of them was which nobody
// knows.
func (b between) element() between {
	if b.schema == nil {
		return between{}
	}
	return between{value: unknown, schema: b.schema.Items}
}

// unknown is a value of which nobody knows whether it is empty.
var unknown any = struct{}{}

// empty is whether nothing is at a place, or an object that nothing is in.
func empty(v any) bool {
	members, ok := v.(map[string]any)
	return v == none || ok && len(members) == 0
}

// first returns the first difference, in the order of keys; nil if there is none.
//
// An object without values that is lost is none if the other version has no place for it,
// or has had other things there: then it is nothing but what was around them.
func (d differ) first(path string, want, got any, via between) *difference {
	switch w := want.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			return d.members(path, w, g, via)
		}
		if got == none && hollow(w) && (d.hollow || via.schema == nil || !empty(via.value)) {
			return nil
		}
	case []any:
		if g, ok := got.([]any); ok && len(g) == len(w) {
			for i := range w {
				if found := d.first(element(path, i), w[i], g[i], via.element()); found != nil {
					return found
				}
			}
			return nil
		}
	}
	if same(want, got) || d.hollow && want == none && hollow(got) {
		return nil
	}
	return &difference{path: path, want: want, got: got}
}

func (d differ) members(path string, want, got map[string]any, via between) *difference {
	for _, key := range keysOf(want, got) {
		w, g := memberOf(want, key), memberOf(got, key)
		if d.lenient && w == none {
			continue
		}
		if found := d.first(member(path, key), w, g, via.member(key)); found != nil {
			return found
		}
	}
	return nil
}

// hollow is whether there is nothing but objects at a place, or nothing at all.
func hollow(v any) bool {
	if v == none {
		return true
	}
	members, ok := v.(map[string]any)
	for _, inner := range members {
		ok = ok && hollow(inner)
	}
	return ok
}

// same is whether two values are equal as JSON, or neither is there.
func same(a, b any) bool {
	if a == none || b == none {
		return a == b
	}
	return tree.Equal(a, b)
}

// keysOf returns the keys of several objects, sorted.
func keysOf(objects ...map[string]any) []string {
	var keys []string
	for _, o := range objects {
		keys = slices.AppendSeq(keys, maps.Keys(o))
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// memberOf returns a member of a value; nothing if it has none.
func memberOf(value any, key string) any {
	if members, ok := value.(map[string]any); ok {
		if v, ok := members[key]; ok {
			return v
		}
	}
	return none
}

// bare returns an object without the annotation that keeps what a version cannot hold,
// and without what is then empty in metadata. It copies what it changes.
func bare(obj map[string]any) map[string]any {
	metadata, ok := obj["metadata"].(map[string]any)
	if !ok {
		return obj
	}
	annotations, ok := metadata["annotations"].(map[string]any)
	_, kept := annotations[convert.Annotation]
	if ok && (kept || len(annotations) == 0) {
		metadata, annotations = maps.Clone(metadata), maps.Clone(annotations)
		delete(annotations, convert.Annotation)
		if metadata["annotations"] = annotations; len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	obj = maps.Clone(obj)
	if obj["metadata"] = metadata; len(metadata) == 0 {
		delete(obj, "metadata")
	}
	return obj
}

// headless returns an object without metadata: nothing can be kept for it.
func headless(obj map[string]any) map[string]any {
	obj = maps.Clone(obj)
	delete(obj, "metadata")
	return obj
}

// strict allows nothing to get lost.
var strict = between{value: none, schema: anything}

// inside returns where an object is, that is of a version.
func inside(v *structural.Version, d *document) between {
	return between{value: d.object, schema: v.Structural()}
}
