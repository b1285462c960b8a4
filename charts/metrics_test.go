package main

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

// judged are metrics of the guides without an alert, because a person must judge them, with the reason.
var judged = map[string]string{
	"refract_member_writes_total": "whether nothing changes on the hub is not measured",
}

// ours finds the metrics of Refract in a text, without the suffixes that Prometheus adds to the name of a histogram.
var ours = regexp.MustCompile(`\b(refract_[a-z_]+?|apiserver_[a-z_]+)(?:_bucket|_sum|_count)?\b`)

func metricsIn(text string) []string {
	var all []string
	for _, m := range ours.FindAllStringSubmatch(text, -1) {
		name := m[1]
		if strings.HasPrefix(name, "apiserver_") {
			name = m[0] // One of these metrics ends in such a suffix itself.
		}
		all = append(all, name)
	}
	return all
}

// measured returns the metrics that the code defines.
func measured(t *testing.T) map[string]bool {
	t.Helper()
	all, quoted := map[string]bool{}, regexp.MustCompile(`"(refract_[a-z_]+)"`)
	for _, dir := range []string{"conversion", "fleet", "injection", "internal", "kit"} {
		err := filepath.WalkDir(filepath.Join(root, dir), func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			for _, m := range quoted.FindAllSubmatch(text, -1) {
				all[string(m[1])] = true
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return all
}

// checkQuery fails unless an expression is valid PromQL and refers only to existing metrics.
func checkQuery(t *testing.T, of, text string, known map[string]bool) {
	t.Helper()
	if _, err := parser.ParseExpr(strings.ReplaceAll(text, "$__rate_interval", "5m")); err != nil {
		t.Errorf("%s: %v: %s", of, err, text)
	}
	names := metricsIn(text)
	if len(names) == 0 {
		t.Errorf("%s is about no metric: %s", of, text)
	}
	for _, name := range names {
		if !known[name] && !strings.HasPrefix(name, "apiserver_") {
			t.Errorf("%s: Refract has no metric %s", of, name)
		}
	}
}

// TestAlerts: Prometheus can load each alert, and each alert uses existing metrics. The guides' tables and the alerts
// cover the same metrics.
func TestAlerts(t *testing.T) {
	known := measured(t)
	alerted, names := map[string]bool{}, map[string]bool{}
	all, _, err := render(t, load(t, chartDir), parse(t, everything), "")
	if err != nil {
		t.Fatal(err)
	}
	rule := &monitoringv1.PrometheusRule{}
	if err := yaml.UnmarshalStrict([]byte(all["PrometheusRule/refract"].text), rule); err != nil {
		t.Fatal(err)
	}
	for _, group := range rule.Spec.Groups {
		for _, r := range group.Rules {
			checkQuery(t, r.Alert, r.Expr.String(), known)
			for _, name := range metricsIn(r.Expr.String()) {
				alerted[name] = true
			}
			if r.Alert == "" || names[r.Alert] || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
				t.Errorf("%q: want a name of its own, a severity, a summary and a description, got %+v", r.Alert, r)
			}
			names[r.Alert] = true
		}
	}
	guides := ""
	row := regexp.MustCompile("(?m)^\\| `(refract_[a-z_]+)` \\|[^|\n]*\\|([^|\n]*)\\|$")
	for _, guide := range []string{"monitor.md", "operate-injection.md", "serve-conversions.md"} {
		text, err := os.ReadFile(filepath.Join(root, "docs", "guide", guide))
		if err != nil {
			t.Fatal(err)
		}
		rows := row.FindAllStringSubmatch(string(text), -1)
		if len(rows) < 5 {
			t.Errorf("%s: want a table of metrics, got %d rows", guide, len(rows))
		}
		for _, m := range rows {
			_, exempt := judged[m[1]]
			if wanted := strings.TrimSpace(m[2]) != "" && !exempt; wanted != alerted[m[1]] {
				t.Errorf("%s wants an alert for %s: %t, the chart has one: %t", guide, m[1], wanted, alerted[m[1]])
			}
		}
		guides += string(text)
	}
	for name := range alerted {
		if !strings.Contains(guides, "`"+name+"`") {
			t.Errorf("there is an alert for %s, and no guide says what it is", name)
		}
	}
}

// TestDashboard: Grafana can load the dashboard. Panels have unique numbers and positions, and queries are PromQL with
// existing metrics.
func TestDashboard(t *testing.T) {
	type target struct{ RefID, Expr, LegendFormat string }
	type place struct{ H, W, X, Y int }
	type panel struct {
		ID                       int
		Type, Title, Description string
		GridPos                  place
		Targets                  []target
	}
	var dashboard struct {
		UID, Title    string
		SchemaVersion int
		Templating    struct {
			List []struct{ Name, Type, Query string }
		}
		Panels []panel
	}
	all, _, err := render(t, load(t, chartDir), parse(t, everything), "")
	if err != nil {
		t.Fatal(err)
	}
	text, _ := at(all["ConfigMap/refract-dashboard"].Object, "data.refract\x00json")
	if err := json.Unmarshal([]byte(text.(string)), &dashboard); err != nil {
		t.Fatal(err)
	}
	sources := dashboard.Templating.List
	if dashboard.UID == "" || dashboard.Title == "" || dashboard.SchemaVersion == 0 || len(sources) != 1 || sources[0].Name != "datasource" {
		t.Errorf("want a dashboard with a name and a source of data, got %+v", dashboard)
	}
	known := measured(t)
	for i, p := range dashboard.Panels {
		if slices.ContainsFunc(dashboard.Panels[:i], func(q panel) bool { return q.ID == p.ID }) {
			t.Errorf("%s: another panel has the number %d", p.Title, p.ID)
		}
		for _, q := range dashboard.Panels[:i] {
			a, b := p.GridPos, q.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s lies on %s", p.Title, q.Title)
			}
		}
		if p.Title == "" || p.GridPos.X+p.GridPos.W > 24 || (p.Type != "row") != (len(p.Targets) > 0 && p.Description != "") {
			t.Errorf("want a title, a place, and queries with a description unless it is a row, got %+v", p)
		}
		for _, query := range p.Targets {
			checkQuery(t, p.Title, query.Expr, known)
		}
	}
	if len(dashboard.Panels) < 10 {
		t.Errorf("want panels, got %d", len(dashboard.Panels))
	}
}
