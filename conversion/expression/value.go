package expression

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// maxValues is the maximum number of values inside one JSON value.
const maxValues = 1_000_000

// list is a list of the input, with its JSON.
type list struct {
	traits.Lister

	raw []byte
	// weight is the number of values inside the list, including nested ones. levels is the number of nested levels,
	// including the list itself.
	weight, levels int
}

// table is a JSON object of the input, or an object that a function has created.
type table struct {
	keys   []string
	values []ref.Val
	// at has the index of each key, if there are many keys.
	at     map[string]int
	shape  *shape
	raw    []byte // Nil for an object that a function has created.
	weight int
	levels int
}

// many is the minimum number of keys of a table with an index.
const many = 9

// find returns the value with this key. If the JSON has a number that expressions cannot compute with, the value is an
// error.
func (t *table) find(key string) (ref.Val, bool) {
	if name, ok := t.shape.names[key]; ok {
		key = name
	}
	if t.at != nil {
		i, ok := t.at[key]
		if !ok {
			return nil, false
		}
		return t.values[i], true
	}
	for i, k := range t.keys {
		if k == key {
			return t.values[i], true
		}
	}
	return nil, false
}

// add appends a member.
func (t *table) add(key string, v ref.Val) {
	if len(t.keys)+1 >= many && t.at == nil {
		t.at = make(map[string]int, 2*many)
		for i, k := range t.keys {
			t.at[k] = i
		}
	}
	if t.at != nil {
		t.at[key] = len(t.keys)
	}
	t.keys, t.values = append(t.keys, key), append(t.values, v)
}

// has reports whether the table has this key. The key is a JSON name.
func (t *table) has(key string) bool {
	if t.at != nil {
		_, ok := t.at[key]
		return ok
	}
	return slices.Contains(t.keys, key)
}

// Find implements [traits.Mapper].
func (t *table) Find(key ref.Val) (ref.Val, bool) {
	k, ok := key.(types.String)
	if !ok {
		return nil, false
	}
	return t.find(string(k))
}

// Get implements [traits.Indexer].
func (t *table) Get(key ref.Val) ref.Val {
	v, ok := t.Find(key)
	if !ok {
		return types.NewErr("no such key: %v", key)
	}
	return v
}

// Contains implements [traits.Container].
func (t *table) Contains(key ref.Val) ref.Val {
	_, ok := t.Find(key)
	return types.Bool(ok)
}

// Size implements [traits.Sizer].
func (t *table) Size() ref.Val { return types.Int(len(t.keys)) }

// Iterator implements [traits.Iterable]. It visits the keys in the order of the JSON.
func (t *table) Iterator() traits.Iterator {
	return types.NewStringList(types.DefaultTypeAdapter, t.keys).Iterator()
}

// Equal implements [ref.Val].
func (t *table) Equal(other ref.Val) ref.Val {
	o, ok := other.(traits.Mapper)
	if !ok || o.Size() != t.Size() {
		return types.False
	}
	for i, k := range t.keys {
		v, found := o.Find(types.String(k))
		if !found {
			return types.False
		}
		if eq := types.Equal(t.values[i], v); eq != types.True {
			return eq
		}
	}
	return types.True
}

// ConvertToNative implements [ref.Val].
func (t *table) ConvertToNative(typ reflect.Type) (any, error) {
	return types.NewRefValMap(types.DefaultTypeAdapter, t.members()).ConvertToNative(typ)
}

// ConvertToType implements [ref.Val].
func (t *table) ConvertToType(typ ref.Type) ref.Val {
	switch typ {
	case types.MapType:
		return t
	case types.TypeType:
		return types.MapType
	default:
		return types.NewErr("type conversion error from map to '%s'", typ)
	}
}

// Type implements [ref.Val].
func (*table) Type() ref.Type { return types.MapType }

// Value implements [ref.Val].
func (t *table) Value() any { return t.members() }

func (t *table) members() map[ref.Val]ref.Val {
	out := make(map[ref.Val]ref.Val, len(t.keys))
	for i, k := range t.keys {
		out[types.String(k)] = t.values[i]
	}
	return out
}

var errJSON = errors.New("the value is not JSON")

// decode decodes JSON. The result refers to the bytes of value.
func decode(value []byte, s *shape) (ref.Val, error) {
	if !json.Valid(value) {
		return nil, errJSON
	}
	r := reader{data: value}
	v := r.value(s)
	return v, r.err
}

