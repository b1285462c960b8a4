package crd

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"sigs.k8s.io/yaml"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/verify"
	"refract.dev/fleet/offline/lint"
	"refract.dev/internal/output"
	"refract.dev/internal/output/junit"
)

// WriteJSON writes the verification as one JSON document.
func (v *Verification) WriteJSON(w io.Writer) error { return writeJSON(w, v) }

// WriteText writes the findings of the compiler, a line for each law, the violations, and a line with the totals. Each
// violation has the smallest object that shows it.
func (v *Verification) WriteText(w io.Writer) error {
	if len(v.Findings) > 0 {
		if err := v.compiled.WriteText(w); err != nil {
			return err
		}
	}
	if v.Result == nil {
		return nil
	}
	out := bufio.NewWriter(w)
	if len(v.Findings) > 0 {
		fmt.Fprintln(out)
	}
	fmt.Fprintf(out, "%s %s for %s", PolicyKind, v.Policy, v.Definition)
	if v.Against != "" {
		fmt.Fprintf(out, ", and %s", v.Against)
	}
	fmt.Fprintf(out, ": seed %d\n\n", v.Result.Seed)
	for i := range v.Result.Laws {
		l := &v.Result.Laws[i]
		fmt.Fprintf(out, "  %s %-14s %s\n", mark(l), l.Law, output.Count(l.Checks, "check", "checks"))
	}
	for i := range v.Result.Laws {
		for j := range v.Result.Laws[i].Violations {
			if err := v.writeViolation(out, &v.Result.Laws[i].Violations[j]); err != nil {
				return err
			}
		}
	}
	fmt.Fprintf(out, "\n%s, %s: %s\n", output.Count(v.Result.Objects, "object", "objects"),
		output.Count(v.Result.Checks, "check", "checks"), output.Count(v.violations(), "violation", "violations"))
	if n := v.Result.Refused; n > 0 {
		fmt.Fprintf(out, "%s left out: an API server would not accept them\n", output.Count(n, "more generated object is", "more generated objects are"))
	}
	return out.Flush()
}

// mark returns the mark of a law. If nothing was checked for the law, the mark is "-".
func mark(l *verify.LawResult) string {
	switch {
	case len(l.Violations) > 0:
		return "✗"
	case l.Checks == 0:
		return "-"
	default:
		return "✔"
	}
}

func (v *Verification) writeViolation(out *bufio.Writer, w *verify.Violation) error {
	at := v.at(w)
	fmt.Fprintf(out, "\n%s:%d: %s: %s\n  %s → %s: %s\n", at.File, at.Line, w.Law, ruleText(w), w.From, w.To, summaries()[w.Law])
	text, err := v.evidence(w, mostLines)
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		fmt.Fprintf(out, "  %s", line)
	}
	return nil
}

// mostLines is the maximum number of lines of an object, and the maximum number of recorded objects, in a text. Longer
// lists are hard to read.
const mostLines = 20

// evidence returns the recorded objects that violate a law. It also returns, as YAML, the smallest violating object
// with the actual and the expected result. Each part is cut after its first lines; with most 0, nothing is cut.
func (v *Verification) evidence(w *verify.Violation, most int) (string, error) {
	var text, found strings.Builder
	for _, o := range v.objectsOf(w) {
		fmt.Fprintf(&found, "found in %s\n", &o)
	}
	text.WriteString(firstLines(found.String(), most))
	for _, part := range []struct {
		name  string
		value any
	}{{"object", w.Object}, {"got", w.Got}, {"want", w.Want}} {
		if part.value == nil {
			continue
		}
		said, err := yaml.Marshal(map[string]any{part.name: part.value})
		if err != nil {
			return "", fmt.Errorf("writing YAML: %w", err)
		}
		text.WriteString(firstLines(string(said), most))
	}
	return text.String(), nil
}

// firstLines returns the first lines of a text and the number of the other lines. If most is 0, or if only one line
// would be cut, it returns the whole text.
func firstLines(text string, most int) string {
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	left := len(lines) - most
	if most == 0 || left <= 1 {
		return text
	}
	return strings.Join(lines[:most], "") + fmt.Sprintf("  … %d more lines (-o json has all)\n", left)
}

// compileCase is the name of the JUnit case of a policy that does not compile. The laws of such a policy are not
// checked.
const compileCase = "Compile"

// WriteJUnit writes the verification as JUnit XML, with a case for each law. If the policy does not compile, the only
// case is Compile.
func (v *Verification) WriteJUnit(w io.Writer) error {
	file := v.document.Place.File
	suite := junit.Suite{Name: v.Policy, File: file}
	if v.Result == nil {
		c := junit.Case{Class: file, Name: compileCase, File: file, Line: v.document.Place.Line}
		var lines []string
		for _, f := range v.Findings {
			if f.Severity == structural.Error {
				lines = append(lines, fmt.Sprintf("%s:%d: %s", f.place.File, f.place.Line, f.Finding))
			}
		}
		if len(lines) > 0 {
			c.Failure = &junit.Failure{Message: "the policy does not compile", Type: compileCase, Text: strings.Join(lines, "\n")}
		}
		suite.Cases = []junit.Case{c}
		return junit.Write(w, "refract crd verify", []junit.Suite{suite})
	}
	for i := range v.Result.Laws {
		c, err := v.junitCase(&v.Result.Laws[i])
		if err != nil {
			return err
		}
		suite.Cases = append(suite.Cases, c)
	}
	return junit.Write(w, "refract crd verify", []junit.Suite{suite})
}

func (v *Verification) junitCase(l *verify.LawResult) (junit.Case, error) {
	file := v.document.Place.File
	c := junit.Case{Class: file, Name: string(l.Law), File: file, Line: v.document.Place.Line}
	var texts []string
	for i := range l.Violations {
		text, err := v.evidence(&l.Violations[i], 0)
		if err != nil {
			return c, err
		}
		texts = append(texts, ruleText(&l.Violations[i])+"\n"+text)
	}
	if len(texts) > 0 {
		first := &l.Violations[0]
		c.Line = v.at(first).Line
		c.Failure = &junit.Failure{Message: ruleText(first), Type: string(l.Law), Text: strings.TrimSuffix(strings.Join(texts, "\n"), "\n")}
	}
	return c, nil
}

// WriteSARIF writes the findings and violations as a SARIF log. If the rule that set the value is known, it is the
// place of the violation.
func (v *Verification) WriteSARIF(w io.Writer) error {
	findings, worst := v.compiled.sarif()
	codes := explain(worst)
	about := summaries()
	if v.Result == nil {
		return lint.WriteSARIFOf(w, codes, findings)
	}
	for i := range v.Result.Laws {
		l := &v.Result.Laws[i]
		if len(l.Violations) == 0 {
			continue
		}
		title := strings.TrimSuffix(about[l.Law], ".")
		codes = append(codes, lint.Explanation{Code: lint.Code(l.Law), Severity: lint.Error, Title: title, Text: title + "."})
		for j := range l.Violations {
			one := &l.Violations[j]
			text, err := v.evidence(one, 0)
			if err != nil {
				return err
			}
			findings = append(findings, lint.Finding{
				Code: lint.Code(l.Law), Severity: lint.Error, Place: v.at(one), Object: v.object(), Field: one.Rule, Path: one.Path,
				Message: violationText(one) + "\n" + strings.TrimSuffix(text, "\n"),
			})
		}
	}
	return lint.WriteSARIFOf(w, codes, findings)
}
