package bench

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
)

// The file with the figures of BenchmarkFleet, and the files that are generated from it.
const (
	figuresFile = "testdata/fleets.json"
	tableFile   = "../../docs/performance.md"
	plotFile    = "../../docs/images/fleets.svg"
	tableBegin  = "<!-- BenchmarkFleet writes this table, with REFRACT_BENCH_RECORD -->\n"
	tableEnd    = "<!-- and ends here -->\n"
)

// measured has the figures of one fleet, by unit.
type measured struct {
	Members int                `json:"members"`
	Objects int                `json:"objects"`
	Figures map[string]float64 `json:"figures"`
}

func (m *measured) copies() float64 { return float64(m.Members * m.Objects) }

// perCopy returns a figure per copy, in thousandths.
func (m *measured) perCopy(unit string) float64 { return 1000 * m.Figures[unit] / m.copies() }

// record stores the figures, and writes the table and the plots of all measured fleets.
func (s *simulated) record(b *testing.B, size string) {
	b.Helper()
	fleets := map[string]*measured{}
	text, err := os.ReadFile(figuresFile)
	if err == nil {
		err = json.Unmarshal(text, &fleets)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		b.Fatal(err)
	}
	fleets[size] = &measured{s.members, s.objects, s.figures}
	if text, err = json.MarshalIndent(fleets, "", "\t"); err != nil {
		b.Fatal(err)
	}
	write(b, figuresFile, append(text, '\n'))
	all := make([]*measured, 0, len(fleets))
	for _, f := range fleets {
		all = append(all, f)
	}
	slices.SortFunc(all, func(a, b *measured) int {
		return cmp.Or(cmp.Compare(a.copies(), b.copies()), cmp.Compare(a.Members, b.Members))
	})
	page, err := os.ReadFile(tableFile)
	if err != nil {
		b.Fatal(err)
	}
	head, rest, found := bytes.Cut(page, []byte(tableBegin))
	_, tail, ended := bytes.Cut(rest, []byte(tableEnd))
	if !found || !ended {
		b.Fatalf("%s has no place for the table: want lines %q and %q", tableFile, tableBegin, tableEnd)
	}
	write(b, tableFile, slices.Concat(head, []byte(tableBegin+table(all)+tableEnd), tail))
	write(b, plotFile, []byte(plots(all)))
}

func write(b *testing.B, file string, content []byte) {
	b.Helper()
	if err := os.WriteFile(file, content, 0o600); err != nil {
		b.Fatal(err)
	}
}

// rows are the rows of the table.
var rows = []struct {
	what string
	cell func(m *measured) string
}{
	{"**all objects are created**: until the last copy is right", func(m *measured) string {
		return fmt.Sprintf("%s, %.0f copies/s", inSeconds(m.Figures["first-s"]), m.copies()/m.Figures["first-s"])
	}},
	{"until everything is reported", func(m *measured) string { return inSeconds(m.Figures["first-settled-s"]) }},
	{"processor time of the controllers for each copy", func(m *measured) string {
		return fmt.Sprintf("%.2f ms, %.1f × the floor", m.perCopy("first-cpu-s"), m.perCopy("first-cpu-s")/m.Figures["floor-cpu-ms/copy"])
	}},
	{"the floor: a client that applies and does nothing else", func(m *measured) string { return fmt.Sprintf("%.2f ms", m.Figures["floor-cpu-ms/copy"]) }},
	{"writes on members for each copy", func(m *measured) string { return fmt.Sprintf("%.2f", m.Figures["first-writes/copy"]) }},
	{"writes on the hub for each object", func(m *measured) string { return fmt.Sprintf("%.1f", m.Figures["first-hub-writes/object"]) }},
	{"**an OverridePolicy of all changes**: until the last copy is right", func(m *measured) string {
		return fmt.Sprintf("%s, %.0f copies/s", inSeconds(m.Figures["policy-s"]), m.copies()/m.Figures["policy-s"])
	}},
	{"processor time for each copy", func(m *measured) string {
		return fmt.Sprintf("%.2f ms, %.1f × the floor", m.perCopy("policy-cpu-s"), m.perCopy("policy-cpu-s")/m.Figures["floor-cpu-ms/copy"])
	}},
	{"writes on the hub for each object", func(m *measured) string { return fmt.Sprintf("%.1f", m.Figures["policy-hub-writes/object"]) }},
	{"**the label of one cluster changes**, and all its copies with it", func(m *measured) string { return inSeconds(m.Figures["label-s"]) }},
	{"**a cluster joins**: until it has all its copies", func(m *measured) string { return inSeconds(m.Figures["newcomer-s"]) }},
	{"**restart** (kill -9): at work; all copies watched; all types looked through", func(m *measured) string {
		return inSeconds(m.Figures["restart-s"]) + "; " + sinceMeasured(m.Figures, "restart-watched-s") + "; " + sinceMeasured(m.Figures, "restart-settled-s")
	}},
	{"writes on members by it", func(m *measured) string { return fmt.Sprintf("**%.0f**", m.Figures["restart-writes"]) }},
	{"**nothing changes**: share of one processor", func(m *measured) string { return fmt.Sprintf("%.1f %%", m.Figures["steady-%cpu"]) }},
	{"requests a second to all members; writes there, on the hub", func(m *measured) string {
		return fmt.Sprintf("%.0f; %.0f, %.0f", m.Figures["steady-requests/s"], m.Figures["steady-writes"], m.Figures["steady-hub-writes"])
	}},
	{"**memory** with all members joined; with all copies; the most meanwhile", func(m *measured) string {
		return fmt.Sprintf("%.0f; %.0f; %.0f MB", m.Figures["joined-MB"], m.Figures["settled-MB"], m.Figures["settled-peak-MB"])
	}},
	{"of the goal of 20 KB an object and 0.5 KB a copy", func(m *measured) string { return fmt.Sprintf("%.1f ×", m.Figures["of-goal"]) }},
}

