// Package junit writes results as JUnit XML, which CI systems display.
package junit

import (
	"encoding/xml"
	"fmt"
	"io"
)

// Suite is a group of cases.
type Suite struct {
	// Name describes the suite, and File is the file that defines it.
	Name, File string
	Cases      []Case
}

// Case is one test.
type Case struct {
	// Class is the group in which CI systems show the case.
	Class, Name string
	// File and Line are the position of the case.
	File string
	Line int
	// Failure is nil if the case passed.
	Failure *Failure
}

// Failure is the reason why a case failed.
type Failure struct {
	// Message is one line. Type is the kind of the failure, and Text the complete description.
	Message, Type, Text string
}

// Source: https://github.com/testmoapp/junitxml. The file has no times, so that equal results give equal files.
type suitesXML struct {
	XMLName  xml.Name   `xml:"testsuites"`
	Name     string     `xml:"name,attr"`
	Tests    int        `xml:"tests,attr"`
	Failures int        `xml:"failures,attr"`
	Suites   []suiteXML `xml:"testsuite"`
}

type suiteXML struct {
	Name     string    `xml:"name,attr"`
	File     string    `xml:"file,attr"`
	Tests    int       `xml:"tests,attr"`
	Failures int       `xml:"failures,attr"`
	Cases    []caseXML `xml:"testcase"`
}

type caseXML struct {
	Class   string      `xml:"classname,attr"`
	Name    string      `xml:"name,attr"`
	File    string      `xml:"file,attr"`
	Line    int         `xml:"line,attr"`
	Failure *failureXML `xml:"failure"`
}

type failureXML struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr"`
	Text    string `xml:",chardata"`
}

// Write writes the suites as JUnit XML. name is the name of the command with these results.
func Write(w io.Writer, name string, suites []Suite) error {
	all := suitesXML{Name: name}
	for _, s := range suites {
		suite := suiteXML{Name: s.Name, File: s.File, Tests: len(s.Cases)}
		for i := range s.Cases {
			c := &s.Cases[i]
			to := caseXML{Class: c.Class, Name: c.Name, File: c.File, Line: c.Line}
			if c.Failure != nil {
				suite.Failures++
				to.Failure = &failureXML{Message: c.Failure.Message, Type: c.Failure.Type, Text: c.Failure.Text}
			}
			suite.Cases = append(suite.Cases, to)
		}
		all.Tests += suite.Tests
		all.Failures += suite.Failures
		all.Suites = append(all.Suites, suite)
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
