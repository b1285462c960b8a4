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

// shape is a type that values are decoded into without encoding/json: strings, booleans,
// numbers, and slices, pointers and structs of them. It is immutable.
type shape struct {
	kind   reflect.Kind
	elem   *shape
	fields []shapeField
	// faithful says that a value is the same after it has been encoded and decoded.
	faithful bool
}

type shapeField struct {
	name  string
	index int
	shape *shape
}

// shapeOf returns the shape of a type, nil if it has none. What is rare has none, so that
// encoding/json alone knows its rules.
func shapeOf(t reflect.Type) *shape { return shapeIn(t, nil) }

var special = []reflect.Type{
	reflect.TypeFor[json.Marshaler](), reflect.TypeFor[json.Unmarshaler](),
	reflect.TypeFor[encoding.TextMarshaler](), reflect.TypeFor[encoding.TextUnmarshaler](),
	reflect.TypeFor[interface{ IsZero() bool }](),
}

// shapeIn returns the shape of a type inside others. One that contains itself has none, since
// its depth is not known.
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

// withFields returns s with the fields of a struct; nil if one of them is out of the
// ordinary.
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
			s.faithful = false // An empty slice that is left out comes back as nil.
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

// decoder decodes a value by its shape. Strings without escapes are parts of text, a copy
// of the document, so that they need no memory of their own.
type decoder struct {
	s    raw.Scanner
	text string
}

// decode reports whether it could decode the value into v, which is its zero value. If
// not, it leaves v in any state: the value may be right or wrong, and is one for
// encoding/json.
func (d *decoder) decode(value []byte, sh *shape, v reflect.Value) bool {
	d.s.Reset(value)
	d.text = string(value)
	ok := d.value(sh, v)
	d.text = ""
	return ok && d.s.End() == nil
}

// value decodes the value that comes next. Null, and whatever is not of the kind, is left to
// encoding/json, which has the errors for it.
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

// string returns the string that comes next: a part of the copy unless there are escapes in it.
func (d *decoder) string() string {
	start := d.s.Offset()
	text := d.s.Text()
	if d.s.Position()-start == len(text)+2 {
		return d.text[start+1 : start+1+len(text)]
	}
	return string(text)
}

// number decodes a number, if it is one of the kind that fits.
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

// slice counts the elements first, so that it needs memory once.
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

// fields decodes the members of an object into a struct. It gives up at one that the struct does
// not have, or that is there twice: of these the caller has to know.
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
