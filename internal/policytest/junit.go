package policytest

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

// Source: https://github.com/testmoapp/junitxml. There are no times, so that the
// same results are the same bytes.
type junitSuites struct {
	XMLName  xml.Name     `xml:"testsuites"`
	Name     string       `xml:"name,attr"`
	Tests    int          `xml:"tests,attr"`
	Failures int          `xml:"failures,attr"`
	Suites   []junitSuite `xml:"testsuite"`
}

type junitSuite struct {
	Name     string      `xml:"name,attr"`
	File     string      `xml:"file,attr"`
	Tests    int         `xml:"tests,attr"`
	Failures int         `xml:"failures,attr"`
	Cases    []junitCase `xml:"testcase"`
}

type junitCase struct {
	Class   string        `xml:"classname,attr"`
	Name    string        `xml:"name,attr"`
	File    string        `xml:"file,attr"`
	Line    int           `xml:"line,attr"`
	Failure *junitFailure `xml:"failure"`
}

type junitFailure struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the result as JUnit XML: a suite for each test, whose cases
// have the file as their class.
func WriteJUnit(w io.Writer, r *Result) error {
	all := junitSuites{Name: "refract test", Tests: len(r.Cases)}
	_, all.Failures = r.Count()
	for i := range r.Cases {
		c := &r.Cases[i]
		if n := len(all.Suites); n == 0 || all.Suites[n-1].Name != c.Test || all.Suites[n-1].File != c.File {
			all.Suites = append(all.Suites, junitSuite{Name: c.Test, File: c.File})
		}
		s := &all.Suites[len(all.Suites)-1]
		s.Tests++
		to := junitCase{Class: c.File, Name: c.Name, File: c.File, Line: c.Line}
		if !c.Passed {
			s.Failures++
			f := &c.Failures[0]
			to.Failure = &junitFailure{
				Message: f.Cluster + ": " + f.Message, Type: f.Check, Text: strings.Join(c.lines(), "\n"),
			}
		}
		s.Cases = append(s.Cases, to)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(all); err != nil {
		return fmt.Errorf("writing XML: %w", err)
	}
	_, err := io.WriteString(w, "\n")
	return err
}
