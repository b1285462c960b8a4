package convert

import (
	"encoding"
	"encoding/json"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"refract.dev/tree/raw"
)

// shape describes a type whose values are decoded without encoding/json, because that is faster: strings, booleans,
// numbers, and slices, pointers and structs of these. It is immutable.
type shape struct {
	kind   reflect.Kind
	elem   *shape
	fields []shapeField
	// faithful is true if encoding and decoding give back the same value.
	faithful bool
}

type shapeField struct {
	name  string
	index int
	shape *shape
}

// shapeOf returns the shape of a type; nil if it has none. Unusual types have no shape, so encoding/json applies their
// rules.
func shapeOf(t reflect.Type) *shape { return shapeIn(t, nil) }

var special = []reflect.Type{
	reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](),
	reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
	reflect.TypeFor[interface{ IsZero() bool }](),
}

// shapeIn returns the shape of a type inside other types. A recursive type has no shape, because its depth is not
// bounded.
func shapeIn(t reflect.Type, outer []reflect.Type) *shape {
	isSpecial := func(i reflect.Type) bool { return t.Implements(i) || reflect.PointerTo(t).Implements(i) }
	if t == reflect.TypeFor[json.Number]() || slices.Contains(outer, t) || slices.ContainsFunc(special, isSpecial) {
		return nil
	}
	outer = append(slices.Clone(outer), t)
	s := &shape{kind: t.Kind(), faithful: true}
	switch t.Kind() {
	case reflect.String, reflect.Bool, reflect.Float32, reflect.Float64,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return s
	case reflect.Slice, reflect.Pointer:
		s.elem = shapeIn(t.Elem(), outer)
		if s.elem == nil || s.elem.kind == reflect.Uint8 {
			return nil
		}
		s.faithful = s.elem.faithful
		return s
	case reflect.Struct:
		return s.withFields(t, outer)
	default:
		return nil
	}
}

// withFields returns s with the fields of a struct; nil if a field has no shape or an unusual tag.
func (s *shape) withFields(t reflect.Type, outer []reflect.Type) *shape {
	for i := range t.NumField() {
		f := t.Field(i)
		name, rest, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.Anonymous && (!f.IsExported() || name == "-" && rest == "") {
			s.faithful = false
			continue
		}
		if name == "" {
			name = f.Name
		}
		inner := shapeIn(f.Type, outer)
		taken := slices.ContainsFunc(s.fields, func(other shapeField) bool { return strings.EqualFold(other.name, name) })
		if f.Anonymous || inner == nil || taken || !isPlainName(name) || rest != "" && rest != "omitempty" && rest != "omitzero" {
			return nil
		}
		if !inner.faithful || rest == "omitempty" && inner.kind == reflect.Slice {
			s.faithful = false // An empty slice that is omitted comes back as nil.
		}
		s.fields = append(s.fields, shapeField{name: name, index: i, shape: inner})
	}
	return s
}

func isPlainName(name string) bool {
	return strings.IndexFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	}) < 0
}

// decoder decodes a value by its shape. It copies the document once as text. Strings without escapes are parts of text,
// so they need no allocations.
type decoder struct {
	s    raw.Scanner
	text string
}

// decode decodes the value into v, which must be a zero value, and reports whether it succeeded. If not, the content of
// v is undefined, and encoding/json must decode the value, which may still be valid.
func (d *decoder) decode(value []byte, sh *shape, v reflect.Value) bool {
	d.s.Reset(value)
	d.text = string(value)
	ok := d.value(sh, v)
	d.text = ""
	return ok && d.s.End() == nil
}

// value decodes the next value. It fails for null and for values of another type: encoding/json decodes these, or has
// the error text.
func (d *decoder) value(sh *shape, v reflect.Value) bool {
	next := d.s.Next()
	switch sh.kind {
	case reflect.String:
		if next != '"' {
			return false
		}
		v.SetString(d.string())
		return d.s.Err() == nil
	case reflect.Bool:
		v.SetBool(next == 't')
		d.s.Value()
		return next == 't' || next == 'f'
	case reflect.Slice:
		return next == '[' && d.slice(sh, v)
	case reflect.Pointer:
		if next == 'n' {
			return false
		}
		v.Set(reflect.New(v.Type().Elem()))
		return d.value(sh.elem, v.Elem())
	case reflect.Struct:
		return next == '{' && d.fields(sh, v)
	default:
		return next != '"' && next != 'n' && d.number(sh.kind, v)
	}
}

// string returns the next string. A string without escapes is a part of text.
func (d *decoder) string() string {
	start := d.s.Offset()
	text := d.s.Text()
	if d.s.Position()-start == len(text)+2 {
		return d.text[start+1 : start+1+len(text)]
	}
	return string(text)
}

// number decodes a number. It returns false if the number does not fit the type.
func (d *decoder) number(kind reflect.Kind, v reflect.Value) bool {
	start := d.s.Offset()
	text := d.text[start : start+len(d.s.Value())]
	switch kind {
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil || v.OverflowFloat(f) {
			return false
		}
		v.SetFloat(f)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil || v.OverflowUint(n) {
			return false
		}
		v.SetUint(n)
	default:
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || v.OverflowInt(n) {
			return false
		}
		v.SetInt(n)
	}
	return true
}

// slice decodes an array. It counts the elements first, so that it allocates memory once.
func (d *decoder) slice(sh *shape, v reflect.Value) bool {
	ahead, n := d.s, 0
	if !ahead.OpenArray() {
		return false
	}
	for first := true; ahead.NextElement(first); first = false {
		ahead.Value()
		n++
	}
	if ahead.Err() != nil {
		return false
	}
	if n == 0 {
		d.s = ahead
		v.Set(reflect.MakeSlice(v.Type(), 0, 0))
		return true
	}
	v.Grow(n)
	v.SetLen(n)
	d.s.OpenArray()
	for i := 0; d.s.NextElement(i == 0); i++ {
		if !d.value(sh.elem, v.Index(i)) {
			return false
		}
	}
	return true
}

// fields decodes the members of an object into a struct. It returns false for a member that the struct does not have,
// and for a duplicate member, because then the decoded value is not exact.
func (d *decoder) fields(sh *shape, v reflect.Value) bool {
	var seen uint64
	d.s.OpenObject()
	for first := true; ; first = false {
		key, _, ok := d.s.NextKey(first)
		if !ok {
			return d.s.Err() == nil
		}
		i := 0
		for i < len(sh.fields) && sh.fields[i].name != string(key) {
			i++
		}
		if i == len(sh.fields) || i >= 64 || seen&(1<<i) != 0 {
			return false
		}
		seen |= 1 << i
		if !d.value(sh.fields[i].shape, v.Field(sh.fields[i].index)) {
			return false
		}
	}
}
