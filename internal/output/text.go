// Package output has the text formats that all commands and pages share.
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

// Cut returns the text if it has at most so many bytes. Otherwise it returns the first bytes and an ellipsis, without
// the character that the bound would split.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
