// Package output has what texts for people have in common, whoever writes them.
package output

import (
	"strconv"
	"strings"
)

// Count writes a number of things: "1 cluster", "1,000 clusters".
func Count[N int | int32 | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(int64(n)) + " " + many
}

// grouped writes a number with commas between thousands.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Cut returns a text of at most so many bytes, and behind one that had more an ellipsis. What
// is cut in the middle of a character ends before it.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
