package policytest

import (
	"encoding/json"
	"io"

	"refract.dev/tree"
)

// Result is what came of some tests.
type Result struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Cases are in the order of the tests.
	Cases    []Case   `json:"cases"`
	Coverage Coverage `json:"coverage"`

	proposals []proposal
}

// Case is what came of one case.
type Case struct {
	// File and Line are where the case stands.
	File string `json:"file"`
	Line int    `json:"line"`
	// Test is the name of its PolicyTest.
	Test string `json:"test"`
	Name string `json:"name"`
	// Passed is whether there are no failures.
	Passed   bool      `json:"passed"`
	Failures []Failure `json:"failures"`
}

// Failure is one thing on one cluster that is not as expected.
type Failure struct {
	// Check is the field of expect that asks for it; "placed" and "error" are asked
	// for by every case.
	Check   string `json:"check"`
	Cluster string `json:"cluster"`
	// Line is where the expectation stands, in the file of the case.
	Line int `json:"line"`
	// Path is the JSON pointer of the place in the object; empty when none is
	// concerned, or the whole object is.
	Path string `json:"path,omitempty"`
	// Want and Got are what was expected at the place and what is there; nothing
	// where that is so. The values of a Secret are not shown.
	Want any `json:"want,omitempty"`
	Got  any `json:"got,omitempty"`
	// By is who wrote last to the place; nil if no policy did.
	By *tree.Author `json:"by,omitempty"`
	// Where is what an expression found in the object.
	Where []Found `json:"where,omitempty"`
	// Message is one sentence without an end mark.
	Message string `json:"message"`
	// Traced is whether By says something: a place of the object is concerned.
	Traced bool `json:"-"`
}

// Found is a value of the object.
type Found struct {
	Path  string       `json:"path"`
	Value any          `json:"value"`
	By    *tree.Author `json:"by,omitempty"`
}

// Count returns how many cases passed and how many failed.
func (r *Result) Count() (passed, failed int) {
	for i := range r.Cases {
		if r.Cases[i].Passed {
			passed++
		}
	}
	return passed, len(r.Cases) - passed
}

// WriteJSON writes the result as one JSON document.
func WriteJSON(w io.Writer, r *Result) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}
