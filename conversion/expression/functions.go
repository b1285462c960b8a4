package expression

import (
	"fmt"
	"math"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
)

// Default keys of count and expand.
const (
	valueKey = types.String("value")
	countKey = types.String("count")
)

// own declares the functions of this package. Guards check the length of a new list before the call.
func own() []cel.EnvOption {
	a := cel.TypeParamType("A")
	listOfAny, counted := cel.ListType(a), cel.ListType(cel.MapType(cel.StringType, cel.DynType))
	text, texts, object := cel.StringType, cel.ListType(cel.StringType), cel.MapType(cel.StringType, cel.DynType)
	return []cel.EnvOption{
		cel.Function("count",
			cel.MemberOverload("list_count", []*cel.Type{listOfAny}, counted, cel.UnaryBinding(func(l ref.Val) ref.Val {
				return count(l, valueKey, countKey)
			})),
			cel.MemberOverload("list_count_keys", []*cel.Type{listOfAny, text, text}, counted, keyed(count))),
		cel.Function("expand",
			cel.MemberOverload("list_expand", []*cel.Type{listOfAny}, cel.ListType(cel.DynType), cel.UnaryBinding(func(l ref.Val) ref.Val {
				return expand(l, valueKey, countKey)
			})),
			cel.MemberOverload("list_expand_keys", []*cel.Type{listOfAny, text, text}, cel.ListType(cel.DynType), keyed(expand))),
		// The first argument is a map, or an object with known fields. CEL has no common type for both, so the
		// declaration accepts any value.
		cel.Function("merge", cel.MemberOverload("map_merge", []*cel.Type{cel.DynType, cel.DynType}, object, cel.BinaryBinding(merge))),
		cel.Function("omit", cel.MemberOverload("map_omit", []*cel.Type{cel.DynType, texts}, object, cel.BinaryBinding(omit))),
		cel.Function("string", cel.Overload("quantity_to_string", []*cel.Type{apiservercel.QuantityType}, text,
			cel.UnaryBinding(func(q ref.Val) ref.Val {
				v, err := q.ConvertToNative(textType)
				if err != nil {
					return types.WrapErr(err)
				}
				s, _ := v.(string)
				return types.String(s)
			}))),
	}
}

func keyed(f func(l ref.Val, value, count types.String) ref.Val) cel.OverloadOpt {
	return cel.FunctionBinding(func(args ...ref.Val) ref.Val {
		value, ok := args[1].(types.String)
		count, ok2 := args[2].(types.String)
		if !ok || !ok2 {
			return types.MaybeNoSuchOverloadErr(args[1])
		}
		if value == count {
			return types.NewErr("the two keys are both %q", string(value))
		}
		return f(args[0], value, count)
	})
}

// identity is a key for Go maps. Equal values, as by ==, have the same identity.
type identity struct {
	kind ref.Type
	key  any
}

func identify(v ref.Val) (identity, error) {
	switch v := v.(type) {
	case types.Int:
		return identity{kind: types.IntType, key: int64(v)}, nil
	case types.Uint:
		if v <= math.MaxInt64 {
			return identity{kind: types.IntType, key: int64(v)}, nil
		}
		return identity{kind: types.UintType, key: uint64(v)}, nil
	case types.Double:
		if f := float64(v); f == math.Trunc(f) && math.Abs(f) < 1<<63 {
			return identity{kind: types.IntType, key: int64(f)}, nil
		}
		return identity{kind: types.DoubleType, key: float64(v)}, nil
	case types.String:
		return identity{kind: types.StringType, key: string(v)}, nil
	case types.Bool:
		return identity{kind: types.BoolType, key: bool(v)}, nil
	case traits.Lister, traits.Mapper:
		w := &writer{items: maxValues, limit: maxValues, canonical: true}
		err := w.value(v)
		return identity{kind: v.Type(), key: string(w.out)}, err
	case types.Null:
		return identity{kind: types.NullType}, nil
	case *types.Err:
		return identity{}, v
	default:
		return identity{}, fmt.Errorf("a %s cannot be compared with others: write string(...)", typeName(v))
	}
}

