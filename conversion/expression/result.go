package expression

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// maxText is the maximum size in bytes of a text and of a result. An API server accepts only 3 MiB.
const maxText = 8 << 20

// writer encodes results as JSON.
type writer struct {
	out   []byte
	start int // Offset of the result in out.
	items int // Remaining number of elements and members.
	limit int
	level int // Number of open lists and objects.
	// canonical is true if equal numbers must have equal texts. JSON of the input is then not copied.
	canonical bool
}

// maxLevels is the maximum number of nested lists and objects of a result. Go decodes 10,000 levels, and an object
// contains the result.
const maxLevels = 9_900

var errDeep = fmt.Errorf("the result has more than %d lists and objects inside each other", maxLevels)

var errLong = fmt.Errorf("the result has more than %d bytes", maxText)

// take counts n elements or members.
func (w *writer) take(n int) error {
	w.items -= n
	if w.items < 0 {
		return fmt.Errorf("the result has more than %d elements and members: that is the limit", w.limit)
	}
	return nil
}

func (w *writer) value(v ref.Val) error {
	if len(w.out)-w.start > maxText {
		return errLong
	}
	switch v := v.(type) {
	case types.String:
		w.text(string(v))
	case types.Int:
		w.out = strconv.AppendInt(w.out, int64(v), 10)
	case types.Uint:
		w.out = strconv.AppendUint(w.out, uint64(v), 10)
	case types.Double:
		return w.double(float64(v))
	case types.Bool:
		w.out = strconv.AppendBool(w.out, bool(v))
	case types.Null:
		w.out = append(w.out, "null"...)
	case *types.Err:
		return v
	case *list:
		if w.canonical {
			return w.list(v)
		}
		return w.raw(v.raw, v.weight, v.levels)
	case *table:
		if w.canonical || v.raw == nil {
			return w.members(v.keys, v.values)
		}
		return w.raw(v.raw, v.weight, v.levels)
	case traits.Lister:
		return w.list(v)
	case traits.Mapper:
		return w.mapper(v)
	case *types.Optional:
		return errors.New("the result has an optional value inside, which may be absent: " + mayBeAbsent)
	default:
		return fmt.Errorf("the result has a value of type %s, which JSON does not have: write %s", typeName(v), instead(v.Type().TypeName()))
	}
	return nil
}

// raw writes a value of the input without changes.
func (w *writer) raw(raw []byte, weight, levels int) error {
	if w.level+levels > maxLevels {
		return errDeep
	}
	w.out = append(w.out, raw...)
	return w.take(weight)
}

// begin and end are called for each list and object.
func (w *writer) begin(c byte) error {
	if w.level++; w.level > maxLevels {
		return errDeep
	}
	w.out = append(w.out, c)
	return nil
}

func (w *writer) end(c byte) {
	w.level--
	w.out = append(w.out, c)
}

func typeName(v ref.Val) string {
	if v == nil || v.Type() == nil {
		return "value of no type"
	}
	return typeText(v.Type().TypeName())
}

// instead returns the function that converts a value to a text, for a type that JSON does not have.
func instead(typeName string) string {
	if typeName == types.BytesType.TypeName() {
		return "base64.encode(...)"
	}
	return "string(...)"
}

// typeText returns the name of a type without its package, such as timestamp or quantity.
func typeText(name string) string {
	return strings.ToLower(name[strings.LastIndexByte(name, '.')+1:])
}

func (w *writer) double(f float64) error {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return fmt.Errorf("the result has the number %v, which JSON does not have", f)
	}
	if w.canonical && f == math.Trunc(f) && math.Abs(f) < 1<<63 {
		w.out = strconv.AppendInt(w.out, int64(f), 10)
		return nil
	}
	format := byte('f')
	if a := math.Abs(f); a != 0 && (a < 1e-6 || a >= 1e21) { // As encoding/json does.
		format = 'e'
	}
	w.out = strconv.AppendFloat(w.out, f, format, -1, 64)
	if n := len(w.out); format == 'e' && w.out[n-4] == 'e' && w.out[n-3] == '-' && w.out[n-2] == '0' {
		w.out = append(w.out[:n-2], w.out[n-1]) // e-9 instead of e-09.
	}
	return nil
}

func (w *writer) list(l traits.Lister) error {
	n, _ := l.Size().(types.Int)
	if err := w.take(int(n)); err != nil {
		return err
	}
	if err := w.begin('['); err != nil {
		return err
	}
	first := true
	for it := l.Iterator(); it.HasNext() == types.True; {
		if !first {
			w.out = append(w.out, ',')
		}
		first = false
		if err := w.value(it.Next()); err != nil {
			return err
		}
	}
	w.end(']')
	return nil
}

func (w *writer) mapper(m traits.Mapper) error {
	n, _ := m.Size().(types.Int)
	found := &members{keys: make([]string, 0, n), values: make([]ref.Val, 0, n)}
	types.ToFoldableMap(m).Fold(found)
	if found.err != nil {
		return found.err
	}
	return w.members(found.keys, found.values)
}

// members collects the members of a map.
type members struct {
	keys   []string
	values []ref.Val
	err    error
}

// FoldEntry implements [traits.Folder].
func (m *members) FoldEntry(k, v any) bool {
	is := types.DefaultTypeAdapter.NativeToValue(k) // In an object that was decoded from JSON, keys are Go strings.
	key, ok := is.(types.String)
	if !ok {
		m.err = fmt.Errorf("the result has a key that is of type %s: write string(...)", typeName(is))
		return false
	}
	m.keys, m.values = append(m.keys, string(key)), append(m.values, types.DefaultTypeAdapter.NativeToValue(v))
	return true
}

// members writes an object. Its keys are sorted.
func (w *writer) members(keys []string, values []ref.Val) error {
	if err := w.take(len(keys)); err != nil {
		return err
	}
	var few [8]int
	order := few[:0]
	for i := range keys {
		order = append(order, i)
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(keys[a], keys[b]) })
	if err := w.begin('{'); err != nil {
		return err
	}
	for n, i := range order {
		if n > 0 {
			w.out = append(w.out, ',')
		}
		w.text(keys[i])
		w.out = append(w.out, ':')
		if err := w.value(values[i]); err != nil {
			return err
		}
	}
	w.end('}')
	return nil
}

const hexadecimal = "0123456789abcdef"

// text writes a text. U+FFFD replaces invalid UTF-8.
func (w *writer) text(s string) {
	w.out = append(w.out, '"')
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && size == 1 {
				w.out = append(append(w.out, s[from:i]...), "\uFFFD"...)
				from = i + 1
			}
			i += size
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		w.out = append(w.out, s[from:i]...)
		switch c {
		case '"', '\\':
			w.out = append(w.out, '\\', c)
		case '\n':
			w.out = append(w.out, '\\', 'n')
		case '\t':
			w.out = append(w.out, '\\', 't')
		case '\r':
			w.out = append(w.out, '\\', 'r')
		default:
			w.out = append(w.out, '\\', 'u', '0', '0', hexadecimal[c>>4], hexadecimal[c&15])
		}
		i++
		from = i
	}
	w.out = append(append(w.out, s[from:]...), '"')
}
