package diff

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

// WriteText writes the groups as text, then the waves of rollouts, the notes, and a line with the totals.
func WriteText(w io.Writer, d *Diff) error {
	out := bufio.NewWriter(w)
	for _, g := range d.Said() {
		fmt.Fprintf(out, "%s %s\n", g.Mark, g.Heading)
		for _, line := range g.Lines {
			fmt.Fprintf(out, "    %s\n", line)
		}
		fmt.Fprintln(out)
	}
	for i := range d.Rollouts {
		fmt.Fprintln(out, d.Rollouts[i].heading())
		for _, line := range d.Rollouts[i].lines() {
			fmt.Fprintf(out, "    %s\n", line)
		}
		fmt.Fprintln(out)
	}
	for i := range d.Notes {
		fmt.Fprintf(out, "note: %s\n", &d.Notes[i])
	}
	if len(d.Notes) > 0 {
		fmt.Fprintln(out)
	}
	fmt.Fprintln(out, &d.Totals)
	return out.Flush()
}

// SaidGroup is the text of a group, without values of Secrets.
type SaidGroup struct {
	Status Status
	// Mark is the sign of the status, Heading names the objects and clusters, and Lines describe the differences.
	Mark, Heading string
	Lines         []string
}

// Said returns the texts of the groups, in their order.
func (d *Diff) Said() []SaidGroup {
	groups := d.masked()
	said := make([]SaidGroup, len(groups))
	for i := range groups {
		g := &groups[i]
		said[i] = SaidGroup{g.Status, g.mark(), g.heading(), g.lines()}
	}
	return said
}

// Unified returns the unified diff of the YAML of one group, as in [WriteUnified].
func (d *Diff) Unified(group int) (string, error) {
	one := Diff{Groups: d.Groups[group : group+1]}
	return one.masked()[0].unified()
}

// mark returns the sign of the group's status.
func (g *Group) mark() string {
	return map[Status]string{Deleted: "-", Failing: "✗", Changed: "~", Recovered: "✔", Created: "+"}[g.Status]
}

// heading names the objects and clusters of the group.
func (g *Group) heading() string {
	text := g.Objects[0].Kind + " " + render.Few(namesOf(g.Objects))
	if len(g.Clusters) == 0 {
		return text
	}
	return fmt.Sprintf("%s on %s: %s", text, clusterCount(len(g.Clusters)), render.Few(g.Clusters))
}

func namesOf(objects []Object) []string {
	names := make([]string, len(objects))
	for i := range objects {
		names[i] = nameOf(&objects[i].Object)
	}
	return names
}

func nameOf(o *render.Object) string {
	if o.Namespace == "" {
		return o.Name
	}
	return o.Namespace + "/" + o.Name
}

func clusterCount(n int) string { return output.Count(n, "cluster", "clusters") }

// lines describe the differences of the group.
func (g *Group) lines() []string {
	var lines []string
	switch g.Status {
	case Failing:
		lines = append(lines, "fails: "+oneLine(g.Reason))
		if len(g.Clusters) > 0 {
			lines = append(lines, "! the clusters keep their copies")
		}
	case Recovered:
		lines = append(lines, "recovers: the copies on the clusters are unknown, as it failed before: "+oneLine(g.Reason))
	case Changed:
		for i := range g.Changes {
			lines = append(lines, g.Changes[i].String())
		}
	default:
		lines = append(lines, string(g.Status)+": "+g.Reason)
	}
	for _, i := range g.Impacts {
		lines = append(lines, "! "+g.say(i))
	}
	return lines
}

// oneLine returns the text of an error on one line, because an error may quote text of several lines.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", " ") }

// say returns the text of an impact on the group.
func (g *Group) say(i Impact) string {
	if i.Effect != Rolling {
		return i.Message
	}
	return fmt.Sprintf("%s (%s)", i.Message, g.Rolls)
}

// String returns the change on one line, with its author.
func (c *Change) String() string {
	by := "object"
	switch c.Cause {
	case ByPolicy:
		by = c.By.String()
	case Withdrawn:
		by = "no longer set by " + c.By.String()
	case Own:
	}
	return fmt.Sprintf("%s  (%s)", render.TextOf(apart(c.Change)), by)
}

// kept is the number of equal bytes before the first difference that remain in a shortened text.
const kept = 12

// apart shortens two long texts at their beginning, so that their first difference is in the part that is shown.
func apart(c tree.Change) *tree.Change {
	before, ok := c.Before.(string)
	after, both := c.After.(string)
	if !ok || !both || render.Text(before) != render.Text(after) {
		return &c
	}
	n := 0
	for n < len(before) && n < len(after) && before[n] == after[n] {
		n++
	}
	n -= kept
	for n > 0 && !utf8.RuneStart(before[n]) {
		n--
	}
	if n > 0 {
		c.Before, c.After = "…"+before[n:], "…"+after[n:]
	}
	return &c
}

