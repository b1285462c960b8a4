package local

import (
	"slices"

	"refract.dev/tree"
)

// Carry returns the body of an apply with additional fields of have, the object on the cluster. These are fields that
// are left to the cluster and that the manager applier still owns, with their current values. Without them, an API
// server removes a field when its only owner stops applying it. Carry changes no field of the body, and adds no field
// to list elements that the body lacks. Carries is false if no field was added.
func Carry(body, have map[string]any, applier string, left []tree.Pattern) (carried map[string]any, carries bool, err error) {
	metadata, _ := have["metadata"].(map[string]any)
	managers := managersIn(metadata)
	at := slices.IndexFunc(managers, func(m manager) bool { return m.name == applier && m.applies && m.subresource == "" })
	if at < 0 {
		return body, false, nil
	}
	doc := tree.Edit(body)
	for _, pattern := range left {
		for _, place := range pattern.Places(have) {
			to, value, ok := managers[at].counterpart(have, body, place)
			if !ok {
				continue
			}
			carries = true
			if _, err := doc.Add(to, value); err != nil {
				return nil, false, err
			}
		}
	}
	return doc.Root(), carries, nil
}

// counterpart returns the position in body of a field of have that body lacks, and the field's value. It reports false
// if the manager does not own the field.
func (m manager) counterpart(have, body map[string]any, place tree.Pointer) (to tree.Pointer, value any, ok bool) {
	fields, is, other, at := m.fields, any(have), any(body), tree.Pointer{}
	keys := place.Keys()
	for i, key := range keys {
		if len(fields) == 0 {
			return to, nil, false // The field is inside an atomic value: the body has the whole value or none of it.
		}
		name, inside, next, found := m.step(fields, is, at, key)
		if !found {
			return to, nil, false
		}
		last := i == len(keys)-1
		switch v := other.(type) {
		case map[string]any:
			member, there := v[key]
			if there == last {
				return to, nil, false
			}
			to, other = to.Member(key), member
		case []any:
			index := indexIn(v, name)
			if index < 0 {
				return to, nil, false
			}
			to, other = to.At(index), v[index]
		default:
			return to, nil, false
		}
		fields, is, at = inside, next, at.Member(key)
	}
	return to, is, true
}

// indexIn returns the index of the element with a name; -1 if no element has it.
func indexIn(list []any, name string) int {
	signature, values, ok := parseName(name)
	if !ok || signature == byIndex {
		return -1
	}
	return slices.IndexFunc(list, func(value any) bool { return valuesOf(signature, value, 0) == values })
}
