package explain

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"refract.dev/fleet/offline/render"
	"refract.dev/internal/output"
	"refract.dev/tree"
)

// WriteJSON writes the explanation as one JSON document.
func WriteJSON(w io.Writer, x *Explanation) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(x)
}

// WriteText writes the explanation as text: the clusters of the object, and the reasons why other clusters do not get
// it; then, for each group of clusters, the rules and the fields. The marks are ✔ for an effect, ✗ for a failure, ~ for
// a rule or value that has no effect, is overwritten, or is rejected by an API server, and · for a rule or object that
// does not apply to the clusters.
func WriteText(w io.Writer, x *Explanation) error {
	out := bufio.NewWriter(w)
	writeHead(out, x)
	for i := range x.Groups {
		fmt.Fprintln(out)
		writeGroup(out, &x.Groups[i], x.Path != "")
	}
	return out.Flush()
}

func writeHead(out io.Writer, x *Explanation) {
	on, off := 0, 0
	for i := range x.Groups {
		on += len(x.Groups[i].Clusters)
	}
	for i := range x.Elsewhere {
		off += len(x.Elsewhere[i].Clusters)
	}
	fmt.Fprint(out, x.Object.String())
	switch {
	case off > 0:
		fmt.Fprintf(out, ": on %d of %s", on, output.Count(on+off, "cluster", "clusters"))
	case on > 0:
		fmt.Fprintf(out, ": on %s", output.Count(on, "cluster", "clusters"))
	}
	if x.Propagation != nil && on+off > 0 {
		fmt.Fprintf(out, ", by %s", nameOf(x.Propagation))
	}
	if len(x.Follows) > 0 {
		fmt.Fprintf(out, ", follows %s", render.FollowsText(x.Follows))
	}
	fmt.Fprintln(out)
	writeFindings(out, "✗", x.Errors)
	writeFindings(out, "~", x.Warnings)
	for i := range x.Left {
		fmt.Fprintf(out, "  · %s\n", &x.Left[i])
	}
	for i := range x.Elsewhere {
		r := &x.Elsewhere[i]
		if i == few && len(x.Elsewhere) > few+1 {
			fmt.Fprintf(out, "  · not on %s, for %d more reasons\n", output.Count(off, "other", "others"), len(x.Elsewhere)-few)
			return
		}
		off -= len(r.Clusters)
		fmt.Fprintf(out, "  · not on %s: %s\n", render.Few(r.Clusters), r.Reason)
	}
}

// writeFindings writes the findings that belong to no rule.
func writeFindings(out io.Writer, mark string, findings []render.Finding) {
	var general []render.Finding
	for _, f := range findings {
		if f.Rule == nil {
			f.Object = nil // The heading names it.
			general = append(general, f)
		}
	}
	for _, said := range render.Together(general) {
		fmt.Fprintf(out, "  %s %s", mark, &said)
		if said.Hint != "" {
			fmt.Fprintf(out, " (%s)", said.Hint)
		}
		fmt.Fprintln(out)
	}
}

func writeGroup(out io.Writer, g *Group, asked bool) {
	mark := "✔"
	switch {
	case g.Failed:
		mark = "✗"
	case g.Refused:
		mark = "~"
	}
	fmt.Fprintf(out, "%s %s: %s\n", mark, output.Count(len(g.Clusters), "cluster", "clusters"), render.Few(g.Clusters))
	for i := range g.Policies {
		writePolicy(out, &g.Policies[i], g.Failed)
	}
	switch {
	case g.Failed:
		fmt.Fprintln(out, "    nothing is written there: existing copies stay")
	case len(g.Fields) == 0 && !asked:
		fmt.Fprintln(out, "    as it is on the hub")
	}
	for i := range g.Fields {
		writeField(out, &g.Fields[i])
	}
}

// few is the maximum number of listed reasons and of listed rules that do not apply. Further ones are counted.
const few = 3

func writePolicy(out io.Writer, p *Policy, failed bool) {
	fmt.Fprintf(out, "    %s\n", nameOf(&p.Policy))
	width := len(fmt.Sprint(len(p.Rules) - 1))
	others := 0
	for i := range p.Rules {
		if p.Rules[i].State == NotMatched {
			others++
		}
	}
	left := others
	for i := range p.Rules {
		r := &p.Rules[i]
		if r.State == NotMatched {
			left--
			if others > 2*few && others-left > few {
				continue
			}
		}
		writeRule(out, r, width, failed)
	}
	if others > 2*few {
		fmt.Fprintf(out, "      · %s not match them either\n", output.Count(others-few, "more rule does", "more rules do"))
	}
}

