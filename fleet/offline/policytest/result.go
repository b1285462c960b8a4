package policytest

import (
	"encoding/json"
	"io"

	"refract.dev/tree"
)

// Result is the result of running tests.
type Result struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Cases are in the order of the tests.
	Cases    []Case   `json:"cases"`
	Coverage Coverage `json:"coverage"`

	proposals []proposal
}

// Case is the result of one case.
type Case struct {
	// File and Line are the place of the case.
	File string `json:"file"`
	Line int    `json:"line"`
	// Test is the name of the PolicyTest.
	Test string `json:"test"`
	Name string `json:"name"`
	// Passed reports whether there are no failures.
	Passed   bool      `json:"passed"`
	Failures []Failure `json:"failures"`
}

// Failure is one failed check on one cluster.
type Failure struct {
	// Check is the field of expect with the check. The checks "placed" and "error" apply to every case.
	Check   string `json:"check"`
	Cluster string `json:"cluster"`
	// Line is the line of the expectation, in the file of the case.
	Line int `json:"line"`
	// Path is the JSON pointer of the place in the object; empty if the failure concerns no place or the whole object.
	Path string `json:"path,omitempty"`
	// Want and Got are the expected and the actual value at the place; nil where no value is expected or present. The
	// values of a Secret are masked.
	Want any `json:"want,omitempty"`
	Got  any `json:"got,omitempty"`
	// By is the author of the last write to the place; nil if no policy wrote to it.
	By *tree.Author `json:"by,omitempty"`
	// Where has the values of the object that an expression names.
	Where []Found `json:"where,omitempty"`
	// Message is one sentence without a final period.
	Message string `json:"message"`
	// Traced reports whether By is meaningful, because the failure concerns a place of the object.
	Traced bool `json:"-"`
}

// Found is a value of the object.
type Found struct {
	Path  string       `json:"path"`
	Value any          `json:"value"`
	By    *tree.Author `json:"by,omitempty"`
}

// Count returns the numbers of passed and failed cases.
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
