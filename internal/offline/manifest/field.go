package manifest

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"refract.dev/tree"
)

// FieldOf returns the place in a value that a JSON pointer names as the path of a
// field, which is how a [Problem] writes it; as much of it as is there if the
// pointer leads into an array at no element of it.
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

// below adds a key to a path, in brackets if it would not read as one.
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
