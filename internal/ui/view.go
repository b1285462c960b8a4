package ui

import (
	"bytes"
	"embed"
	"fmt"
	"html/template"
	"io"
	"net/http"
	"path"
	"strings"
	"time"

	"refract.dev/internal/output"
)

//go:embed assets
var assets embed.FS

//go:embed pages/*.html
var pages embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"join":  func(texts []string) string { return strings.Join(texts, ", ") },
	"plain": func(text string) string { return plain(output.Cut(text, mostText)) },
	"whole": plain,
	"entry": func(v *view, section, address, text string) entry { return entry{address, text, v.Section == section} },
}).ParseFS(pages, "pages/*.html"))

// mostText is the maximum size of a name or message on a page, in bytes.
const mostText = 4000

// entry is an entry of the navigation.
type entry struct {
	Address, Text string
	Here          bool
}

// plain replaces control characters and characters that change the direction of text by escapes. Otherwise they could
// hide a part of the text.
func plain(text string) string {
	hidden := func(r rune) bool {
		return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r >= 0x200b && r <= 0x200f ||
			r >= 0x202a && r <= 0x202e || r >= 0x2060 && r <= 0x206f || r == 0xfeff
	}
	if !strings.ContainsFunc(text, hidden) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if hidden(r) {
			fmt.Fprintf(&b, "\\u%04x", r)
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}

// view is a page with its data.
type view struct {
	Title    string
	Section  string // The entry of the navigation to which the page belongs.
	Origin   string
	Live     bool
	Problems int // The number of problems in the input.
	At       time.Time
	Data     any

	template string
}

// Body returns the content of the page below the navigation.
func (v *view) Body() (template.HTML, error) {
	var b bytes.Buffer
	if err := templates.ExecuteTemplate(&b, v.template, v.Data); err != nil {
		return "", err
	}
	return template.HTML(b.String()), nil //nolint:gosec // The text comes from a template, which has escaped all values.
}

func (v *view) write(w io.Writer) error { return templates.ExecuteTemplate(w, "layout", v) }

func fleetView(s *Snapshot, r *http.Request) (*view, error) {
	return &view{Title: "Fleet", Section: "fleet", template: "fleet", Data: s.fleet.page(filterOf(r.URL.Query()))}, nil
}

func objectView(s *Snapshot, r *http.Request) (*view, error) {
	q := r.URL.Query()
	p := s.object(kindIn(r.PathValue("kind")), namespaceIn(r.PathValue("namespace")), r.PathValue("name"), q.Get("c"), q.Get("with"))
	if p == nil {
		return nil, errNotThere
	}
	return &view{Title: p.About, Section: "fleet", template: "object", Data: p}, nil
}

func policiesView(s *Snapshot, _ *http.Request) (*view, error) {
	return &view{Title: "Policies", Section: "policies", template: "policies", Data: s.listPolicies()}, nil
}

func policyView(s *Snapshot, r *http.Request) (*view, error) {
	p := s.policy(r.PathValue("kind"), namespaceIn(r.PathValue("namespace")), r.PathValue("name"))
	if p == nil {
		return nil, errNotThere
	}
	return &view{Title: p.About, Section: "policies", template: "policy", Data: p}, nil
}

func rolloutsView(s *Snapshot, _ *http.Request) (*view, error) {
	return &view{Title: "Rollouts", Section: "rollouts", template: "rollouts", Data: s.rollouts()}, nil
}

func clustersView(s *Snapshot, _ *http.Request) (*view, error) {
	return &view{Title: "Clusters", Section: "clusters", template: "clusters", Data: s.clusters()}, nil
}

func servicesView(s *Snapshot, r *http.Request) (*view, error) {
	return &view{Title: "Services into pods", Section: "services", template: "services", Data: s.services(r.URL.Query().Get("pod"))}, nil
}

func definitionsView(s *Snapshot, r *http.Request) (*view, error) {
	text := ""
	if r.Method == http.MethodPost {
		if err := r.ParseForm(); err != nil {
			return nil, fmt.Errorf("reading the object, of at most 1 MiB: %w", err)
		}
		text = r.PostForm.Get("object")
	}
	return &view{Title: "Custom resources", Section: "definitions", template: "definitions", Data: s.definitions(text)}, nil
}

// asset serves a static file, such as a style sheet.
func asset(w http.ResponseWriter, r *http.Request) {
	text, err := assets.ReadFile(path.Join("assets", r.PathValue("name")))
	if err != nil {
		http.NotFound(w, r)
		return
	}
	kinds := map[string]string{".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
	w.Header().Set("Content-Type", kinds[path.Ext(r.PathValue("name"))]+"; charset=utf-8")
	w.Write(text) //nolint:errcheck,gosec // An error means that the browser has closed the connection. The file is one of our own.
}
