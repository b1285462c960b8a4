package harness

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Lacks returns the first path where live differs from want, with both values; "" if there is no difference. It ignores
// fields that only live has, because the API server adds fields. Numbers are comparable only if both values come from
// the same decoder.
func Lacks(path string, want, live any) string {
	switch w := want.(type) {
	case map[string]any:
		l, _ := live.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(w)) {
			if at := Lacks(path+"/"+key, w[key], l[key]); at != "" {
				return at
			}
		}
		return ""
	case []any:
		l, ok := live.([]any)
		if !ok || len(l) != len(w) {
			return fmt.Sprintf("%s: want %v, got %v", path, want, live)
		}
		for i := range w {
			if at := Lacks(fmt.Sprintf("%s/%d", path, i), w[i], l[i]); at != "" {
				return at
			}
		}
		return ""
	}
	if !reflect.DeepEqual(want, live) {
		return fmt.Sprintf("%s: want %v, got %v", path, want, live)
	}
	return ""
}
