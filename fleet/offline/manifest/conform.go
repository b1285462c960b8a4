package manifest

import (
	"encoding"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/tree"
)

// mismatch is a place where a value does not fit a Go type.
type mismatch struct {
	path *field.Path
	fact string
	hint string
}

// mostMismatches is the maximum number of mismatches of a value. Each needs a path and a sentence, and may concern a
// value of only two bytes.
const mostMismatches = 100

// conform returns every place where value, decoded from JSON, cannot be decoded into t: unknown fields and values of a
// wrong type. If strict is true, it also returns missing required fields: by the conventions of Kubernetes, those
// without omitempty. Null counts as absent. Only the first mostMismatches places are returned.
func conform(value any, t reflect.Type, at *field.Path, strict bool) []mismatch {
	c := &conformity{strict: strict}
	c.value(value, t, &place{path: at})
	return c.found
}

// conformity collects mismatches.
type conformity struct {
	strict bool
	found  []mismatch
}

// enough reports whether the maximum number of mismatches is reached.
func (c *conformity) enough() bool { return len(c.found) >= mostMismatches }

func (c *conformity) add(at *place, fact, hint string) {
	c.found = append(c.found, mismatch{path: at.field(), fact: fact, hint: hint})
}

// place is the place of a value. Its path is built only for a mismatch, because most values have none. The values of one
// object or list share one place, which changes from value to value: an admission review may contain 100,000 of them.
type place struct {
	path   *field.Path
	parent *place
	key    string // A field, or the key of a map.
	index  int
	kind   way
}

// way is the kind of step from a value to a value inside it.
type way int

const (
	toRoot way = iota
	toField
	toKey
	toElement
)

func (p *place) field() *field.Path {
	switch p.kind {
	case toField:
		return child(p.parent.field(), p.key)
	case toKey:
		return p.parent.field().Key(p.key)
	case toElement:
		return p.parent.field().Index(p.index)
	default:
		return p.path
	}
}

// value checks a value.
func (c *conformity) value(value any, t reflect.Type, at *place) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if value == nil || c.enough() {
		return
	}
	if decodesItself(t) {
		c.itself(value, t, at)
		return
	}
	var want string
	switch t.Kind() {
	case reflect.Struct:
		if m, ok := value.(map[string]any); ok {
			c.structure(m, t, at)
			return
		}
		want = "an object"
	case reflect.Map:
		if m, ok := value.(map[string]any); ok {
			in := &place{parent: at, kind: toKey}
			for _, key := range sortedKeys(m) {
				in.key = key
				c.value(m[key], t.Elem(), in)
			}
			return
		}
		want = "an object"
	case reflect.Slice:
		if list, ok := value.([]any); ok {
			in := &place{parent: at, kind: toElement}
			for i, item := range list {
				in.index = i
				c.value(item, t.Elem(), in)
			}
			return
		}
		want = "an array"
	case reflect.String:
		if _, ok := value.(string); !ok {
			c.add(at, fmt.Sprintf("is %s, want a string", show(value)), hintQuote(value))
		}
		return
	case reflect.Bool:
		if _, ok := value.(bool); ok {
			return
		}
		want = "a boolean"
	case reflect.Int, reflect.Int32, reflect.Int64:
		if _, ok := value.(int64); ok {
			return
		}
		want = "an integer"
	default:
		return // The decoder reports the mismatch.
	}
	c.add(at, fmt.Sprintf("is %s, want %s", show(value), want), "")
}

// hintQuote returns a hint for a value that was probably meant as a string.
func hintQuote(value any) string {
	switch value.(type) {
	case map[string]any, []any:
		return ""
	default:
		return "quote the value"
	}
}

// show formats a value for a sentence.
func show(value any) string {
	switch value.(type) {
	case map[string]any, []any:
		return tree.TypeName(value)
	default:
		text, err := json.Marshal(value)
		if err != nil {
			return tree.TypeName(value)
		}
		return fmt.Sprintf("%s (%s)", text, tree.TypeName(value))
	}
}

func (c *conformity) structure(value map[string]any, t reflect.Type, at *place) {
	fields := fieldsOf(t)
	in := &place{parent: at, kind: toField}
	for _, key := range sortedKeys(value) {
		if c.enough() {
			return
		}
		in.key = key
		if f, ok := fields.of[key]; ok {
			c.value(value[key], f.Type, in)
			continue
		}
		hint := ""
		if near := nearest.To(key, fields.names); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
		c.add(in, "there is no such field", hint)
	}
	if !c.strict {
		return
	}
	for _, key := range fields.names {
		if fields.of[key].required && value[key] == nil && !c.enough() {
			in.key = key
			c.add(in, "is missing", "")
		}
	}
}

// sortedKeys returns the sorted keys of an object. It allocates only the slice: most objects of a review are small, and
// there may be 100,000.
func sortedKeys(object map[string]any) []string {
	keys := make([]string, 0, len(object))
	for key := range object {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func child(at *field.Path, key string) *field.Path {
	if at == nil {
		return field.NewPath(key)
	}
	return at.Child(key)
}

type jsonField struct {
	reflect.Type

	required bool
}

// jsonFields are the fields of a struct by their JSON names, and the sorted names.
type jsonFields struct {
	of    map[string]jsonField
	names []string
}

// knownFields caches the fields of structs by their types. Only few types occur.
var knownFields sync.Map

// fieldsOf returns the fields of a struct. The result is shared.
func fieldsOf(t reflect.Type) *jsonFields {
	if had, ok := knownFields.Load(t); ok {
		if fields, ok := had.(*jsonFields); ok {
			return fields
		}
	}
	fields := &jsonFields{of: map[string]jsonField{}}
	addFields(t, fields.of)
	fields.names = slices.Sorted(maps.Keys(fields.of))
	knownFields.Store(t, fields)
	return fields
}

// addFields adds the fields of a struct.
func addFields(t reflect.Type, to map[string]jsonField) {
	for f := range t.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			addFields(f.Type, to)
		case name != "" && name != "-":
			to[name] = jsonField{Type: f.Type, required: !strings.Contains(options, "omitempty")}
		}
	}
}

// itself checks a value of a type that decodes itself.
func (c *conformity) itself(value any, t reflect.Type, at *place) {
	data, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(data, reflect.New(t).Interface())
	}
	if err == nil {
		return
	}
	hint := ""
	if _, isString := value.(string); !isString {
		hint = hintQuote(value)
	}
	c.add(at, fmt.Sprintf("cannot be %s: %v", show(value), err), hint)
}

// decodesItself reports whether a type has a decoder of its own.
func decodesItself(t reflect.Type) bool {
	p := reflect.PointerTo(t)
	return p.Implements(reflect.TypeFor[json.Unmarshaler]()) || p.Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}
