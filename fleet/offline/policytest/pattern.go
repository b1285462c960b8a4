package policytest

import (
	"regexp"
	"slices"
	"strings"
)

// pattern is a text that another text must contain or, between slashes, a regular expression that the other text must
// match.
type pattern struct {
	at      value
	text    string
	matches *regexp.Regexp // Nil for text.
}

// newPattern returns the pattern in a value, and reports an invalid one.
func newPattern(at *value) *pattern {
	p := &pattern{at: *at}
	p.text, _ = at.text()
	if len(p.text) < 2 || p.text[0] != '/' || p.text[len(p.text)-1] != '/' {
		return p
	}
	var err error
	if p.matches, err = regexp.Compile(p.text[1 : len(p.text)-1]); err != nil {
		at.report("is no regular expression: "+strings.TrimPrefix(err.Error(), "error parsing regexp: "), "")
	}
	return p
}

func (p *pattern) in(text string) bool {
	if p.matches != nil {
		return p.matches.MatchString(text)
	}
	return strings.Contains(text, p.text)
}

// warningsCheck verifies warnings: each pattern must match a warning. Without patterns, there must be no warnings.
type warningsCheck struct {
	at       value
	patterns []*pattern
}

func newWarningsCheck(at *value) *warningsCheck {
	w := &warningsCheck{at: *at}
	for _, item := range at.items() {
		w.patterns = append(w.patterns, newPattern(&item))
	}
	return w
}

func (w *warningsCheck) judge(got *arrival) []Failure {
	warnings := got.warnings()
	if len(w.patterns) == 0 {
		var failures []Failure
		for _, text := range warnings {
			failures = append(failures, got.failure(&w.at, "there is a warning: "+text))
		}
		return failures
	}
	var failures []Failure
	for _, p := range w.patterns {
		if slices.ContainsFunc(warnings, p.in) {
			continue
		}
		there := "there is none"
		if len(warnings) > 0 {
			there = "there is: " + strings.Join(warnings, "; ")
		}
		failures = append(failures, got.failure(&p.at, "no warning has "+quote(p.text)+"; "+there))
	}
	return failures
}
