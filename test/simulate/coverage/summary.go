package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
)

// part is a line of the summary.
type part struct {
	name   string
	folder string
	files  []string // Nil selects all files.
}

// parts are the simulated packages. The part "member reconciler" manages the clusters themselves: their connections,
// names, credentials and departure. The remaining code of the package member reads and writes copies.
var parts = []part{
	{"propagation", "fleet/propagation", nil},
	{"rollout (waves to clusters)", "fleet/policy/rollout", nil},
	{"leadership", "fleet/leadership", nil},
	{"rollout (injection restarts)", "injection/restart", nil},
	{"member", "fleet/member", nil},
	{"member reconciler", "fleet/member", []string{
		"claim.go", "credentials.go", "ended.go", "identity.go", "names.go", "owed.go", "pending.go", "reconciler.go", "rename.go", "renames.go", "set.go",
	}},
}

// packages returns the import paths of the code with coverage.
func packages() []string {
	var all []string
	for _, p := range parts {
		all = append(all, module+p.folder)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (p *part) holds(file string) bool {
	return path.Dir(file) == p.folder && (p.files == nil || slices.Contains(p.files, path.Base(file)))
}

// count is a number of blocks, and how many of them are covered.
type count struct{ reached, all int }

func (c count) plus(o count) count { return count{c.reached + o.reached, c.all + o.all} }

func (c count) missed() int { return c.all - c.reached }

func (c count) String() string {
	if c.all == 0 {
		return "–\t"
	}
	return fmt.Sprintf("%.1f %%\t%d of %d", 100*float64(c.reached)/float64(c.all), c.reached, c.all)
}

// covered is the coverage of one function.
type covered struct {
	function

	count  count
	missed []block
	reason string // From unreached.txt, or "".
}

// coverage is the coverage of all functions with blocks, in the order of their files.
type coverage []*covered

// coverage assigns the blocks to functions. If a function with a reason does not exist, it returns an error in addition
// to the coverage.
func (p profile) coverage(from sources, reasons map[string]string) (coverage, error) {
	var all coverage
	left := maps.Clone(reasons)
	for _, b := range p.blocks() {
		f, err := from.holding(b)
		if err != nil {
			return nil, err
		}
		if len(all) == 0 || all[len(all)-1].function != *f {
			all = append(all, &covered{function: *f, reason: reasons[f.key()]})
			delete(left, f.key())
		}
		last := all[len(all)-1]
		last.count.all++
		if p[b].reached {
			last.count.reached++
		} else {
			last.missed = append(last.missed, b)
		}
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(left)) {
		errs = append(errs, fmt.Errorf("%s: there is no function %s in the compiled code: remove its line", unreachedFile, key))
	}
	return all, errors.Join(errs...)
}

// largest is the number of functions in the list of the functions with the most uncovered blocks.
const largest = 10

func (c coverage) print(to io.Writer) {
	fmt.Fprintln(to, "\nCovered branches:")
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  \tof all\t\twithout unreached.txt")
	for i := range parts {
		var all, without count
		for _, f := range c {
			if !parts[i].holds(f.file) {
				continue
			}
			all = all.plus(f.count)
			if f.reason == "" {
				without = without.plus(f.count)
			}
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", parts[i].name, all, without)
	}
	_ = w.Flush() // Errors are ignored as for Fprint.

	var missed, listed coverage
	for _, f := range c {
		switch {
		case f.reason != "":
			listed = append(listed, f)
		case f.count.missed() > 0:
			missed = append(missed, f)
		}
	}
	slices.SortStableFunc(missed, func(a, b *covered) int { return cmp.Compare(b.count.missed(), a.count.missed()) })
	missed.table(to, "The largest uncovered parts, in blocks:", min(largest, len(missed)))
	listed.table(to, "Out of reach, by unreached.txt:", len(listed))
}

// table prints the first n functions.
func (c coverage) table(to io.Writer, title string, n int) {
	if n == 0 {
		return
	}
	fmt.Fprintf(to, "\n%s\n", title)
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, f := range c[:n] {
		line := fmt.Sprintf("  %d of %d\t%s\t%s:%d\t%s", f.count.missed(), f.count.all, f.name, f.file, f.from.line, f.reason)
		fmt.Fprintln(w, strings.TrimSuffix(line, "\t"))
	}
	_ = w.Flush() // Errors are ignored as for Fprint.
}

// list prints all uncovered blocks.
func (c coverage) list(to io.Writer) {
	for _, f := range c {
		if len(f.missed) == 0 {
			continue
		}
		fmt.Fprintf(to, "%s %d of %d", f.key(), f.count.missed(), f.count.all)
		if f.reason != "" {
			fmt.Fprintf(to, " (%s)", f.reason)
		}
		fmt.Fprintln(to)
		for _, b := range f.missed {
			fmt.Fprintf(to, "\t%s:%d.%d,%d.%d\n", b.file, b.from.line, b.from.column, b.to.line, b.to.column)
		}
	}
}

// printTable prints numbers by name, the largest first.
func printTable(to io.Writer, title string, counts map[string]int) {
	if len(counts) == 0 {
		return
	}
	fmt.Fprintf(to, "\n%s\n", title)
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, name := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), strings.Compare(a, b))
	}) {
		fmt.Fprintf(w, "%d\t  %s\n", counts[name], name)
	}
	_ = w.Flush() // Errors are ignored as for Fprint.
}
