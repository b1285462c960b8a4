package structural

import (
	"errors"
	"fmt"
	"strconv"

	"refract.dev/tree"
)

// clone returns a deep copy of a JSON value. It returns a [*tree.PathError] for a value that
// k8s.io/apimachinery/pkg/util/json never returns, because functions of the API server panic on such values.
func clone(value any) (any, error) {
	switch v := value.(type) {
	case nil, string, bool, int64, float64:
		return v, nil
	case map[string]any:
		return cloneObject(v)
	case []any:
		copied := make([]any, len(v))
		for i, element := range v {
			c, err := clone(element)
			if err != nil {
				return nil, within(strconv.Itoa(i), err)
			}
			copied[i] = c
		}
		return copied, nil
	default:
		return nil, &tree.PathError{Err: fmt.Errorf("%w: want a JSON value, numbers as int64 or float64, got a %T", tree.ErrType, v)}
	}
}

func cloneObject(object map[string]any) (map[string]any, error) {
	copied := make(map[string]any, len(object))
	for key, member := range object {
		c, err := clone(member)
		if err != nil {
			return nil, within(key, err)
		}
		copied[key] = c
	}
	return copied, nil
}

// within puts a key in front of the path of an error of clone.
func within(key string, err error) error {
	if at, ok := errors.AsType[*tree.PathError](err); ok {
		return &tree.PathError{Path: "/" + tree.Escape(key) + at.Path, Err: at.Err}
	}
	return err
}
