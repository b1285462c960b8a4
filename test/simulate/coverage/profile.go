package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// module is the prefix of file names in a profile.
const module = "refract.dev/"

// position is a position in a file, from 1.
type position struct{ line, column int }

func (p position) compare(o position) int {
	return cmp.Or(cmp.Compare(p.line, o.line), cmp.Compare(p.column, o.column))
}

// block is a basic block. Its end is the position after its last character.
type block struct {
	file     string // Relative to the folder of the module.
	from, to position
}

func (b block) compare(o block) int {
	return cmp.Or(cmp.Compare(b.file, o.file), b.from.compare(o.from), b.to.compare(o.to))
}

// visit is the data about a block in a profile.
type visit struct {
	statements int
	reached    bool
}

// profile is the coverage of one or more processes.
type profile map[block]visit

// add adds the output of -test.coverprofile of a process. A block counts as reached if any process has reached it.
func (p profile) add(from io.Reader) error {
	lines := bufio.NewScanner(from)
	for n := 1; lines.Scan(); n++ {
		text := lines.Text()
		if strings.HasPrefix(text, "mode: ") {
			continue
		}
		b, v, err := parseBlock(text)
		if err != nil {
			return fmt.Errorf("line %d: %w", n, err)
		}
		v.reached = v.reached || p[b].reached
		p[b] = v
	}
	return lines.Err()
}

// parseBlock parses a line of a profile: refract.dev/fleet/policy/rollout/plan.go:31.42,33.2 1 0.
func parseBlock(text string) (b block, v visit, err error) {
	file, rest, _ := strings.Cut(text, ":")
	var count int
	n, err := fmt.Sscanf(rest, "%d.%d,%d.%d %d %d", &b.from.line, &b.from.column, &b.to.line, &b.to.column, &v.statements, &count)
	if err != nil || n != 6 || !strings.HasPrefix(file, module) {
		return block{}, visit{}, fmt.Errorf("want a block of a file of %s, got %q", module, text)
	}
	b.file, v.reached = strings.TrimPrefix(file, module), count > 0
	return b, v, nil
}

// blocks returns all blocks in their order.
func (p profile) blocks() []block { return slices.SortedFunc(maps.Keys(p), block.compare) }

// write writes the profile in the format of add.
func (p profile) write(to io.Writer) {
	fmt.Fprintln(to, "mode: set")
	for _, b := range p.blocks() {
		v, count := p[b], 0
		if v.reached {
			count = 1
		}
		fmt.Fprintf(to, "%s%s:%d.%d,%d.%d %d %d\n", module, b.file, b.from.line, b.from.column, b.to.line, b.to.column, v.statements, count)
	}
}
