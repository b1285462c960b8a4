package ui

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"refract.dev/internal/output"
)

// The numbers of rows and columns on one page.
const (
	pageRows    = 50
	pageColumns = 30
)

// filter selects the objects and clusters on a page. Its fields come from the parameters of the address.
type filter struct {
	Namespace, Kind, Policy, Clusters, State, Text string

	rows, columns int  // The indexes of the first row and column on the page.
	each          bool // Whether each cluster has its own column, even if its cells are equal to those of other clusters.
	selector      labels.Selector
	Problem       string // The error in the address; empty if there is none.
}

func filterOf(q url.Values) *filter {
	f := &filter{
		Namespace: q.Get("ns"), Kind: q.Get("kind"), Policy: q.Get("policy"), Clusters: q.Get("l"), State: q.Get("state"),
		Text: strings.TrimSpace(q.Get("q")), each: q.Get("each") != "",
	}
	f.rows, _ = strconv.Atoi(q.Get("row"))
	f.columns, _ = strconv.Atoi(q.Get("col"))
	var err error
	if f.selector, err = labels.Parse(f.Clusters); err != nil {
		f.selector, f.Problem = labels.Everything(), fmt.Sprintf("labels of clusters: %v", err)
	}
	return f
}

// Single reports whether every cluster has its own column.
func (f *filter) Single() bool { return f.each }

// address returns the address of a page with this filter. row and column are the first ones on the page.
func (f *filter) address(row, column int) string {
	q := url.Values{}
	for key, value := range map[string]string{"ns": f.Namespace, "kind": f.Kind, "policy": f.Policy, "l": f.Clusters, "state": f.State, "q": f.Text} {
		if value != "" {
			q.Set(key, value)
		}
	}
	if row > 0 {
		q.Set("row", strconv.Itoa(row))
	}
	if column > 0 {
		q.Set("col", strconv.Itoa(column))
	}
	if f.each {
		q.Set("each", "1")
	}
	if len(q) == 0 {
		return "/"
	}
	return "/?" + q.Encode()
}

// fleetPage is the data of the page "Fleet".
type fleetPage struct {
	Filter                       *filter
	Namespaces, Kinds, Policies  []string
	States                       []state
	Columns                      []column
	Rows                         []fleetRow
	Objects, AllObjects          int
	Clusters, AllClusters, Alike int
	Copies                       int
	Counts                       []stateCount
	Up, Down, Left, Right        string // Addresses; empty at an edge of the table.
	Span                         string
	Each                         string
}

type stateCount struct {
	State   state
	Count   int
	Address string
}

// column is a column of the table. It stands for all clusters whose cells are equal in the selected rows.
type column struct {
	Names []string
}

func (c *column) Title() string {
	if len(c.Names) == 1 {
		return c.Names[0]
	}
	return fmt.Sprintf("%s +%d", c.Names[0], len(c.Names)-1)
}

// Hint names the clusters, at most 20 of them.
func (c *column) Hint() string {
	const few = 20
	if len(c.Names) <= few {
		return strings.Join(c.Names, ", ")
	}
	return strings.Join(c.Names[:few], ", ") + fmt.Sprintf(" and %d more", len(c.Names)-few)
}

type fleetRow struct {
	*row

	Cells []fleetCell
}

// fleetCell is a cell as the template needs it. It has few fields, because a page has many cells, and evaluating a
// field takes time.
type fleetCell struct {
	Class, Address string
	Label          string // For screen readers.
	Text           string // Empty if there is no copy.
}

func cellOf(c cell, address string) fleetCell {
	is := fleetCell{Class: c.Color() + " s-" + c.state.Name()}
	if c.state != absent {
		is.Address, is.Text, is.Label = address, c.Letter()+c.state.Glyph(), c.Letter()+" "+c.state.Words()
	}
	return is
}

// Letter returns the letter that stands for the content in its row. The most frequent content has the letter A.
func (c cell) Letter() string {
	switch {
	case c.variant == none:
		return ""
	case c.variant < 26:
		return string(rune('A' + c.variant))
	default:
		return "#" + strconv.Itoa(int(c.variant)+1)
	}
}

// colors is the number of different colors for contents.
const colors = 10

// Color returns the CSS class of the content's color.
func (c cell) Color() string {
	if c.variant == none {
		return "v-"
	}
	return "v" + strconv.Itoa(int(c.variant)%colors)
}

func (c cell) State() state { return c.state }

// page returns the page for a filter.
func (m *matrix) page(f *filter) *fleetPage {
	p := &fleetPage{Filter: f, AllObjects: len(m.rows), AllClusters: len(m.clusters)}
	p.Namespaces, p.Kinds, p.Policies = m.namespaces, m.kinds, m.policies
	for s := right; s < states; s++ {
		p.States = append(p.States, s)
	}
	var columns []int
	for i := range m.clusters {
		if f.selector.Matches(m.labels[i]) {
			columns = append(columns, i)
		}
	}
	rows, columns := f.leave(m, columns)
	p.Objects, p.Clusters = len(rows), len(columns)
	p.count(rows, columns)
	groups := fold(rows, columns, f.each)
	p.Alike = len(groups)
	p.cut(m, rows, groups)
	return p
}

// choices sets the values that a user can filter by.
func (m *matrix) choices() {
	namespaces, kinds, policies := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, r := range m.rows {
		namespaces[r.about.Namespace], kinds[r.about.Kind] = true, true
		for _, name := range r.named {
			policies[name] = true
		}
	}
	delete(namespaces, "")
	m.namespaces, m.kinds, m.policies = sortedKeys(namespaces), sortedKeys(kinds), sortedKeys(policies)
}

