package verify

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"

	"refract.dev/conversion/convert"
	"refract.dev/conversion/structural"
	"refract.dev/tree"
)

// nothing is the type of none, which stands for an absent value.
type nothing struct{}

var none any = nothing{}

// shown returns a value in the form for violations: nil if it is absent.
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
	// unreadable is the reason why the object cannot be decoded in its version; "" if it can.
	unreadable string
}

func (d *difference) String() string {
	switch {
	case d.unreadable != "":
		return "cannot be read: " + d.unreadable
	case d.got == none:
		return "is lost"
	case d.want == none:
		return "is added"
	default:
		return fmt.Sprintf("is %s, not %s", brief(d.got), brief(d.want))
	}
}

// brief returns the JSON of a value, cut to 60 characters.
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
	// lenient allows additional members in got.
	lenient bool
	// hollow allows added and removed objects that contain no values. It is set if values at some places are ignored,
	// because an object around such a place may become empty.
	hollow bool
}

// between is the value that the other version has at a place.
type between struct {
	value any
	// schema is the schema of the other version for this place; nil if it has none.
	schema *schema.Structural
}

// member returns the value that the other version has for a member.
func (b between) member(key string) between {
	if b.value == unknown {
		return between{value: unknown, schema: below(b.schema, key)}
	}
	return between{value: memberOf(b.value, key), schema: below(b.schema, key)}
}

// element returns the value that the other version has for an element of a list. Elements of the two versions cannot be
// matched, so the value is unknown.
func (b between) element() between {
	if b.schema == nil {
		return between{}
	}
	return between{value: unknown, schema: b.schema.Items}
}

// unknown stands for a value of which it is not known whether it is empty.
var unknown any = struct{}{}

// empty reports whether a value is absent or an empty object.
func empty(v any) bool {
	members, ok := v.(map[string]any)
	return v == none || ok && len(members) == 0
}

// first returns the first difference between two values, in the order of keys; nil if there is none.
//
// An object without values may get lost in two cases: the other version has no place for it, or the other version had
// content in it. In the second case, the object existed only because of this content.
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

// hollow reports whether a value is absent, or contains nothing but objects.
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

// same reports whether two values are equal as JSON, or both are absent.
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

// memberOf returns a member of a value; none if there is no such member.
func memberOf(value any, key string) any {
	if members, ok := value.(map[string]any); ok {
		if v, ok := members[key]; ok {
			return v
		}
	}
	return none
}

// bare returns an object without the annotation refract.dev/complement. If annotations or metadata become empty, they
// are removed as well. bare copies each object that it changes.
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

// headless returns an object without metadata. Such an object cannot keep values in an annotation.
func headless(obj map[string]any) map[string]any {
	obj = maps.Clone(obj)
	delete(obj, "metadata")
	return obj
}

// strict allows no losses.
var strict = between{value: none, schema: anything}

// inside returns the object that the other version has, for comparisons.
func inside(v *structural.Version, d *document) between {
	return between{value: d.object, schema: v.Structural()}
}
