package ui

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/explain"
	"refract.dev/fleet/offline/render"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/status"
	"refract.dev/tree"
)

// mostRows is the maximum number of rows in a table about one object or policy.
const mostRows = 1000

// objectPage is the data of the page of an object.
type objectPage struct {
	About    string
	Address  string
	Policies []policyLink
	Follows  string
	Remarks  []remark
	Contents []content
	Sides    []side
	Clusters []string // The clusters that a user can choose.
	Rows     []clusterRow
	More     int // The number of rows that were left out.
	Live     bool
	Rollout  *rolloutRow
	Fields   []fieldRow
}

type policyLink struct{ Text, Address string }

// remark is an error or a warning about an object.
type remark struct {
	Bad  bool
	Text string
}

// content is a content of the object, with the clusters that get it.
type content struct {
	cell

	Clusters []string
	Hint     string
	Address  string
	Err      string
	Changes  []string
}

// side is the object on one cluster, as one side of a comparison.
type side struct {
	Cluster string
	Lines   []line
	More    int
	Why     string // The reason if there are no lines.
}

type clusterRow struct {
	Name, Address    string
	State            state
	Reason, Message  string
	Readiness, Drift string
	Replicas         string
}

// fieldRow is a field with its changes.
type fieldRow struct {
	Path  string
	Chain []fieldStep
	Final string
}

type fieldStep struct {
	Text, Who, Address string
	Shadowed           bool
}

// object returns the page of an object; nil if the object does not exist. The page shows the object on one cluster. If
// a second cluster is named, it shows both side by side.
func (s *Snapshot) object(kind schema.GroupKind, namespace, name, on, with string) *objectPage {
	at := slices.IndexFunc(s.fleet.rows, func(r *row) bool {
		return r.kind == kind && r.about.Namespace == namespace && r.about.Name == name
	})
	if at < 0 {
		return nil
	}
	r := s.fleet.rows[at]
	p := &objectPage{About: r.about.String(), Address: r.Address(), Live: s.Live}
	for _, ref := range r.policies {
		p.Policies = append(p.Policies, policyLink{ref.String(), policyAddress(&ref)})
	}
	p.rowsOf(s, r)
	if r.reported != nil && r.reported.Status.Rollout != nil {
		row := rolloutOf(r.reported, r.Address())
		p.Rollout = &row
	}
	if r.outcome == nil {
		p.Remarks = append(p.Remarks, remark{true, "the object is not on the hub any more"})
		return p
	}
	p.remarks(r.outcome)
	p.Follows = render.FollowsText(r.outcome.Follows)
	p.contents(r)
	if on == "" && len(p.Contents) > 0 {
		on = p.Contents[0].Clusters[0]
	}
	p.sides(s, r, on, with)
	return p
}

// remarks sets the errors and warnings about the object.
func (p *objectPage) remarks(o *render.Outcome) {
	if o.Gone != "" {
		p.Remarks = append(p.Remarks, remark{true, o.Gone})
	}
	for _, f := range o.Errors() {
		f.Object = nil
		p.Remarks = append(p.Remarks, remark{true, f.String()})
	}
	for _, f := range o.Warnings() {
		f.Object = nil
		p.Remarks = append(p.Remarks, remark{false, f.String()})
	}
}

// contents sets the distinct contents that the policies give to the object.
func (p *objectPage) contents(r *row) {
	for _, g := range r.outcome.Groups() {
		names := r.outcome.Names(g.Clusters)
		if len(names) == 0 {
			continue
		}
		c := content{Clusters: names, Hint: (&column{names}).Hint(), Address: p.Address + "?c=" + names[0]}
		v := g.Variant()
		if v.Err != nil {
			c.cell, c.Err = cell{none, failed}, v.Err.Error()
		} else {
			for i := range v.Changes {
				change := render.Mask(r.kind, v.Changes[i])
				c.Changes = append(c.Changes, fmt.Sprintf("%s  (%s)", render.TextOf(&change), change.By))
			}
		}
		p.Contents = append(p.Contents, c)
		p.Clusters = append(p.Clusters, names...)
	}
	slices.SortStableFunc(p.Contents, func(a, b content) int { return cmp.Compare(len(b.Clusters), len(a.Clusters)) })
	slices.Sort(p.Clusters)
	for i := range p.Contents {
		if p.Contents[i].Err == "" {
			p.Contents[i].cell = cell{uint8(min(i, most)), right}
		}
	}
}