// leave returns the rows and columns that the filter leaves. If the search text occurs in no object, it selects
// clusters instead.
func (f *filter) leave(m *matrix, columns []int) (rows []*row, left []int) {
	text := strings.ToLower(f.Text)
	var named []int
	for _, c := range columns {
		if text != "" && strings.Contains(strings.ToLower(m.clusters[c]), text) {
			named = append(named, c)
		}
	}
	chosen := func(ignoring bool) (rows []*row) {
		for _, r := range m.rows {
			if f.has(r, columns, text, ignoring) {
				rows = append(rows, r)
			}
		}
		return rows
	}
	rows = chosen(false)
	if len(rows) == 0 && len(named) > 0 {
		return chosen(true), named
	}
	return rows, columns
}

func (f *filter) has(r *row, columns []int, text string, ignoringText bool) bool {
	switch {
	case f.Namespace != "" && r.about.Namespace != f.Namespace, f.Kind != "" && r.about.Kind != f.Kind:
		return false
	case f.Policy != "" && !r.names(f.Policy):
		return false
	case f.State != "" && !slices.ContainsFunc(columns, func(c int) bool { return r.cells[c].state.Name() == f.State }):
		return false
	case text == "" || ignoringText:
		return true
	default:
		return strings.Contains(r.text, text)
	}
}

func (r *row) names(policy string) bool { return slices.Contains(r.named, policy) }

// count counts the copies in each state.
func (p *fleetPage) count(rows []*row, columns []int) {
	var counts [states]int
	for _, r := range rows {
		for _, c := range columns {
			counts[r.cells[c].state]++
		}
	}
	for s := right; s < states; s++ {
		if counts[s] == 0 && p.Filter.State != s.Name() {
			continue
		}
		p.Copies += counts[s]
		only := *p.Filter
		only.State = s.Name()
		if p.Filter.State == s.Name() {
			only.State = ""
		}
		p.Counts = append(p.Counts, stateCount{s, counts[s], only.address(0, 0)})
	}
}

// fold groups clusters whose cells are equal in all rows. The groups are in the order of their first clusters.
func fold(rows []*row, columns []int, each bool) (groups [][]int) {
	if each {
		for _, c := range columns {
			groups = append(groups, []int{c})
		}
		return groups
	}
	at := map[string]int{}
	key := make([]byte, 0, 2*len(rows))
	for _, c := range columns {
		key = key[:0]
		for _, r := range rows {
			key = append(key, r.cells[c].variant, byte(r.cells[c].state))
		}
		g, known := at[string(key)]
		if !known {
			g = len(groups)
			at[string(key)] = g
			groups = append(groups, nil)
		}
		groups[g] = append(groups[g], c)
	}
	return groups
}

// cut selects the rows and columns that are on the page.
func (p *fleetPage) cut(m *matrix, rows []*row, groups [][]int) {
	f := p.Filter
	f.rows, f.columns = within(f.rows, len(rows), pageRows), within(f.columns, len(groups), pageColumns)
	shown, across := rows[f.rows:min(f.rows+pageRows, len(rows))], groups[f.columns:min(f.columns+pageColumns, len(groups))]
	for _, g := range across {
		var c column
		for _, i := range g {
			c.Names = append(c.Names, m.clusters[i])
		}
		p.Columns = append(p.Columns, c)
	}
	for _, r := range shown {
		cells := make([]fleetCell, len(across))
		address := r.Address()
		for i, g := range across {
			cells[i] = cellOf(r.cells[g[0]], address+"?c="+url.QueryEscape(m.clusters[g[0]]))
		}
		p.Rows = append(p.Rows, fleetRow{r, cells})
	}
	if f.rows > 0 {
		p.Up = f.address(max(f.rows-pageRows, 0), f.columns)
	}
	if f.rows+pageRows < len(rows) {
		p.Down = f.address(f.rows+pageRows, f.columns)
	}
	if f.columns > 0 {
		p.Left = f.address(f.rows, max(f.columns-pageColumns, 0))
	}
	if f.columns+pageColumns < len(groups) {
		p.Right = f.address(f.rows, f.columns+pageColumns)
	}
	p.Span = fmt.Sprintf("objects %s of %d, columns %s of %d", span(f.rows, len(shown)), len(rows), span(f.columns, len(across)), len(groups))
	other := *f
	other.each, other.rows, other.columns = !f.each, 0, 0
	p.Each = other.address(0, 0)
}

// within returns the first index on the page that has the given index. page is the size of a page. all is the number of
// all rows or columns.
func within(first, all, page int) int {
	return max(0, min(first, all-1)) / page * page
}

func span(first, count int) string {
	if count == 0 {
		return "0"
	}
	return fmt.Sprintf("%d–%d", first+1, first+count)
}

// Summary describes how many objects and clusters the filter selects.
func (p *fleetPage) Summary() string {
	text := fmt.Sprintf("%s on %s", output.Count(p.Objects, "object", "objects"), output.Count(p.Clusters, "cluster", "clusters"))
	if p.Alike < p.Clusters {
		text += fmt.Sprintf(", of which %d differ", p.Alike)
	}
	return text
}

func (r *row) Namespace() string { return r.about.Namespace }
func (r *row) Kind() string      { return r.about.Kind }
func (r *row) Name() string      { return r.about.Name }
func (r *row) Variants() int     { return r.variants }
func (r *row) Address() string   { return objectAddress(r.kind, r.about.Namespace, r.about.Name) }

func sortedKeys(set map[string]bool) []string {
	keys := make([]string, 0, len(set))
	for key := range set {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, cmp.Compare[string])
	return keys
}
