package harness

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// Lacks returns the first place where live is not as want says, with both values;
// "" if there is none. What live has beyond want was filled in by its API server.
// Numbers compare if both went through the same decoder.
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
