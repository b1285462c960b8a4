package policy

import (
	"refract.dev/conversion/convert"
	"refract.dev/tree/raw"
)

// wrapped converts a value to a list with the value as its only element. If key is not empty, the element is an object
// with the value in the field key.
func wrapped(key string) transform {
	return func(dst, value []byte) ([]byte, error) {
		if key == "" {
			return append(append(append(dst, '['), value...), ']'), nil
		}
		dst = append(raw.AppendString(append(dst, '[', '{'), key), ':')
		return append(append(dst, value...), '}', ']'), nil
	}
}

// unwrapped converts a list to the value in its first element. If the list is empty, or its first element lacks the
// field, the result is null, which stands for an absent value.
func unwrapped(key string) transform {
	return func(dst, list []byte) ([]byte, error) {
		var value []byte
		var failure error
		err := raw.Elements(list, func(_ int, element []byte) bool {
			value = element
			if key != "" && !raw.IsNull(element) {
				if value, failure = raw.Field(element, key); failure != nil {
					failure = convert.ErrorAt("[0]", wrongType("an object", element))
				}
			}
			return false
		})
		switch {
		case failure != nil:
			return dst, failure
		case raw.IsNull(list):
			return append(dst, "null"...), nil
		case err != nil:
			return dst, wrongType("a list", list)
		case value == nil:
			return append(dst, "null"...), nil
		default:
			return append(dst, value...), nil
		}
	}
}
