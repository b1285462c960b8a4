package ui

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"

	"refract.dev/fleet/offline/diff"
	"refract.dev/fleet/offline/explain"
	"refract.dev/fleet/offline/render"
	"refract.dev/internal/output"
)

// mostFile is the maximum size of the details in a file, in bytes. The whole file then has less than 1 MB, so it can be
// attached to a pull request.
const mostFile = 900_000

// file is a page in one file: it needs no server, contains no script and sends no requests.
type file struct {
	Title  string
	Style  template.CSS
	Policy string // The Content-Security-Policy, which allows only the style of the file.
	Data   any

	template string
}

// Body returns the content of the file.
func (f *file) Body() (template.HTML, error) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, f.template, f.Data); err != nil {
		return "", err
	}
	return template.HTML(b.String()), nil //nolint:gosec // The text comes from a template, which has escaped all values.
}

func (f *file) write(w io.Writer) error {
	style, err := assets.ReadFile("assets/style.css")
	if err != nil {
		return err
	}
	sum := sha256.Sum256(style)
	f.Style = template.CSS(style) //nolint:gosec // It is our own.
	f.Policy = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, "file", f); err != nil {
		return fmt.Errorf("writing HTML: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// diffFile is the file for a change and its effect.
type diffFile struct {
	Summary  string
	Same     bool
	Groups   []diffGroup
	More     int // The number of groups that were left out.
	Rollouts []diffRollout
	Notes    []string
}

type diffGroup struct {
	diff.SaidGroup

	Unified []unifiedLine
	Left    bool // Whether the details were left out.
}

// unifiedLine is a line of a unified diff. Kind is "added", "removed", "about" for a header, or empty.
type unifiedLine struct{ Kind, Text string }

type diffRollout struct {
	Heading string
	Lines   []string
}

// WriteDiff writes a change as a page in one file. The file has less than 1 MB. If details do not fit, it has a note
// instead.
func WriteDiff(w io.Writer, d *diff.Diff) error {
	is := &diffFile{Summary: d.Totals.String(), Same: d.Same()}
	room := mostFile
	for i := range d.Rollouts {
		heading, lines := d.Rollouts[i].Said()
		for _, line := range append([]string{heading}, lines...) {
			room -= weight(line)
		}
		if room < mostFile/2 {
			is.Notes = append(is.Notes, fmt.Sprintf("%d more groups roll out wave by wave; refract diff shows them", len(d.Rollouts)-i))
			break
		}
		is.Rollouts = append(is.Rollouts, diffRollout{heading, lines})
	}
	for i := range d.Notes {
		note := d.Notes[i].String()
		if room -= weight(note); room < mostFile/4 {
			is.Notes = append(is.Notes, fmt.Sprintf("%d more notes are left out; refract diff shows them", len(d.Notes)-i))
			break
		}
		is.Notes = append(is.Notes, note)
	}
	for i, said := range d.Said() {
		size := weight(said.Heading) + 200
		for _, line := range said.Lines {
			size += weight(line)
		}
		if room -= size; room < 0 {
			is.More = len(d.Groups) - i
			break
		}
		text, err := d.Unified(i)
		if err != nil {
			return err
		}
		g := diffGroup{SaidGroup: said, Left: true}
		lines := unifiedLines(text)
		size = 0
		for _, line := range lines {
			size += weight(line.Text)
		}
		if size < room {
			room -= size
			g.Left, g.Unified = false, lines
		}
		is.Groups = append(is.Groups, g)
	}
	return (&file{Title: "Effects of a change", template: "difffile", Data: is}).write(w)
}

// weight returns how many bytes a text needs in a file, including its markup.
func weight(text string) int {
	const around = 40
	return around + len(template.HTMLEscapeString(plain(text)))
}

func unifiedLines(text string) []unifiedLine {
	var lines []unifiedLine
	for t := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		kind := ""
		switch {
		case strings.HasPrefix(t, "---"), strings.HasPrefix(t, "+++"), strings.HasPrefix(t, "@@"), strings.HasPrefix(t, "#"):
			kind = "about"
		case strings.HasPrefix(t, "+"):
			kind = "added"
		case strings.HasPrefix(t, "-"):
			kind = "removed"
		}
		lines = append(lines, unifiedLine{kind, shortened(t)})
	}
	return lines
}

// renderFile is the file for the rendered objects of each cluster.
type renderFile struct {
	Summary string
	Columns []column
	Rows    []renderRow
	More    int // The number of objects whose contents were left out.
}

type renderRow struct {
	*row

	Runs     []run // The cells of the row. Adjacent equal cells are combined.
	Contents []content
	Remarks  []remark
	Left     bool
}

// run stands for adjacent cells that are equal.
type run struct {
	cell

	Text string // One character for each cell.
}

// WriteRender writes the rendered objects of each cluster as a page in one file. The file for 1,000 objects on 100
// clusters has less than 1 MB. As in [WriteDiff], details that do not fit are left out.
func WriteRender(w io.Writer, e *render.Evaluation) error {
	m := newMatrix(e).with(nil, false)
	columns := make([]int, len(m.clusters))
	for i := range columns {
		columns[i] = i
	}
	groups := fold(m.rows, columns, false)
	is := &renderFile{Summary: fmt.Sprintf("%s on %s", output.Count(len(m.rows), "object", "objects"), output.Count(len(m.clusters), "cluster", "clusters"))}
	for _, g := range groups {
		var c column
		for _, i := range g {
			c.Names = append(c.Names, m.clusters[i])
		}
		is.Columns = append(is.Columns, c)
	}
	room := mostFile
	for _, r := range m.rows {
		row := renderRow{row: r, Runs: runs(r, groups)}
		room -= 200 + len(r.about.Name) + len(row.Runs)*30 + len(groups)
		p := &objectPage{Address: ""}
		if r.outcome != nil {
			p.remarks(r.outcome)
			p.contents(r)
		}
		size := 0
		for i := range p.Contents {
			size += 200 + len(p.Contents[i].Hint) + len(p.Contents[i].Err)
			for _, c := range p.Contents[i].Changes {
				size += weight(c)
			}
		}
		for _, remark := range p.Remarks {
			size += 50 + len(remark.Text)
		}
		if row.Left = size > room; row.Left {
			is.More++
		} else {
			room -= size
			row.Contents, row.Remarks = p.Contents, p.Remarks
		}
		is.Rows = append(is.Rows, row)
	}
	return (&file{Title: "Content of the clusters", template: "renderfile", Data: is}).write(w)
}

// runs combines adjacent cells that are equal.
func runs(r *row, groups [][]int) (all []run) {
	for _, g := range groups {
		c := r.cells[g[0]]
		mark := c.Letter()
		switch {
		case c.state == failed:
			mark = c.state.Glyph()
		case mark == "":
			mark = "·"
		case len(mark) > 1:
			mark = "+"
		}
		if n := len(all); n > 0 && all[n-1].cell == c {
			all[n-1].Text += mark
			continue
		}
		all = append(all, run{c, mark})
	}
	return all
}

// explainFile is the file that explains the content of one object on each cluster.
type explainFile struct {
	About     string
	Remarks   []remark
	Groups    []explainGroup
	Elsewhere []string
}

type explainGroup struct {
	Title  string
	Rules  []string
	Fields []fieldRow
	Lines  []line
	More   int
	Why    string
}

// WriteExplain writes an explanation of one object as a page in one file. The page shows each distinct content, its
// clusters, and the author of each line.
func WriteExplain(w io.Writer, o *render.Outcome, x *explain.Explanation) error {
	is := &explainFile{About: x.Object.String()}
	for _, f := range x.Errors {
		is.Remarks = append(is.Remarks, remark{true, f.String()})
	}
	for _, f := range x.Warnings {
		is.Remarks = append(is.Remarks, remark{false, f.String()})
	}
	for i := range x.Elsewhere {
		e := &x.Elsewhere[i]
		is.Elsewhere = append(is.Elsewhere, (&column{e.Clusters}).Hint()+": "+e.Reason)
	}
	room := mostFile
	for i := range x.Groups {
		g := &x.Groups[i]
		group := explainGroup{
			Title:  fmt.Sprintf("%s: %s", output.Count(len(g.Clusters), "cluster", "clusters"), (&column{g.Clusters}).Hint()),
			Fields: fieldRows(g), Rules: rulesText(g),
		}
		side := sideOf(&row{outcome: o}, g.Clusters[0])
		group.Why = side.Why
		if room -= group.weight(); room < 0 {
			group.Fields, group.Rules = nil, []string{"The rules and values are left out, as the file would be over 1 MB; refract explain shows them."}
		}
		for j := range side.Lines {
			if room -= 120 + weight(side.Lines[j].Text) + len(side.Lines[j].Who); room < 0 {
				group.More = len(side.Lines) - j + side.More
				break
			}
			group.Lines = append(group.Lines, side.Lines[j])
		}
		is.Groups = append(is.Groups, group)
	}
	for i := range is.Groups { // A file has no pages of policies, so it needs no links to them.
		for j := range is.Groups[i].Lines {
			is.Groups[i].Lines[j].Address = ""
		}
		for j := range is.Groups[i].Fields {
			for k := range is.Groups[i].Fields[j].Chain {
				is.Groups[i].Fields[j].Chain[k].Address = ""
			}
		}
	}
	return (&file{Title: x.Object.String(), template: "explainfile", Data: is}).write(w)
}

// weight returns how many bytes the rules and values of the group need in a file.
func (g *explainGroup) weight() (bytes int) {
	for _, f := range g.Fields {
		bytes += weight(f.Path)
		for _, step := range f.Chain {
			bytes += weight(step.Text) + weight(step.Who)
		}
	}
	for _, text := range g.Rules {
		bytes += weight(text)
	}
	return bytes
}

// rulesText describes the result of each rule for the group.
func rulesText(g *explain.Group) (texts []string) {
	for i := range g.Policies {
		p := &g.Policies[i]
		for j := range p.Rules {
			r := &p.Rules[j]
			parts := []string{fmt.Sprintf("%s %s rule %d", p.Kind, slashed(p.Namespace, p.Name), r.Rule), string(r.State)}
			for _, why := range r.Why {
				parts = append(parts, why.Reason)
			}
			if r.Error != nil {
				parts = append(parts, r.Error.Message)
			}
			texts = append(texts, strings.Join(parts, ": "))
		}
	}
	return texts
}

func slashed(namespace, name string) string {
	return strings.Join(slices.DeleteFunc([]string{namespace, name}, func(s string) bool { return s == "" }), "/")
}
