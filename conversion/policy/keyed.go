package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"refract.dev/conversion/convert"
	"refract.dev/tree/raw"
)

// member is a member of a table.
type member struct {
	key   string
	value []byte
}

// tableOf converts a list of objects to a table. The field key of an element has the key in the table. The last of
// several elements with the same key wins. If value is not empty, the field value has the value in the table, and
// elements without this field are omitted.
func tableOf(key, value string) transform {
	return func(dst, list []byte) ([]byte, error) {
		var members []member
		at := map[string]int{}
		var failure error
		err := raw.Elements(list, func(i int, element []byte) bool {
			m, err := keyedMember(element, key, value)
			if err != nil {
				failure = convert.ErrorAt("["+strconv.Itoa(i)+"]", err)
				return false
			}
			if m.value == nil {
				return true
			}
			if before, twice := at[m.key]; twice {
				members[before] = m
				return true
			}
			at[m.key] = len(members)
			members = append(members, m)
			return true
		})
		if failure != nil {
			return dst, failure
		}
		if err != nil {
			return dst, wrongType("a list", list)
		}
		dst = append(dst, '{')
		for i, m := range members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(append(raw.AppendString(dst, m.key), ':'), m.value...)
		}
		return append(dst, '}'), nil
	}
}

// keyedMember returns the member of the table for an element of the list. If the element has no value, the member has
// none.
func keyedMember(element []byte, key, value string) (member, error) {
	var m member
	var name []byte
	rest := []byte{'{'}
	err := raw.Members(element, func(k, v []byte) bool {
		switch {
		case string(k) == key:
			name = v
		case value != "" && string(k) == value:
			m.value = v
		default:
			if len(rest) > 1 {
				rest = append(rest, ',')
			}
			rest = append(append(raw.AppendString(rest, k), ':'), v...)
		}
		return true
	})
	if err != nil {
		return m, wrongType("an object", element)
	}
	if raw.IsNull(name) {
		return m, fmt.Errorf("has no %s, which is its key in the other version", key)
	}
	if m.key, err = raw.String(name); err != nil {
		return m, convert.ErrorAt(key, wrongType("a string", name))
	}
	if value == "" {
		rest = append(rest, '}')
		m.value = rest
	}
	return m, nil
}

// listOf converts a table to a list of objects. The list is sorted by key, because API servers do not preserve the
// order of a table.
func listOf(key, value string) transform {
	return func(dst, table []byte) ([]byte, error) {
		var members []member
		err := raw.Members(table, func(k, v []byte) bool {
			members = append(members, member{key: string(k), value: v})
			return true
		})
		if err != nil {
			return dst, wrongType("an object", table)
		}
		slices.SortStableFunc(members, func(a, b member) int { return strings.Compare(a.key, b.key) })
		out := dst
		out = append(out, '[')
		for i, m := range members {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(append(raw.AppendString(append(out, '{'), key), ':'), raw.AppendString(nil, m.key)...)
			if value != "" {
				out = append(append(raw.AppendString(append(out, ','), value), ':'), m.value...)
			} else if out, err = appendFields(out, m.value, key); err != nil {
				return dst, convert.ErrorAt(keyText(m.key, true), err)
			}
			out = append(out, '}')
		}
		return append(out, ']'), nil
	}
}

// appendFields appends the members of an object, each after a comma, except the member but. Null has no members.
func appendFields(dst, object []byte, but string) ([]byte, error) {
	if raw.IsNull(object) {
		return dst, nil
	}
	err := raw.Members(object, func(k, v []byte) bool {
		if string(k) != but {
			dst = append(append(raw.AppendString(append(dst, ','), k), ':'), v...)
		}
		return true
	})
	if err != nil {
		return dst, wrongType("an object", object)
	}
	return dst, nil
}
