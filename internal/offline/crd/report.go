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

	"refract.dev/internal/offline/lint"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
	"refract.dev/internal/output"
	"refract.dev/structural"
)

// Finding is one that tells what it is about. What goes without saying is empty in
// its JSON.
type Finding struct {
	structural.Finding

	Kind      string `json:"kind,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"`
	File      string `json:"file,omitempty"`

	place  manifest.Place
	object render.Object
}

// Report is what was found. Its JSON is the object that has the findings.
type Report struct {
	// Findings are in the order of the input, and of one document by path. None is an
	// empty list.
	Findings []Finding `json:"findings"`

	looked    int
	one, many string // What it looked at.
}

// add adds what was found about a document, sorted by path.
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

// Has reports whether there is a finding of this severity or a worse one.
func (r *Report) Has(least structural.Severity) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return least == structural.Warning || f.Severity == structural.Error
	})
}

// Errors returns the report without its warnings.
func (r *Report) Errors() *Report {
	errs := *r
	errs.Findings = slices.DeleteFunc(slices.Clone(r.Findings), func(f Finding) bool { return f.Severity != structural.Error })
	return &errs
}

// Check judges CustomResourceDefinitions; those of which there is an old one by the
// same name, as updates of it. What is no CustomResourceDefinition is passed over; but what
// strategy None would do to objects is no finding where a ConversionPolicy converts them.
// A finding tells its name and file if there are several; what cannot be decoded is
// one. The problems are of old definitions: one that cannot be decoded, and a second
// one of the same name. The report is of the others.
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

// byName returns the definitions by their names. A second one is a problem.
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

// check judges a definition; old may be nil. The error is old's.
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

// WriteText writes a line for each finding, FILE:LINE: SEVERITY: RULE: KIND
// NAMESPACE/NAME: PATH: MESSAGE, and one that counts.
func (r *Report) WriteText(w io.Writer) error {
	out := bufio.NewWriter(w)
	errs := 0
	for _, f := range r.Findings {
		if f.Severity == structural.Error {
			errs++
		}
		object := strings.TrimSpace(f.object.String()) // It may have no name.
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

// sarif returns the findings as those of a SARIF log, and the worst severity of each rule.
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

// meanings are what the rules of an API server say. The texts of others are in the
// findings.
var meanings = map[lint.Code]string{
	"FieldValueNotFound":     "A value names something that is not there",
	"FieldValueRequired":     "A value is missing",
	"FieldValueDuplicate":    "A value is there twice",
	"FieldValueInvalid":      "A value is not as it must be",
	"FieldValueNotSupported": "A value is not one of those that are known",
	"FieldValueForbidden":    "A value may not be here",
	"FieldValueTooLong":      "A value is too long",
	"FieldValueTooMany":      "There are too many values",
	"FieldValueTypeInvalid":  "A value is of another type",
	"InternalError":          "The API server could not judge a value",
	"UnknownField":           "A field is not known, and is dropped",
	"Malformed":              "A value cannot be decoded",
	"NotServed":              "A version is not served",
}

// explain explains rules, sorted by name.
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
