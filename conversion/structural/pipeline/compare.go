package pipeline

import (
	"maps"
	"slices"

	"refract.dev/tree"
)

// compare returns the changes between two objects, in the order of the keys: added members, removed members, and
// different values. Two arrays of different lengths are a single change. compare does not modify its arguments.
func compare(before, after map[string]any) []tree.Change {
	return compareObjects(nil, tree.Pointer{}, before, after)
}

func compareObjects(changes []tree.Change, at tree.Pointer, before, after map[string]any) []tree.Change {
	keys := slices.Collect(maps.Keys(before))
	for key := range after {
		if _, both := before[key]; !both {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	for _, key := range keys {
		was, had := before[key]
		is, has := after[key]
		switch place := at.Member(key); {
		case !had:
			changes = append(changes, tree.Change{Path: place.String(), Op: tree.OpAdd, After: is})
		case !has:
			changes = append(changes, tree.Change{Path: place.String(), Op: tree.OpRemove, Before: was})
		default:
			changes = compareValues(changes, place, was, is, false)
		}
	}
	return changes
}

func compareValues(changes []tree.Change, at tree.Pointer, before, after any, element bool) []tree.Change {
	if tree.Equal(before, after) {
		return changes
	}
	switch was := before.(type) {
	case map[string]any:
		if is, ok := after.(map[string]any); ok {
			return compareObjects(changes, at, was, is)
		}
	case []any:
		if is, ok := after.([]any); ok && len(was) == len(is) {
			for i := range was {
				changes = compareValues(changes, at.At(i), was[i], is[i], true)
			}
			return changes
		}
	default:
	}
	return append(changes, tree.Change{Path: at.String(), Op: tree.OpReplace, Element: element, Before: before, After: after})
}
