package policytest

import (
	"io"
	"strings"

	"refract.dev/internal/output/junit"
)

// WriteJUnit writes the result as JUnit XML: a suite for each test. The class of the cases is the file.
func WriteJUnit(w io.Writer, r *Result) error {
	var suites []junit.Suite
	for i := range r.Cases {
		c := &r.Cases[i]
		if n := len(suites); n == 0 || suites[n-1].Name != c.Test || suites[n-1].File != c.File {
			suites = append(suites, junit.Suite{Name: c.Test, File: c.File})
		}
		to := junit.Case{Class: c.File, Name: c.Name, File: c.File, Line: c.Line}
		if !c.Passed {
			f := &c.Failures[0]
			to.Failure = &junit.Failure{
				Message: f.Cluster + ": " + f.Message, Type: f.Check, Text: strings.Join(c.lines(), "\n"),
			}
		}
		s := &suites[len(suites)-1]
		s.Cases = append(s.Cases, to)
	}
	return junit.Write(w, "refract test", suites)
}
