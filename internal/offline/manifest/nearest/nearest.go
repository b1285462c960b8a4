// Package nearest finds the name that somebody who mistyped one may have meant.
package nearest

import "strings"

// To returns the candidate that is nearest to name: the one that takes the
// fewest letters to be inserted, deleted, replaced or swapped with the next to
// become name, whatever their case. The first one given wins among equals. It
// returns the only candidate that begins with name, as operator for op, when no
// candidate is near, that is, when more than a third of the letters differ; and
// the empty string when there is none.
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

// shortest is the length from which a name may be the beginning of another: one letter begins too many.
const shortest = 2

// distance is the number of edits between a and b, in bytes: the restricted
// Damerau-Levenshtein distance.
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
