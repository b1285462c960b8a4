package status

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// none is in a table where there is nothing to say.
const none = "-"

// table writes rows in columns. Rows that come later are as wide as those before
// them, or wider. Its zero value is empty.
type table struct {
	header []string
	widths []int
}

// write writes rows, below the header if it has changed since the last time.
func (t *table) write(w io.Writer, header []string, rows [][]string) error {
	if !slices.Equal(header, t.header) {
		t.header, t.widths = header, make([]int, len(header))
		rows = append([][]string{header}, rows...)
	}
	for _, row := range rows {
		for i, cell := range row {
			t.widths[i] = max(t.widths[i], utf8.RuneCountInString(cell))
		}
	}
	out := bufio.NewWriter(w)
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", t.widths[i]-utf8.RuneCountInString(cell)+gap))
		}
		fmt.Fprintln(out, strings.TrimRight(line.String(), " "))
	}
	return out.Flush()
}

// gap is how many spaces are between columns.
const gap = 2

// widthOf returns how wide the rows are as a table.
func widthOf(rows [][]string) int {
	var widths []int
	for _, row := range rows {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	total := -gap
	for _, width := range widths {
		total += width + gap
	}
	return total
}
