package convert

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
)

// known is what a Go type has a place for. It is immutable. Nil knows all there is, as
// maps without a type, and types that read JSON on their own, do.
type known struct {
	fields map[string]*known // Of a struct.
	elem   *known            // Of a slice, an array or a map.
	kind   byte              // As that of a tree; 'm' for a map.
	// zero is the kind of the zero value that is left out with omitempty, 0 if it is none
	// that JSON has a word for.
	zero byte
}

// member returns what is known of a member; false if there is no place for it.
func (k *known) member(key string) (*known, bool) {
	if k == nil {
		return nil, true
	}
	switch k.kind {
	case '{':
		f, ok := k.fields[key]
		return f, ok
	case 'm':
		return k.elem, true
	default:
		return nil, true
	}
}

// element returns what is known of elements.
func (k *known) element() *known {
	if k == nil || k.kind != '[' {
		return nil
	}
	return k.elem
}

// zeroAs reports whether a zero value of one type, which was left out, is the same as one
// of the other.
func (k *known) zeroAs(o *known) bool { return k != nil && o != nil && k.zero != 0 && k.zero == o.zero }

// all reports whether there is a place for all of a value.
func (k *known) all(t *tree) bool {
	for i := range t.items {
		inner, ok := k.element(), true
		if t.kind == '{' {
			inner, ok = k.member(t.keys[i])
		}
		if !ok || !inner.all(&t.items[i]) {
			return false
		}
	}
	return true
}

// knownOf returns what a type has a place for.
func knownOf(t reflect.Type) *known { return knownIn(t, map[reflect.Type]*known{}) }

var reads = []reflect.Type{reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()}

// knownIn is knownOf inside other types: seen has those, since a type may contain itself.
func knownIn(t reflect.Type, seen map[reflect.Type]*known) *known {
	for _, r := range reads {
		if t.Implements(r) || reflect.PointerTo(t).Implements(r) {
			return nil
		}
	}
	if k, ok := seen[t]; ok {
		return k
	}
	k := &known{}
	seen[t] = k
	switch t.Kind() {
	case reflect.Pointer:
		inner := knownIn(t.Elem(), seen)
		if inner == nil {
			return nil
		}
		*k = *inner
		k.zero = 0
	case reflect.Struct:
		k.kind, k.zero, k.fields = '{', '{', map[string]*known{}
		k.addFields(t, seen)
	case reflect.Map:
		k.kind, k.zero, k.elem = 'm', '{', knownIn(t.Elem(), seen)
	case reflect.Slice, reflect.Array:
		k.kind, k.zero, k.elem = '[', '[', knownIn(t.Elem(), seen)
		if t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Uint8 {
			k.kind, k.zero, k.elem = '"', '"', nil
		}
	case reflect.String:
		k.kind, k.zero = '"', '"'
	case reflect.Bool:
		k.kind, k.zero = 't', 't'
	case reflect.Interface:
		return nil
	default:
		k.kind, k.zero = '0', '0'
	}
	return k
}

// addFields adds the fields of a struct. Those of structs inside it that have no name of
// their own come after its own, which hide them.
//
// Source: https://pkg.go.dev/encoding/json#Marshal
func (k *known) addFields(t reflect.Type, seen map[reflect.Type]*known) {
	var embedded []reflect.Type
	for f := range t.Fields() {
		tag := f.Tag.Get("json")
		name, rest, _ := strings.Cut(tag, ",")
		inner := f.Type
		if inner.Kind() == reflect.Pointer {
			inner = inner.Elem()
		}
		switch {
		case tag == "-":
		case f.Anonymous && name == "" && inner.Kind() == reflect.Struct:
			embedded = append(embedded, inner)
		case f.IsExported():
			if name == "" {
				name = f.Name
			}
			k.fields[name] = knownIn(f.Type, seen)
			if strings.Contains(","+rest+",", ",string,") {
				k.fields[name] = &known{kind: '"'}
			}
		}
	}
	for _, e := range embedded {
		inner := knownIn(e, seen)
		if inner == nil {
			continue
		}
		for name, f := range inner.fields {
			if _, ok := k.fields[name]; !ok {
				k.fields[name] = f
			}
		}
	}
}
