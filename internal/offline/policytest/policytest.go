// Package policytest tests policies. A test is a YAML document of kind PolicyTest
// that says what objects are to be on clusters; [Load] reads tests, [Run] finds
// out with the engines of the controllers what the objects are, and [Update]
// writes that into the tests.
//
// The format: docs/guide/test-policies.md.
package policytest

import (
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/offline/manifest"
)

// What the documents of this package say that they are.
const (
	kind       = "PolicyTest"
	resultKind = "PolicyTestResult"
)

var apiVersion = refractv1alpha1.GroupVersion.String()

// Test is a PolicyTest.
type Test struct {
	// Place is where the document stands.
	Place manifest.Place
	Name  string
	// Inputs are the files and folders with the objects, policies and clusters:
	// paths as the program finds them.
	Inputs []string

	cases []testCase
	doc   *document
}

// testCase is one entry of spec.cases.
type testCase struct {
	name     string
	at       value
	object   value // A reference or, if inline, a manifest.
	inline   bool
	clusters []clusterOf
	expect   expectations
}

// clusterOf is a cluster that a case is about.
type clusterOf struct {
	name   string
	at     value
	inline bool // Then at is {name, labels, taints}.
}

// expectations are what a case expects of its object on each of its clusters.
type expectations struct {
	at       value
	absent   bool     // The object is not to be there.
	failure  *pattern // The error that it is to fail with; nil if it is not to fail.
	warnings *warningsCheck
	checks   []check // Of the object that is there, in the order of the format.
}

// check is one expectation of an object that is on a cluster.
type check struct {
	at    value
	judge func(at *value, got *arrival) verdict
}

// verdict is the result of a check.
type verdict struct {
	failures []Failure // None if all is as expected.
	// now is what would have to be expected instead; it means nothing unless known.
	now   any
	known bool
}
