package lint

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/internal/output"
)

// WriteText writes a line for each finding, FILE:LINE: SEVERITY: CODE: MESSAGE, with indented lines for the objects and
// clusters concerned, for further places and for hints; then a line with the totals.
func WriteText(w io.Writer, r *Result) error {
	out := bufio.NewWriter(w)
	for i := range r.Findings {
		f := &r.Findings[i]
		fmt.Fprintln(out, f)
		for _, line := range f.details() {
			fmt.Fprintf(out, "  %s\n", line)
		}
	}
	s := &r.Summary
	fmt.Fprintf(out, "%s, %s in %s, %s and %s\n",
		output.Count(s.Errors, "error", "errors"), output.Count(s.Warnings, "warning", "warnings"),
		output.Count(s.Objects, "object", "objects"), output.Count(s.Policies, "policy", "policies"), output.Count(s.Clusters, "cluster", "clusters"))
	return out.Flush()
}

// details returns the lines below the sentence of a finding.
func (f *Finding) details() []string {
	var lines []string
	if len(f.Objects) > 0 && (f.Object == nil || len(f.Objects) > 1) {
		lines = append(lines, "objects: "+render.Few(f.Objects))
	}
	if len(f.Clusters) > 0 {
		lines = append(lines, "clusters: "+render.Few(f.Clusters))
	}
	if len(f.Also) > 0 {
		places := make([]string, len(f.Also))
		for i, p := range f.Also {
			places[i] = position(p)
		}
		lines = append(lines, "also: "+render.Few(places))
	}
	if f.Hint != "" {
		lines = append(lines, "hint: "+f.Hint)
	}
	return lines
}

// sentence returns MANIFEST: FIELD: MESSAGE.
func (f *Finding) sentence() string {
	var parts []string
	if name := f.manifest(); name != "" {
		parts = append(parts, name)
	}
	if f.Field != "" {
		parts = append(parts, f.Field)
	}
	return strings.Join(append(parts, f.Message), ": ")
}

// manifest names the manifest that the finding concerns.
func (f *Finding) manifest() string {
	var o render.Object
	switch {
	case f.Policy != nil:
		o = render.Object{Kind: f.Policy.Kind, Namespace: f.Policy.Namespace, Name: f.Policy.Name}
	case f.Object != nil:
		o = *f.Object
	default:
		return ""
	}
	if o.Name == "" {
		return o.Kind
	}
	return strings.TrimSpace(o.String())
}

// position formats a place like compilers, FILE:LINE.
func position(p manifest.Place) string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// WriteJSON writes the result as one JSON document.
func WriteJSON(w io.Writer, r *Result) error { return writeJSON(w, r) }

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
