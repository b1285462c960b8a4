package crd

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"refract.dev/conversion/structural"
	"refract.dev/fleet/offline/lint"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/internal/output"
)

// Finding is a finding and the object that it is about. The JSON omits fields that are clear from the context: for
// example, the name and the file if only one definition is checked.
type Finding struct {
	structural.Finding

	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	File      string `json:"file,omitempty"`

	place  manifest.Place
	object render.Object
}

// Report is a list of findings. Its JSON is an object with the field findings.
type Report struct {
	// Findings are in the order of the input. The findings of one document are sorted by path. Without findings the
	// list is empty, not nil.
	Findings []Finding `json:"findings"`

	looked    int
	one, many string // The checked kind, as singular and plural.
}

// add adds the findings on a document, sorted by path.
func (r *Report) add(d *manifest.Document, findings []structural.Finding) {
	r.looked++
	findings = structural.Sort(findings)
	u := problem(d, "", "", "")
	version, _ := d.Content["apiVersion"].(string)
	for _, f := range findings {
		place := d.Place
		if f.Path != "" {
			place = d.At(f.Path)
		}
		r.Findings = append(r.Findings, Finding{
			Finding: f, place: place,
			object: render.Object{APIVersion: version, Kind: u.Kind, Namespace: u.Namespace, Name: u.Name},
		})
	}
}

// Has reports whether there is a finding of at least this severity.
func (r *Report) Has(least structural.Severity) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return least == structural.Warning || f.Severity == structural.Error
	})
}

// Errors returns a copy of the report without warnings.
func (r *Report) Errors() *Report {
	errs := *r
	errs.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Severity != structural.Error })
	return &errs
}

// Check checks CustomResourceDefinitions, and skips other documents. If old has a definition of the same name, the
// definition is checked as an update of the old one. If a ConversionPolicy converts the objects of a definition, the
// findings about its strategy None are omitted. If several definitions are checked, each finding has a name and a file.
// A definition that cannot be decoded is a finding. The problems are about old definitions: an old definition that
// cannot be decoded, and a second one of the same name. If an old definition cannot be decoded, the report does not
// have findings about the new one.
func Check(documents, old []manifest.Document) (*Report, []*manifest.Problem) {
	r := &Report{Findings: []Finding{}, one: Kind, many: Kind + "s"}
	before, problems := byName(old)
	policies := converted(documents)
	for i := range documents {
		d := &documents[i]
		if !IsDefinition(d) {
			continue
		}
		findings, err := check(d, before[NameOf(d)])
		if err != nil {
			problems = append(problems, problem(before[NameOf(d)], "", err.Error(), ""))
			continue
		}
		if policies[NameOf(d)] {
			findings = slices.DeleteFunc(findings, structural.Finding.OfStrategyNone)
		}
		r.add(d, findings)
	}
	if r.looked > 1 {
		for i := range r.Findings {
			f := &r.Findings[i]
			f.Name, f.File = f.object.Name, filepath.ToSlash(f.place.File)
		}
	}
	return r, problems
}

// byName returns the definitions by name. It reports a second definition of the same name as a problem.
func byName(documents []manifest.Document) (map[string]*manifest.Document, []*manifest.Problem) {
	named := map[string]*manifest.Document{}
	var problems []*manifest.Problem
	for i := range documents {
		d := &documents[i]
		if !IsDefinition(d) {
			continue
		}
		if first, ok := named[NameOf(d)]; ok {
			problems = append(problems, problem(d, "", fmt.Sprintf("is there already, at %s", first.Place), ""))
			continue
		}
		named[NameOf(d)] = d
	}
	return named, problems
}

// check checks a definition. old may be nil. An error means that old cannot be decoded.
func check(d, old *manifest.Document) ([]structural.Finding, error) {
	findings, err := structural.Check(d.Content)
	if err != nil {
		return undecodable(d.Content, err), nil
	}
	if old == nil {
		return findings, nil
	}
	return structural.CheckUpdate(d.Content, old.Content)
}

// WriteText writes one line for each finding, FILE:LINE: SEVERITY: RULE: KIND NAMESPACE/NAME: PATH: MESSAGE, and one
// line with the totals.
func (r *Report) WriteText(w io.Writer) error {
	out := bufio.NewWriter(w)
	errs := 0
	for _, f := range r.Findings {
		if f.Severity == structural.Error {
			errs++
		}
		object := strings.TrimSpace(f.object.String()) // The name may be empty.
		fmt.Fprintf(out, "%s:%d: %s: %s: %s: %s\n", f.place.File, f.place.Line, f.Severity, f.Rule, object, f.Finding)
	}
	fmt.Fprintf(out, "%s, %s in %s\n", output.Count(errs, "error", "errors"),
		output.Count(len(r.Findings)-errs, "warning", "warnings"), output.Count(r.looked, r.one, r.many))
	return out.Flush()
}

// WriteJSON writes {"findings":[…]}.
func (r *Report) WriteJSON(w io.Writer) error { return writeJSON(w, r) }

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// WriteSARIF writes the findings as a SARIF log.
func (r *Report) WriteSARIF(w io.Writer) error {
	findings, worst := r.sarif()
	return lint.WriteSARIFOf(w, explain(worst), findings)
}

// sarif returns the findings for a SARIF log, and the worst severity of each rule.
func (r *Report) sarif() ([]lint.Finding, map[lint.Code]lint.Severity) {
	findings := make([]lint.Finding, len(r.Findings))
	worst := map[lint.Code]lint.Severity{}
	for i, f := range r.Findings {
		code, severity := lint.Code(f.Rule), lint.Severity(f.Severity)
		findings[i] = lint.Finding{Code: code, Severity: severity, Place: f.place, Object: &r.Findings[i].object, Field: f.Path, Message: f.Message}
		if worst[code] != lint.Error {
			worst[code] = severity
		}
	}
	return findings, worst
}

// meanings are the titles of rules. The details are in the messages of the findings.
var meanings = map[lint.Code]string{
	"FieldValueNotFound":     "A value refers to something that does not exist",
	"FieldValueRequired":     "A value is missing",
	"FieldValueDuplicate":    "A value is a duplicate",
	"FieldValueInvalid":      "A value is invalid",
	"FieldValueNotSupported": "A value is not supported",
	"FieldValueForbidden":    "A value is forbidden",
	"FieldValueTooLong":      "A value is too long",
	"FieldValueTooMany":      "There are too many values",
	"FieldValueTypeInvalid":  "A value is of the wrong type",
	"InternalError":          "The API server could not validate a value",
	"UnknownField":           "A field is unknown, and is dropped",
	"Malformed":              "A value cannot be decoded",
	"NotServed":              "A version is not served",
}

// explain returns an explanation for each rule, sorted by name.
func explain(rules map[lint.Code]lint.Severity) []lint.Explanation {
	codes := make([]lint.Explanation, 0, len(rules))
	for code, severity := range rules {
		title := meanings[code]
		if title == "" {
			title = "The manifest breaks the rule " + string(code)
		}
		codes = append(codes, lint.Explanation{Code: code, Severity: severity, Title: title, Text: title + "."})
	}
	slices.SortFunc(codes, func(a, b lint.Explanation) int { return cmp.Compare(a.Code, b.Code) })
	return codes
}
