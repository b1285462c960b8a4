package tree

import (
	"math"
	"reflect"
)

// TypeName returns the type of v with its article, as in an error message: an object, an array, a string, a number, a
// boolean or null.
func TypeName(v any) string {
	switch v.(type) {
	case map[string]any:
		return "an object"
	case []any:
		return "an array"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case nil:
		return "null"
	default:
		return "a number"
	}
}

// Equal reports whether a and b are the same JSON value: objects with equal members in any order, arrays with equal
// elements in the same order, numbers of the same value, stored as int64 or float64.
func Equal(a, b any) bool {
	switch x := a.(type) {
	case nil:
		return b == nil
	case string:
		y, ok := b.(string)
		return ok && x == y
	case bool:
		y, ok := b.(bool)
		return ok && x == y
	case map[string]any:
		y, ok := b.(map[string]any)
		return ok && equalObjects(x, y)
	case []any:
		y, ok := b.([]any)
		return ok && equalArrays(x, y)
	case int64:
		if y, ok := b.(float64); ok {
			return equalNumbers(x, y)
		}
	case float64:
		if y, ok := b.(int64); ok {
			return equalNumbers(y, x)
		}
	}
	return reflect.DeepEqual(a, b)
}

func equalObjects(a, b map[string]any) bool {
	if len(a) != len(b) {
		return false
	}
	for key, v := range a {
		w, ok := b[key]
		if !ok || !Equal(v, w) {
			return false
		}
	}
	return true
}

func equalArrays(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// equalNumbers avoids a conversion of i to float64, which does not represent every int64.
func equalNumbers(i int64, f float64) bool {
	return f == math.Trunc(f) && f >= math.MinInt64 && f < math.MaxInt64 && int64(f) == i
}