// String returns the objects, the clusters and the message, without empty parts.
func (n *Note) String() string {
	var about []string
	if len(n.Objects) > 0 {
		names := make([]string, len(n.Objects))
		for i := range n.Objects {
			names[i] = nameOf(&n.Objects[i])
		}
		about = append(about, n.Objects[0].Kind+" "+render.Few(names))
	}
	if len(n.Clusters) > 0 {
		about = append(about, render.Few(n.Clusters))
	}
	if len(about) == 0 {
		return n.Message
	}
	return strings.Join(about, " on ") + ": " + n.Message
}

// String returns the totals on one line.
func (t *Totals) String() string {
	switch {
	case t.Objects == 0 && t.Unknown == 0:
		return "nothing changes"
	case t.Objects == 0:
		return "nothing that could be compared changes; " + t.unknown()
	}
	verb := "change"
	if t.Objects == 1 {
		verb = "changes"
	}
	text := fmt.Sprintf("%s on %s %s: %s; %s",
		output.Count(t.Objects, "object", "objects"), clusterCount(t.Clusters), verb, t.copies(), t.pods())
	if t.Unknown > 0 {
		text += "; " + t.unknown()
	}
	return text
}

// unknown counts the objects that could not be compared.
func (t *Totals) unknown() string {
	return output.Count(t.Unknown, "object", "objects") + " could not be compared"
}

// copies counts the copies by status.
func (t *Totals) copies() string {
	text := fmt.Sprintf("%s, %s, %s, %s", counted(t.Changed, "changed"), counted(t.Created, "created"),
		counted(t.Deleted, "deleted"), counted(t.Failing, "failing"))
	if t.Recovered > 0 {
		text += ", " + counted(t.Recovered, "recovered")
	}
	return text
}

// pods describes the effects on pods.
func (t *Totals) pods() string {
	text := "nothing rolls"
	if n := t.Rolls.Workloads; n > 0 {
		text = fmt.Sprintf("%s, %s", output.Count(n, "workload rolls", "workloads roll"), t.Rolls.pods())
	}
	if t.ScaledUp > 0 {
		text += "; " + counted(t.ScaledUp, "scaled up")
	}
	if t.ScaledDown > 0 {
		text += "; " + counted(t.ScaledDown, "scaled down")
	}
	if t.Refused > 0 {
		text += "; " + counted(t.Refused, "cannot be changed in place")
	}
	if n := t.AwaitingApproval; n > 0 {
		text += "; " + output.Count(n, "copy waits", "copies wait") + " for approval"
	}
	return text
}

func counted(n int, what string) string { return output.Count(n, what, what) }

// String returns the number of workloads and pods that roll.
func (r Rolls) String() string {
	return output.Count(r.Workloads, "workload", "workloads") + ", " + r.pods()
}

// pods counts the pods as far as their number is known.
func (r Rolls) pods() string {
	known := output.Count(int(r.Pods), "pod", "pods")
	if r.Autoscaled > 0 {
		known = "at least " + known
	}
	nodes := "a pod on every node"
	switch r.DaemonSets {
	case 0:
		return known
	case r.Workloads:
		return nodes
	default:
		return fmt.Sprintf("%s, and %s for %s", known, nodes, output.Count(r.DaemonSets, "DaemonSet", "DaemonSets"))
	}
}

// document is the JSON of a Diff.
type document struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Totals     Totals  `json:"totals"`
	Groups     []Group `json:"groups"`
	// Rollouts are absent if every change reaches all clusters at once.
	Rollouts []Rollout `json:"rollouts,omitempty"`
	Notes    []Note    `json:"notes"`
}

func (d *Diff) document() *document {
	doc := &document{APIVersion: "refract.dev/v1alpha1", Kind: "Diff", Totals: d.Totals, Groups: d.masked(), Rollouts: d.Rollouts, Notes: d.Notes}
	if doc.Notes == nil {
		doc.Notes = []Note{}
	}
	for i := range doc.Groups {
		g := &doc.Groups[i]
		if g.Status != Changed && g.Status != Failing {
			continue
		}
		for j := range g.Objects {
			g.Objects[j].Before, g.Objects[j].After = nil, nil // The changes contain the difference, or there is no new content.
		}
	}
	return doc
}

// MarshalJSON returns the Diff as a document of kind Diff, version refract.dev/v1alpha1, with the values of Secrets
// masked.
func (d *Diff) MarshalJSON() ([]byte, error) { return json.Marshal(d.document()) }

// WriteJSON writes the Diff as one JSON document.
func WriteJSON(w io.Writer, d *Diff) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(d.document())
}
