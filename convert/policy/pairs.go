package policy

import (
	"errors"
	"fmt"

	"refract.dev/tree/raw"
)

// scalarKey returns a text that is the same for JSON scalars that are equal, numbers to the
// last digit, and for no others.
func scalarKey(value []byte) (string, error) {
	switch {
	case len(value) == 0:
		return "", errScalar
	case value[0] == '"':
		text, err := raw.String(value)
		return `"` + text, err
	case isNumeric(value):
		r, err := rational(value)
		if err != nil {
			return "", err
		}
		return r.RatString(), nil
	case string(value) == "true", string(value) == "false":
		return string(value), nil
	default:
		return "", errScalar
	}
}

var errScalar = errors.New("want a string, a number or a boolean")

// mapped returns what makes values other ones by pairs of them: the keys of pairs are those
// of [scalarKey], and the values JSON. What has no pair passes, or is an error. Texts are
// pairs as they are usually written.
func mapped(pairs, texts map[string][]byte, passes bool) transform {
	return func(dst, value []byte) ([]byte, error) {
		if to, ok := texts[string(value)]; ok {
			return append(dst, to...), nil
		}
		key, err := scalarKey(value)
		if to, ok := pairs[key]; ok && err == nil {
			return append(dst, to...), nil
		}
		if passes {
			return append(dst, value...), nil
		}
		return dst, fmt.Errorf("%s is in no pair of map, and the versions have different types here", shortened(value))
	}
}
