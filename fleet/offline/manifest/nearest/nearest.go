// Package nearest finds the intended name for a mistyped one.
package nearest

import "strings"

// To returns the candidate that is nearest to name: the one that needs the fewest insertions, deletions and
// replacements of letters and swaps of neighboring letters, regardless of case. Among equally near candidates, the
// first one wins. A candidate is near if it needs at most len(name)/3 + 1 edits. Without a near candidate, To returns
// the only candidate that begins with name, for example operator for op, and otherwise the empty string.
func To(name string, candidates []string) string {
	best, least := "", len(name)/3+2
	var longer []string
	for _, c := range candidates {
		if d := distance(strings.ToLower(name), strings.ToLower(c)); d < least {
			best, least = c, d
		}
		if len(name) >= shortest && strings.HasPrefix(c, name) {
			longer = append(longer, c)
		}
	}
	if best == "" && len(longer) == 1 {
		return longer[0]
	}
	return best
}

// shortest is the minimum length of a name that may be the beginning of a candidate: a single letter begins too many.
const shortest = 2

// distance returns the number of edits between a and b, in bytes: the restricted Damerau-Levenshtein distance.
func distance(a, b string) int {
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			replaced := above[j-1]
			if a[i-1] != b[j-1] {
				replaced++
			}
			row[j] = min(replaced, above[j]+1, row[j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}