// sides sets the object on one or two clusters.
func (p *objectPage) sides(s *Snapshot, r *row, on, with string) {
	for _, name := range []string{on, with} {
		if name == "" || (name == with && with == on) {
			continue
		}
		p.Sides = append(p.Sides, sideOf(r, name))
	}
	if len(p.Sides) == 2 {
		compare(p.Sides[0].Lines, p.Sides[1].Lines)
	}
	if v := variantOn(r.outcome, on); v != nil && v.Err == nil {
		p.fields(s, r, on)
	}
}

func sideOf(r *row, cluster string) side {
	is := side{Cluster: cluster}
	v := variantOn(r.outcome, cluster)
	switch {
	case v == nil:
		is.Why = "the object is not placed there"
	case v.Err != nil:
		is.Why = "it cannot be rendered for this cluster, which keeps its copy: " + v.Err.Error()
	default:
		var err error
		if is.Lines, is.More, err = linesOf(render.MaskObject(v.Object.Object), v.Changes); err != nil {
			is.Why = err.Error()
		}
	}
	return is
}

// variantOn returns the variant of the object for a cluster; nil if there is none.
func variantOn(o *render.Outcome, cluster string) *override.Variant {
	for i := range o.Variants {
		if slices.ContainsFunc(o.Variants[i].Clusters, func(c int) bool { return o.Clusters[c].Name == cluster }) {
			return &o.Variants[i]
		}
	}
	return nil
}

// fields sets the changed fields on a cluster, with their changes.
func (p *objectPage) fields(s *Snapshot, r *row, cluster string) {
	x, err := explain.Explain(s.evaluation, r.outcome, tree.Pointer{})
	if err != nil {
		p.Remarks = append(p.Remarks, remark{true, err.Error()})
		return
	}
	at := slices.IndexFunc(x.Groups, func(g explain.Group) bool { return slices.Contains(g.Clusters, cluster) })
	if at < 0 {
		return
	}
	p.Fields = fieldRows(&x.Groups[at])
}

// fieldRows returns the fields that were changed for a group of clusters, with their changes.
func fieldRows(g *explain.Group) (rows []fieldRow) {
	for i := range g.Fields {
		f := &g.Fields[i]
		is := fieldRow{Path: f.Path}
		if f.Initial != nil {
			is.Chain = append(is.Chain, fieldStep{Text: render.Text(*f.Initial), Who: "the hub"})
		}
		for _, w := range f.Writes {
			step := fieldStep{Text: render.Text(w.After), Shadowed: w.Shadowed}
			if w.Op == tree.OpRemove {
				step.Text = "removed"
			}
			if w.By != nil {
				step.Who, step.Address = w.By.String(), policyAddress(&w.By.Policy)
			}
			is.Chain = append(is.Chain, step)
		}
		is.Final = "nothing"
		if f.Final != nil {
			is.Final = render.Text(*f.Final)
		}
		rows = append(rows, is)
	}
	return rows
}

// rowsOf sets the state of the object on each cluster.
func (p *objectPage) rowsOf(s *Snapshot, r *row) {
	for i, c := range r.cells {
		if c.state == absent {
			continue
		}
		if len(p.Rows) == mostRows {
			p.More++
			continue
		}
		name := s.fleet.clusters[i]
		is := clusterRow{Name: name, State: c.state, Address: p.Address + "?c=" + name}
		if r.reported != nil {
			if found := r.reported.Row(name); found != nil {
				is.describe(found, s.at)
			}
		}
		p.Rows = append(p.Rows, is)
	}
}

func (c *clusterRow) describe(s *refractv1alpha1.ClusterStatus, now time.Time) {
	c.Reason, c.Message = s.Reason, strings.TrimSpace(s.Message)
	c.Readiness = string(s.Readiness)
	if s.ReadinessMessage != "" {
		c.Readiness += ": " + s.ReadinessMessage
	}
	if s.Replicas != nil {
		c.Replicas = fmt.Sprint(*s.Replicas)
	}
	if d := s.Drift; d != nil {
		c.Drift = status.DriftText(d, now)
	}
}
