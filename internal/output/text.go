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

// Cut returns a text unchanged if it has at most as many bytes as the argument most. Otherwise it returns the beginning
// of the text and an ellipsis. Cut does not split a character.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
