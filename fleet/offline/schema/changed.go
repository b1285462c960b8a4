package schema

import "reflect"

// none represents an absent earlier value. It is not equal to any value.
type none struct{}

func memberOf(was map[string]any, key string) any {
	if value, there := was[key]; there {
		return value
	}
	return none{}
}

func elementOf(was []any, index int) any {
	if index < len(was) {
		return was[index]
	}
	return none{}
}

// same reports whether two values are certainly equal: maps and slices if they are identical in memory, other values if
// they are equal.
func same(value, before any) bool {
	switch value := value.(type) {
	case map[string]any:
		was, ok := before.(map[string]any)
		return ok && reflect.ValueOf(value).Pointer() == reflect.ValueOf(was).Pointer()
	case []any:
		was, ok := before.([]any)
		return ok && len(value) == len(was) && reflect.ValueOf(value).Pointer() == reflect.ValueOf(was).Pointer()
	default:
		return value == before
	}
}
