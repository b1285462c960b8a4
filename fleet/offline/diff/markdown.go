package diff

import (
	"fmt"
	"io"
	"strings"

	"refract.dev/fleet/offline/render"
	"refract.dev/internal/output"
)

// maxMarkdown is the maximum size of the output of WriteMarkdown in bytes. A comment on GitHub may have 65,536
// characters.
const maxMarkdown = 65_000

// WriteMarkdown writes a comment for a pull request: a heading, a table with a line for each group, and the unified
// diffs in collapsed sections. The comment has at most 65,000 bytes. If there is more, the details of the last groups
// and then their lines in the table are left out and counted. All names and values are escaped, so they contain no
// Markdown and no HTML.
func WriteMarkdown(w io.Writer, d *Diff) error {
	groups := d.masked()
	head := fmt.Sprintf("### Refract: %s\n", &d.Totals)
	notes := markdownWaves(d.Rollouts) + markdownNotes(d.Notes)
	left := maxMarkdown - len(head) - len(notes) - reserve

	var rows []string
	for i := range groups {
		row := groups[i].row()
		if left < len(row)+len(tableHead) {
			break
		}
		rows = append(rows, row)
		left -= len(row)
	}
	var details []string
	left -= len(tableHead)
	for i := range rows {
		text, err := groups[i].details()
		if err != nil {
			return err
		}
		if left < len(text) {
			break
		}
		details = append(details, text)
		left -= len(text)
	}

	var b strings.Builder
	b.WriteString(head)
	if len(rows) > 0 {
		b.WriteString(tableHead + strings.Join(rows, ""))
	}
	b.WriteString(notes)
	b.WriteString(strings.Join(details, ""))
	b.WriteString(leftOut(len(groups)-len(rows), len(rows)-len(details)))
	_, err := io.WriteString(w, b.String())
	return err
}

const tableHead = "\n| | Objects | Clusters | Effect |\n|---|---|---|---|\n"

// reserve is the space for the text of leftOut, in bytes.
const reserve = 300

func leftOut(rows, details int) string {
	switch {
	case rows > 0:
		return fmt.Sprintf("\n%s left out, and the details of %s more, as a comment has no room for them; `refract diff` shows all.\n",
			output.Count(rows, "group is", "groups are"), output.Count(details, "group", "groups"))
	case details > 0:
		return fmt.Sprintf("\nThe details of the last %s are left out, as a comment has no room for them; `refract diff` shows all.\n",
			output.Count(details, "group", "groups"))
	default:
		return ""
	}
}

// The maximum numbers of listed notes and changes. Further ones are counted.
const (
	mostNotes   = 20
	mostChanges = 3
)

func markdownWaves(rollouts []Rollout) string {
	if len(rollouts) == 0 {
		return ""
	}
	var b strings.Builder
	for i := range rollouts {
		if i == mostNotes {
			fmt.Fprintf(&b, "\n%s more out wave by wave.\n", output.Count(len(rollouts)-mostNotes, "group rolls", "groups roll"))
			break
		}
		fmt.Fprintf(&b, "\n%s:\n\n", literal(cut(rollouts[i].heading())))
		for k, line := range rollouts[i].lines() {
			if k == mostNotes {
				fmt.Fprintf(&b, "- and %d more\n", len(rollouts[i].Waves)-mostNotes)
				break
			}
			fmt.Fprintf(&b, "%s\n", literal(cut(line)))
		}
	}
	return b.String()
}

func markdownNotes(notes []Note) string {
	if len(notes) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("\nNotes:\n\n")
	for i := range notes {
		if i == mostNotes {
			fmt.Fprintf(&b, "- and %d more\n", len(notes)-mostNotes)
			break
		}
		fmt.Fprintf(&b, "- %s\n", literal(cut(notes[i].String())))
	}
	return b.String()
}

// row returns the line of the group in the table.
func (g *Group) row() string {
	return fmt.Sprintf("| %s | %s | %s | %s |\n", literal(g.mark()),
		literal(cut(g.Objects[0].Kind+" "+render.Few(namesOf(g.Objects)))), literal(cut(g.where())), g.what())
}

func (g *Group) where() string {
	if len(g.Clusters) == 0 {
		return ""
	}
	return clusterCount(len(g.Clusters)) + ": " + render.Few(g.Clusters)
}

// what returns the text of the cell "Effect".
func (g *Group) what() string {
	var parts []string
	for i, line := range g.lines() {
		if g.Status == Changed && i == mostChanges && len(g.Changes) > mostChanges {
			parts = append(parts, fmt.Sprintf("and %s", output.Count(len(g.Changes)-mostChanges, "more change", "more changes")))
		}
		impact, ok := strings.CutPrefix(line, "! ")
		switch {
		case ok:
			parts = append(parts, "**"+literal(cut(impact))+"**")
		case g.Status == Changed && i >= mostChanges:
		case g.Status == Changed:
			parts = append(parts, "<code>"+literal(cut(line))+"</code>")
		default:
			parts = append(parts, literal(cut(line)))
		}
	}
	return strings.Join(parts, "<br>")
}

// details returns the collapsed section of the group.
func (g *Group) details() (string, error) {
	if g.Status == Failing {
		return "", nil // The table has all information.
	}
	text, err := g.unified()
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n<details><summary>%s %s</summary>\n\n", literal(g.mark()), literal(cut(g.heading())))
	if g.Status == Changed {
		b.WriteString(fenced("", strings.Join(g.lines(), "\n")+"\n"))
	}
	b.WriteString(fenced("diff", text))
	b.WriteString("\n</details>\n")
	return b.String(), nil
}

// fenced returns a code block with a fence that is longer than any in the text.
func fenced(language, text string) string {
	longest, run := 2, 0
	for _, r := range text {
		if r != '`' {
			run = 0
			continue
		}
		run++
		longest = max(longest, run)
	}
	fence := strings.Repeat("`", longest+1)
	return fence + language + "\n" + text + fence + "\n"
}

// literal escapes a text for Markdown and HTML: all special characters become entities.
func literal(text string) string {
	var b strings.Builder
	for _, r := range text {
		switch {
		case r < ' ':
			b.WriteByte(' ')
		case strings.ContainsRune("\\`*_[]<>#|~@&$", r):
			fmt.Fprintf(&b, "&#%d;", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// maxCell is the maximum number of characters of a text in a cell or line.
const maxCell = 300

func cut(text string) string {
	runes := []rune(text)
	if len(runes) <= maxCell {
		return text
	}
	return string(runes[:maxCell-1]) + "…"
}