// reader decodes valid JSON.
type reader struct {
	data   []byte
	at     int
	values int
	levels int // Number of levels of the last value.
	err    error
}

// next returns the next byte that is not white space.
func (r *reader) next() byte {
	for {
		switch c := r.data[r.at]; c {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return c
		}
	}
}

func (r *reader) value(s *shape) ref.Val {
	r.values++
	if r.values > maxValues && r.err == nil {
		r.err = fmt.Errorf("the value has more than %d values in it", maxValues)
	}
	if r.err != nil {
		return types.NullValue
	}
	r.levels = 0
	switch r.next() {
	case '{':
		return r.table(s)
	case '[':
		return r.list(s)
	case '"':
		return types.String(r.text())
	case 't':
		r.at += len("true")
		return types.True
	case 'f':
		r.at += len("false")
		return types.False
	case 'n':
		r.at += len("null")
		return types.NullValue
	default:
		return r.number(s)
	}
}

func (r *reader) list(s *shape) ref.Val {
	start, before, levels := r.at, r.values, 0
	r.at++
	values := make([]ref.Val, 0, 4)
	for r.next() != ']' && r.err == nil {
		if r.data[r.at] == ',' {
			r.at++
		}
		values = append(values, r.value(s.element()))
		levels = max(levels, r.levels)
	}
	if r.err != nil {
		return types.NullValue
	}
	r.at++
	r.levels = levels + 1
	return &list{
		Lister: types.NewRefValList(types.DefaultTypeAdapter, values),
		raw:    r.data[start:r.at:r.at],
		weight: r.values - before,
		levels: r.levels,
	}
}

func (r *reader) table(s *shape) ref.Val {
	start, before, levels := r.at, r.values, 0
	t := &table{shape: s}
	r.at++
	for r.next() != '}' && r.err == nil {
		if r.data[r.at] == ',' {
			r.at++
			r.next()
		}
		key := r.text()
		r.next()
		r.at++ // The colon.
		if t.has(key) {
			r.err = fmt.Errorf("the value has an object with the key %q twice", key)
		}
		t.add(key, r.value(s.field(key)))
		levels = max(levels, r.levels)
	}
	if r.err != nil {
		return types.NullValue
	}
	r.at++
	r.levels = levels + 1
	t.raw, t.weight, t.levels = r.data[start:r.at:r.at], r.values-before, r.levels
	return t
}

func (r *reader) text() string {
	start := r.at
	plain := true
	for r.at++; r.data[r.at] != '"'; r.at++ {
		if r.data[r.at] == '\\' {
			plain = false
			r.at++
		}
	}
	r.at++
	inside := r.data[start+1 : r.at-1]
	if plain && utf8.Valid(inside) {
		return string(inside)
	}
	var out string
	if err := json.Unmarshal(r.data[start:r.at], &out); err != nil && r.err == nil {
		r.err = errJSON
	}
	return out
}

// whole is 2^53. A double represents every integer up to this number exactly.
const whole = 1 << 53

// number decodes a number. For a number that expressions cannot compute with, it returns an error value.
func (r *reader) number(s *shape) ref.Val {
	start := r.at
	decimal := false
digits:
	for ; r.at < len(r.data); r.at++ {
		switch c := r.data[r.at]; {
		case c == '.' || c == 'e' || c == 'E':
			decimal = true
		case c != '-' && c != '+' && (c < '0' || c > '9'):
			break digits
		}
	}
	text := string(r.data[start:r.at])
	if !decimal && (s.number != "number" || len(text) < 19) {
		i, err := strconv.ParseInt(text, 10, 64)
		switch {
		case err != nil:
			return types.WrapErr(fmt.Errorf("the number %s does not fit in 64 bits", short(text)))
		case s.number == "number" && -whole <= i && i <= whole:
			return types.Double(i)
		default:
			return types.Int(i)
		}
	}
	f, err := strconv.ParseFloat(text, 64)
	switch {
	case err != nil:
		return types.WrapErr(fmt.Errorf("the number %s does not fit in 64 bits", short(text)))
	case s.number == "integer" && f == math.Trunc(f) && math.Abs(f) < 1<<63:
		return types.Int(f)
	default:
		return types.Double(f)
	}
}

// short shortens a text for messages.
func short(text string) string {
	const most = 40
	if len(text) <= most {
		return text
	}
	return text[:most] + "…"
}