// inSeconds formats a duration for the table.
func inSeconds(s float64) string {
	if s >= 100 {
		return fmt.Sprintf("%.0f s", s)
	}
	return fmt.Sprintf("%.1f s", s)
}

// sinceMeasured formats a duration that older records may lack.
func sinceMeasured(figures map[string]float64, unit string) string {
	if s, measured := figures[unit]; measured {
		return inSeconds(s)
	}
	return "–"
}

// table returns the table in Markdown.
func table(fleets []*measured) string {
	var t strings.Builder
	t.WriteString("| members × objects |")
	for _, m := range fleets {
		fmt.Fprintf(&t, " %d × %d |", m.Members, m.Objects)
	}
	t.WriteString("\n|---|" + strings.Repeat("---|", len(fleets)) + "\n")
	for _, r := range rows {
		t.WriteString("| " + r.what + " |")
		for _, m := range fleets {
			t.WriteString(" " + r.cell(m) + " |")
		}
		t.WriteString("\n")
	}
	return t.String()
}

// Sizes of the plots, in pixels.
const (
	plotWidth, plotHeight = 300, 260
	plotLeft, plotBottom  = 56, 40
	plotTop, plotRight    = 30, 16
)

// panels are the plots, side by side: how each figure grows with the number of copies.
var panels = []struct {
	title string
	lines map[string]string // The units, by the names of the lines.
}{
	{"seconds until the last copy", map[string]string{"created": "first-s", "policy": "policy-s"}},
	{"processor seconds", map[string]string{"created": "first-cpu-s", "policy": "policy-cpu-s", "restart": "restart-cpu-s"}},
	{"memory in MB", map[string]string{"with all copies": "settled-MB", "the most": "settled-peak-MB"}},
}

// colors are the colors of the lines, in order.
var colors = []string{"#0b6bcb", "#c2410c", "#15803d"}

// plots draws the panels as SVG. Both axes are logarithmic: proportional growth has the slope of the dashed line.
func plots(fleets []*measured) string {
	var p strings.Builder
	fmt.Fprintf(&p, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11" fill="#1f2937">`+"\n",
		plotWidth*len(panels), plotHeight)
	p.WriteString(`<rect width="100%" height="100%" fill="#ffffff"/>` + "\n")
	for i, panel := range panels {
		fmt.Fprintf(&p, `<g transform="translate(%d 0)">`+"\n", i*plotWidth)
		fmt.Fprintf(&p, `<text x="%d" y="18" font-weight="bold">%s</text>`+"\n", plotLeft, panel.title)
		drawPanel(&p, fleets, panel.lines)
		p.WriteString("</g>\n")
	}
	p.WriteString("</svg>\n")
	return p.String()
}

func drawPanel(p *strings.Builder, fleets []*measured, lines map[string]string) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, m := range fleets {
		for _, unit := range lines {
			if value := m.Figures[unit]; value > 0 { // Other values were not measured.
				low, high = min(low, math.Log10(value)), max(high, math.Log10(value))
			}
		}
	}
	low, high = math.Floor(low), math.Ceil(high)
	first, last := math.Floor(math.Log10(fleets[0].copies())), math.Ceil(math.Log10(fleets[len(fleets)-1].copies()))
	last = max(last, first+1)
	x := func(copies float64) float64 {
		return plotLeft + (math.Log10(copies)-first)/(last-first)*(plotWidth-plotLeft-plotRight)
	}
	y := func(value float64) float64 {
		return plotHeight - plotBottom - (math.Log10(value)-low)/(high-low)*(plotHeight-plotBottom-plotTop)
	}
	for d := first; d <= last; d++ {
		at := x(math.Pow(10, d))
		fmt.Fprintf(p, `<path d="M%.1f %d V%d" stroke="#e5e7eb"/><text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n",
			at, plotTop, plotHeight-plotBottom, at, plotHeight-plotBottom+14, count(math.Pow(10, d)))
	}
	for d := low; d <= high; d++ {
		at := y(math.Pow(10, d))
		fmt.Fprintf(p, `<path d="M%d %.1f H%d" stroke="#e5e7eb"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n",
			plotLeft, at, plotWidth-plotRight, plotLeft-6, at+4, count(math.Pow(10, d)))
	}
	fmt.Fprintf(p, `<text x="%d" y="%d" text-anchor="middle">copies</text>`+"\n", (plotLeft+plotWidth-plotRight)/2, plotHeight-8)
	decades := min(last-first, high-low)
	fmt.Fprintf(p, `<path d="M%.1f %.1f L%.1f %.1f" stroke="#9ca3af" stroke-dasharray="4 4"/>`+"\n",
		x(math.Pow(10, first)), y(math.Pow(10, low)), x(math.Pow(10, first+decades)), y(math.Pow(10, low+decades)))
	for i, what := range slices.Sorted(maps.Keys(lines)) {
		for _, m := range fleets {
			value := m.Figures[lines[what]]
			if value <= 0 {
				continue
			}
			fmt.Fprintf(p, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"><title>%s, %d × %d: %.1f</title></circle>`+"\n",
				x(m.copies()), y(value), colors[i], what, m.Members, m.Objects, value)
		}
		fmt.Fprintf(p, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", plotLeft+8, plotTop+14+14*i, colors[i], what)
	}
}

// count formats a number in a short form.
func count(n float64) string {
	switch {
	case n >= 1e6:
		return fmt.Sprintf("%gM", n/1e6)
	case n >= 1e3:
		return fmt.Sprintf("%gk", n/1e3)
	}
	return fmt.Sprintf("%g", n)
}
