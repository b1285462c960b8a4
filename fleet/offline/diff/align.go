package diff

import (
	"fmt"
	"strings"

	"refract.dev/tree"
)

// pair matches an element before the change with an element after it, by index.
type pair struct{ before, after int }

// align returns the pairs of matching elements. The pairs have the same order in both arrays. Elements without a pair
// are removed or inserted.
func align(before, after []any) []pair {
	if was, is, ok := keysOf(before, after); ok {
		return common(len(before), len(after), func(i, j int) bool { return was[i] == is[j] })
	}
	same := common(len(before), len(after), func(i, j int) bool { return tree.Equal(before[i], after[j]) })
	return fill(same, len(before), len(after))
}

// fill pairs the remaining elements that lie between the same two pairs on both sides. They count as changed, and not
// as removed and inserted.
func fill(pairs []pair, before, after int) []pair {
	var all []pair
	next := pair{}
	for _, p := range append(pairs, pair{before, after}) {
		for next.before < p.before && next.after < p.after {
			all = append(all, next)
			next.before++
			next.after++
		}
		all = append(all, p)
		next = pair{p.before + 1, p.after + 1}
	}
	return all[:len(all)-1]
}

// largeTable is the largest number of comparisons for which the shortest list of changes is computed.
const largeTable = 1 << 20

// common returns a longest common subsequence of two sequences of these lengths. If its computation would need too many
// comparisons, the result may be shorter.
func common(before, after int, equal func(i, j int) bool) []pair {
	var pairs []pair
	start := 0
	for start < before && start < after && equal(start, start) {
		pairs = append(pairs, pair{start, start})
		start++
	}
	end := 0
	for before-end > start && after-end > start && equal(before-end-1, after-end-1) {
		end++
	}
	pairs = append(pairs, middle(start, before-end, after-end, equal)...)
	for ; end > 0; end-- {
		pairs = append(pairs, pair{before - end, after - end})
	}
	return pairs
}

// middle computes [common] for the elements from start to the given ends.
func middle(start, before, after int, equal func(i, j int) bool) []pair {
	rows, columns := before-start, after-start
	if rows == 0 || columns == 0 || rows*columns > largeTable {
		return nil
	}
	longest := make([][]int, rows+1) // longest[i][j] is the length for the sequences that begin at i and j.
	for i := range longest {
		longest[i] = make([]int, columns+1)
	}
	for i := rows - 1; i >= 0; i-- {
		for j := columns - 1; j >= 0; j-- {
			longest[i][j] = max(longest[i+1][j], longest[i][j+1])
			if equal(start+i, start+j) {
				longest[i][j] = longest[i+1][j+1] + 1
			}
		}
	}
	var pairs []pair
	for i, j := 0, 0; i < rows && j < columns; {
		switch {
		case equal(start+i, start+j):
			pairs = append(pairs, pair{start + i, start + j})
			i++
			j++
		case longest[i+1][j] >= longest[i][j+1]:
			i++
		default:
			j++
		}
	}
	return pairs
}

// names are the fields that identify elements of arrays, in the order of preference. Of each set of fields, the first
// one must exist.
//
// Source: the list-map-keys and patch merge keys of the Kubernetes API.
var names = [][]string{
	{"name"},
	{"mountPath"},
	{"devicePath"},
	{"containerPort", "protocol"},
	{"port", "protocol"},
	{"topologyKey", "whenUnsatisfiable"},
	{"ip"},
	{"key"},
	{"host"},
	{"path"},
}

// keysOf returns the keys that identify the elements of two arrays, by index. ok is false if no set of fields gives
// unique keys in both arrays.
func keysOf(before, after []any) (was, is []string, ok bool) {
	for _, fields := range names {
		was, ok = keysBy(before, fields)
		if !ok {
			continue
		}
		if is, ok = keysBy(after, fields); ok {
			return was, is, true
		}
	}
	return nil, nil, false
}

func keysBy(items []any, fields []string) ([]string, bool) {
	keys := make([]string, len(items))
	seen := make(map[string]bool, len(items))
	for i, item := range items {
		m, ok := item.(map[string]any)
		if !ok || m[fields[0]] == nil {
			return nil, false
		}
		keys[i] = keyBy(m, fields)
		if seen[keys[i]] {
			return nil, false
		}
		seen[keys[i]] = true
	}
	return keys, true
}

func keyBy(m map[string]any, fields []string) string {
	if len(fields) == 1 {
		if name, ok := m[fields[0]].(string); ok {
			return name
		}
	}
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = fmt.Sprintf("%T %v", m[f], m[f])
	}
	return strings.Join(parts, "\x00")
}
