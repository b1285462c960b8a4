// Package policytest tests policies. A test is a YAML document of kind PolicyTest that describes the expected objects
// on clusters. [Load] reads tests, [Run] computes the actual objects with the engines of the controllers, and [Update]
// writes them into the tests.
//
// docs/guide/test-policies.md describes the format.
package policytest

import (
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/offline/manifest"
)

// The kinds of the documents of this package.
const (
	kind       = "PolicyTest"
	resultKind = "PolicyTestResult"
)

var apiVersion = refractv1alpha1.GroupVersion.String()

// Test is a PolicyTest.
type Test struct {
	// Place is the place of the document.
	Place manifest.Place
	Name  string
	// Inputs are the files and folders with the objects, policies and clusters, as paths that are valid in the working
	// directory.
	Inputs []string

	cases []testCase
	doc   *document
}

// testCase is one entry of spec.cases.
type testCase struct {
	name     string
	at       value
	object   value // A reference or, if inline is true, a manifest.
	inline   bool
	clusters []clusterOf
	expect   expectations
}

// clusterOf is a cluster of a case.
type clusterOf struct {
	name   string
	at     value
	inline bool // Then at is {name, labels, taints}.
}

// expectations are the expectations of a case for its object on each of its clusters.
type expectations struct {
	at       value
	absent   bool     // The cluster should not get the object.
	failure  *pattern // The expected error; nil if the object should not fail.
	warnings *warningsCheck
	checks   []check // Of an object on the cluster, in the order of the format.
}

// check is one expectation of an object on a cluster.
type check struct {
	at    value
	judge func(at *value, got *arrival) verdict
}

// verdict is the result of a check.
type verdict struct {
	failures []Failure // Empty if the check passes.
	// now is the value for which the check would pass; it is meaningful only if known is true.
	now   any
	known bool
}
