package policytest

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"

	"refract.dev/fleet/offline/render"
	"refract.dev/internal/output"
	"refract.dev/tree"
)

// WriteText writes the failed cases, each with its failures and their authors, and then the totals. If verbose is true,
// it also writes the passed cases.
func WriteText(w io.Writer, r *Result, verbose bool) error {
	out := bufio.NewWriter(w)
	shown := false
	for i := range r.Cases {
		c := &r.Cases[i]
		if c.Passed && !verbose {
			continue
		}
		shown = true
		mark := "✔"
		if !c.Passed {
			mark = "✗"
		}
		fmt.Fprintf(out, "%s %s:%d: %s\n", mark, c.File, c.Line, c.Name)
		for _, line := range c.lines() {
			fmt.Fprintf(out, "    %s\n", line)
		}
	}
	if shown {
		fmt.Fprintln(out)
	}
	passed, failed := r.Count()
	fmt.Fprintf(out, "%s: %d passed, %d failed\n", output.Count(len(r.Cases), "case", "cases"), passed, failed)
	c := &r.Coverage
	fmt.Fprintf(out, "%s: %d tested (%d%%), %d only used by objects, %d never exercised\n",
		output.Count(c.Rules, "rule", "rules"), c.Tested, c.Percent(), c.Used, len(c.Unexercised))
	return out.Flush()
}

// lines describes the failures. A failure that several clusters have in common appears once.
func (c *Case) lines() []string {
	var order []string
	clusters := map[string][]string{}
	for i := range c.Failures {
		f := &c.Failures[i]
		key := f.text()
		if clusters[key] == nil {
			order = append(order, key)
		}
		if !slices.Contains(clusters[key], f.Cluster) {
			clusters[key] = append(clusters[key], f.Cluster)
		}
	}
	var lines []string
	for _, text := range order {
		lines = append(lines, strings.Split(render.Few(clusters[text])+": "+text, "\n")...)
	}
	return lines
}

// text returns the message, with the authors of the values that it names.
func (f *Failure) text() string {
	var b strings.Builder
	b.WriteString(f.Message)
	if f.Traced {
		b.WriteString(by(f.By))
	}
	for _, at := range f.Where {
		fmt.Fprintf(&b, "\n    %s is %s%s", at.Path, render.Text(at.Value), by(at.By))
	}
	return b.String()
}

func by(author *tree.Author) string {
	if author == nil {
		return "  (as on the hub)"
	}
	return fmt.Sprintf("  (%s)", author)
}
