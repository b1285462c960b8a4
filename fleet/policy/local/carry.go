package local

import (
	"slices"

	"refract.dev/tree"
)

// Carry returns the body of an apply, extended by fields that the cluster may set itself. The argument have is the
// object on the cluster, and applier is the manager that applies the body. Carry adds each field of left that applier
// still owns, with its current value. Without this, the API server removes a field when its only owner stops applying
// it. Carry changes no field of the body, and adds nothing to list elements that the body lacks. The result carries is
// false if no field was added.
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

// counterpart finds the position in body for a field of the object have on the cluster, and returns it with the field's
// value. The result ok is false if body already has the field, or if the manager does not own it.
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

// indexIn returns the index of the element with this name in managedFields; -1 if there is none.
func indexIn(list []any, name string) int {
	signature, values, ok := parseName(name)
	if !ok || signature == byIndex {
		return -1
	}
	return slices.IndexFunc(list, func(value any) bool { return valuesOf(signature, value, 0) == values })
}
