// Package output has text formats that the commands and the pages share.
package output

import (
	"strconv"
	"strings"
)

// Count returns a number with its noun: "1 cluster", "1,000 clusters".
func Count[N int | int32 | int64](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return grouped(int64(n)) + " " + many
}

// grouped returns a number with commas between thousands.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// Cut returns a text of at most most bytes. If the given text is longer, Cut shortens it and adds an ellipsis. It does
// not split a character.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