// distinct returns the first value of each group of equal values, and the size of each group.
func distinct(l ref.Val) ([]ref.Val, []int, error) {
	values, ok := l.(traits.Lister)
	if !ok {
		return nil, nil, fmt.Errorf("want a list, got %s", typeName(l))
	}
	var out []ref.Val
	var counts []int
	at := map[identity]int{}
	for it := values.Iterator(); it.HasNext() == types.True; {
		v := it.Next()
		id, err := identify(v)
		if err != nil {
			return nil, nil, err
		}
		i, seen := at[id]
		if !seen {
			i = len(out)
			at[id] = i
			out, counts = append(out, v), append(counts, 0)
		}
		counts[i]++
	}
	return out, counts, nil
}

func count(l ref.Val, value, count types.String) ref.Val {
	values, counts, err := distinct(l)
	if err != nil {
		return types.WrapErr(fmt.Errorf("count: %w", err))
	}
	out := make([]ref.Val, len(values))
	for i, v := range values {
		t := &table{shape: anything}
		t.add(string(value), v)
		t.add(string(count), types.Int(counts[i]))
		out[i] = t
	}
	return types.NewRefValList(types.DefaultTypeAdapter, out)
}

// times returns the number of times that expand repeats an element.
func times(element ref.Val, i int, count types.String) (int64, error) {
	m, ok := element.(traits.Mapper)
	if !ok {
		return 0, fmt.Errorf("expand: element %d is a %s, want an object", i, typeName(element))
	}
	v, ok := m.Find(count)
	if !ok {
		if err, bad := v.(*types.Err); bad {
			return 0, err
		}
		return 1, nil
	}
	var n int64
	switch v := v.(type) {
	case types.Int:
		n = int64(v)
	case types.Double:
		n, ok = int64(v), float64(v) == math.Trunc(float64(v)) && math.Abs(float64(v)) < 1<<63
	case *types.Err:
		return 0, v
	default:
		return 0, fmt.Errorf("expand: %q of element %d is a %s, want an integer", string(count), i, typeName(v))
	}
	if !ok || n < 0 {
		return 0, fmt.Errorf("expand: %q of element %d is %v, want an integer from 0 on", string(count), i, v.Value())
	}
	return n, nil
}

func expand(l ref.Val, value, count types.String) ref.Val {
	elements, ok := l.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(l)
	}
	var out []ref.Val
	i := 0
	for it := elements.Iterator(); it.HasNext() == types.True; i++ {
		element := it.Next()
		n, err := times(element, i, count)
		if err != nil {
			return types.WrapErr(err)
		}
		m, _ := element.(traits.Mapper) // Checked by times.
		v, ok := m.Find(value)
		if !ok {
			return types.NewErr("expand: element %d has no %q", i, string(value))
		}
		for range n {
			out = append(out, v)
		}
	}
	return types.NewRefValList(types.DefaultTypeAdapter, out)
}

func merge(a, b ref.Val) ref.Val {
	out := &table{shape: anything}
	// take adds only missing keys, so the second map comes first.
	for _, from := range []ref.Val{b, a} {
		if err := out.take(from, "merge"); err != nil {
			return types.WrapErr(err)
		}
	}
	return out
}

// take adds the members of another map whose keys t does not have.
func (t *table) take(from ref.Val, function string) error {
	if other, ok := from.(*table); ok {
		for i, k := range other.keys {
			if !t.has(k) {
				t.add(k, other.values[i])
			}
		}
		return nil
	}
	m, ok := from.(traits.Mapper)
	if !ok {
		return fmt.Errorf("%s: want an object, got %s", function, typeName(from))
	}
	for it := m.Iterator(); it.HasNext() == types.True; {
		k := it.Next()
		key, ok := k.(types.String)
		if !ok {
			return fmt.Errorf("%s: want strings as keys, got %s", function, typeName(k))
		}
		if !t.has(string(key)) {
			t.add(string(key), m.Get(key))
		}
	}
	return nil
}

func omit(from, keys ref.Val) ref.Val {
	all := &table{shape: anything}
	if err := all.take(from, "omit"); err != nil {
		return types.WrapErr(err)
	}
	l, ok := keys.(traits.Lister)
	if !ok {
		return types.MaybeNoSuchOverloadErr(keys)
	}
	without := map[string]bool{}
	for it := l.Iterator(); it.HasNext() == types.True; {
		k, ok := it.Next().(types.String)
		if !ok {
			return types.NewErr("omit: want a list of strings")
		}
		without[string(k)] = true
	}
	out := &table{shape: anything}
	for i, k := range all.keys {
		if !without[k] {
			out.add(k, all.values[i])
		}
	}
	return out
}
