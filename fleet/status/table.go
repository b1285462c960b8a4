package status

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// none is the text of an empty cell.
const none = "-"

// table writes rows in columns. Columns never become narrower in later calls. Its zero value is an empty table.
type table struct {
	header []string
	widths []int
}

// write writes rows. The header comes first if it differs from the last one.
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

// gap is the number of spaces between columns.
const gap = 2

// widthOf returns the width of a table with these rows.
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