func writeRule(out io.Writer, r *Rule, width int, failed bool) {
	mark, text := "✔", output.Count(r.Changes, "change", "changes")
	switch {
	case r.State == NotMatched:
		mark, text = "·", sentence(r.Why)
	case r.State == Failed:
		mark, text = "✗", "failed: "+r.Error.String()
	case r.State == NotReached:
		mark, text = "·", "not reached"
	case failed:
		text = "holds"
	case r.Changes == 0:
		mark, text = "~", "changes nothing"
	case r.Refused:
		mark = "~"
	}
	fmt.Fprintf(out, "      %s rule %-*d  %s\n", mark, width, r.Rule, text)
	for i := range r.Warnings {
		fmt.Fprintf(out, "          ~ %s\n", r.Warnings[i].String())
	}
}

// String returns OVERRIDER[ITEM]: MESSAGE.
func (r *Remark) String() string {
	if r.Overrider == "" {
		return r.Message
	}
	return fmt.Sprintf("%s[%d]: %s", r.Overrider, r.Item, r.Message)
}

// sentence lists reasons. It names the clusters only if there are several reasons.
func sentence(why []Reason) string {
	if len(why) == 1 {
		return why[0].Reason
	}
	var parts []string
	for i, r := range why {
		if i == few && len(why) > few+1 {
			parts = append(parts, fmt.Sprintf("and for %d more reasons", len(why)-few))
			break
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", r.Reason, render.Few(r.Clusters)))
	}
	return strings.Join(parts, "; ")
}

// row is a line of a chain: a mark, a value, and its origin.
type row struct{ mark, sign, value, note string }

func writeField(out io.Writer, f *Field) {
	fmt.Fprintf(out, "    %s\n", f.Path)
	rows := rowsOf(f)
	width := 0
	for _, r := range rows {
		width = max(width, utf8.RuneCountInString(r.value))
	}
	for _, r := range rows {
		line := fmt.Sprintf("      %s %s %s%s", r.mark, r.sign, r.value, strings.Repeat(" ", width-utf8.RuneCountInString(r.value)))
		fmt.Fprintln(out, strings.TrimRight(line+"  "+r.note, " "))
	}
}

// rowsOf returns the chain from the object on the hub to the clusters.
func rowsOf(f *Field) []row {
	switch {
	case f.HubOnly:
		return []row{{" ", " ", render.Text(*f.Initial), "on the hub; it stays there, clusters do not get it"}}
	case !f.exists():
		return []row{{" ", " ", nothing, "neither on the hub nor here"}}
	case len(f.Writes) == 0:
		return []row{{" ", " ", render.Text(*f.Initial), onHub(f) + "; no policy changes it"}}
	}
	var rows []row
	if f.Initial != nil {
		rows = append(rows, row{" ", " ", render.Text(*f.Initial), onHub(f)})
	}
	for i := range f.Writes {
		rows = append(rows, rowOf(&f.Writes[i]))
	}
	switch last := &f.Writes[len(f.Writes)-1]; {
	case f.Inside:
		rows = append(rows, row{" ", "=", render.Text(f.Final), "in the end, with changes inside it"})
	case last.Op != tree.OpRemove && f.Final == nil:
		rows = append(rows, row{" ", "=", nothing, "in the end: empty values are left out"})
	}
	return rows
}

// nothing represents an absent value.
const nothing = "nothing"

func onHub(f *Field) string {
	if f.From != "" {
		return "on the hub, as " + f.From
	}
	return "on the hub"
}

func rowOf(w *Write) row {
	r := row{"✔", "→", render.Text(w.After), w.By.String()}
	switch w.Op {
	case tree.OpAdd:
		r.sign = "+"
	case tree.OpRemove:
		r.sign, r.value = "-", nothing
	case tree.OpReplace:
	}
	if w.Around {
		r.note += ", with all of " + w.Path
	}
	switch {
	case w.Shadowed:
		r.mark = "~"
		r.note += ", shadowed"
	case w.Refused:
		r.mark = "~"
		r.note += ", refused"
	}
	return r
}

func nameOf(p *render.Policy) string {
	return tree.Policy{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}.String()
}
