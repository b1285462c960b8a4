package convert

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
)

// known describes the JSON members that a Go type has fields for. It is immutable. A nil *known accepts every member,
// like maps of any and types with their own UnmarshalJSON.
type known struct {
	fields map[string]*known // For a struct.
	elem   *known            // For a slice, an array or a map.
	kind   byte              // As in tree, and 'm' for a map.
	// zero is the kind of the zero value that omitempty omits; 0 if the zero value is nil.
	zero byte
}

// member returns the type of a member. It returns false if the type has no field for the member.
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

// element returns the type of the elements of a list.
func (k *known) element() *known {
	if k == nil || k.kind != '[' {
		return nil
	}
	return k.elem
}

// zeroAs reports whether the zero values of both types, which omitempty omits, are the same JSON value.
func (k *known) zeroAs(o *known) bool { return k != nil && o != nil && k.zero != 0 && k.zero == o.zero }

// all reports whether the type has fields for all members of a value, at any depth.
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

// knownOf returns the fields of a type.
func knownOf(t reflect.Type) *known { return knownIn(t, map[reflect.Type]*known{}) }

var reads = []reflect.Type{reflect.TypeFor[json.Unmarshaler](), reflect.TypeFor[encoding.TextUnmarshaler]()}

// knownIn is knownOf for a type inside other types. seen has the types around it, because a type may contain itself.
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

// addFields adds the fields of a struct. It adds the fields of embedded structs last, because the fields of the struct
// itself hide them.
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
