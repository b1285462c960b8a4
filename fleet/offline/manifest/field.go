package manifest

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"refract.dev/tree"
)

// FieldOf returns the path of a field, in the format of [Problem], for a JSON pointer into a value. If the pointer
// names no element of an array, the result ends at the array.
func FieldOf(value any, pointer string) string {
	p, err := tree.Parse(pointer)
	if err != nil {
		return ""
	}
	var path *field.Path
	for _, key := range p.Keys() {
		switch inside := value.(type) {
		case []any:
			i, err := strconv.Atoi(key)
			if err != nil || i < 0 || i >= len(inside) {
				return path.String()
			}
			path, value = path.Index(i), inside[i]
		case map[string]any:
			path, value = below(path, key), inside[key]
		default:
			path = below(path, key)
		}
	}
	return path.String()
}

// below adds a key to a path, in brackets if the key contains special characters.
func below(path *field.Path, key string) *field.Path {
	switch {
	case path == nil:
		return field.NewPath(key)
	case strings.ContainsAny(key, "./[]"):
		return path.Key(key)
	default:
		return path.Child(key)
	}
}
