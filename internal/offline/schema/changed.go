package schema

import "reflect"

// none stands for a value that was not there before. No value is the same.
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

// same reports whether two values are surely equal: objects and arrays if they are one and the same in memory, all
// others if they compare so.
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
