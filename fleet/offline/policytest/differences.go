package policytest

import (
	"maps"
	"slices"
	"strconv"

	"refract.dev/tree"
)

// difference is a place where two values differ.
type difference struct {
	path     string
	want     any
	got      *any // Nil without a value.
	unwanted bool // No value was expected.
}

// differences appends the places where two values differ, as deep inside as possible, sorted by path.
func differences(want, got any, at string, found []difference) []difference {
	if tree.Equal(want, got) {
		return found
	}
	switch w := want.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			return memberDifferences(w, g, at, found)
		}
	case []any:
		if g, ok := got.([]any); ok && len(g) == len(w) {
			for i := range w {
				found = differences(w[i], g[i], at+"/"+strconv.Itoa(i), found)
			}
			return found
		}
	}
	return append(found, difference{path: at, want: want, got: &got})
}

func memberDifferences(want, got map[string]any, at string, found []difference) []difference {
	all := maps.Clone(got)
	maps.Copy(all, want)
	for _, key := range slices.Sorted(maps.Keys(all)) {
		path := at + "/" + tree.Escape(key)
		w, wanted := want[key]
		g, there := got[key]
		switch {
		case wanted && there:
			found = differences(w, g, path, found)
		case wanted:
			found = append(found, difference{path: path, want: w})
		default:
			found = append(found, difference{path: path, got: &g, unwanted: true})
		}
	}
	return found
}
