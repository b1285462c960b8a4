package verify

import (
	"context"

	"refract.dev/conversion/structural"
)

// Subject is the conversion to verify.
type Subject interface {
	// Convert returns the objects in an API version, GROUP/VERSION: either all objects, in order, or an error. It must
	// not modify its argument. An error about an answer that no API server would accept wraps [ErrContract].
	Convert(ctx context.Context, objects [][]byte, apiVersion string) ([][]byte, error)
}

// Knowledge is information about a conversion that its behavior does not show. Versions are names such as v1beta1.
// Places are written as in a ConversionPolicy, with [*] for the elements of a list or table.
type Knowledge interface {
	// Normalize returns the normal form of an object of a version for conversions to the other version. Objects with
	// equal normal forms mean the same. It must not modify obj.
	Normalize(version, other string, obj map[string]any) (map[string]any, error)
	// MayLose returns the places, in version, of values that may get lost or change on the way to the other version and
	// back if no annotation may be written.
	MayLose(version, other string) []string
	// RuleAt returns the name of the rule that converts the value at a path of version, such as spec.ports[0].name; ""
	// if no rule does.
	RuleAt(version, other, path string) string
}

// Options select the objects and laws of a verification.
type Options struct {
	// Definition has the schemas.
	Definition *structural.Definition
	// Hub and Versions are the versions to convert between. Versions includes the hub, in any order.
	Hub      string
	Versions []string
	// Knowledge may be nil. Objects then mean the same only if they are equal, and no value may get lost.
	Knowledge Knowledge
	// Laws are the laws to check, all if empty.
	Laws []Law
	// Seed is the seed for generated objects.
	Seed uint64
	// Objects is the number of generated objects for each version: 0 means 1,000, a negative number none.
	Objects int
	// Leaves bounds the leaves of the small objects, which are tried first and completely: 0 means 3, a negative number
	// no small objects. At most half of the objects are small ones.
	Leaves int
	// Recorded are real objects in any of the versions. They are checked first, with all laws, valid or not. They are
	// not modified.
	Recorded []map[string]any
	// Violations is the maximum number of violations for each law; 0 means 1. A law with that many violations is not
	// checked with further generated objects. No two violations have the same rule or, if no rule is known, the same
	// place.
	Violations int
}

// The defaults of Options.
const (
	defaultObjects    = 1000
	defaultLeaves     = 3
	defaultViolations = 1
)

// Report has the results of a verification. It depends only on the arguments of Run, provided that the time was
// sufficient and the subject is deterministic.
type Report struct {
	Seed uint64 `json:"seed"`
	// Objects is the number of checked objects. Refused is the number of generated objects that were not checked
	// because an API server would reject them.
	Objects int `json:"objects"`
	Refused int `json:"refused"`
	// Checks is the number of checks of one law with one object.
	Checks int `json:"checks"`
	// Invalid lists the recorded objects that an API server would now reject, in order.
	Invalid []Invalid `json:"invalid,omitempty"`
	// Versions are in the order of the options.
	Versions []VersionResult `json:"versions"`
	// Laws are the selected laws, in the order of [Laws]. A law without checks has no result, such as Triangle with
	// only two versions.
	Laws []LawResult `json:"laws"`
	// Complete is false if the time ended before all checks.
	Complete bool `json:"complete"`
}

// Invalid is a recorded object that is not valid in its version.
type Invalid struct {
	// Recorded is its index in Options.Recorded.
	Recorded int `json:"recorded"`
	// Why is the message of an API server.
	Why string `json:"why"`
}

// VersionResult describes the objects of a version.
type VersionResult struct {
	Version string `json:"version"`
	Objects int    `json:"objects"`
	Refused int    `json:"refused"`
	// Why is the message of an API server for the last rejected object.
	Why string `json:"why,omitempty"`
	// Unconverted is the number of objects with a part that is kept because it cannot be converted, and Lacks describes
	// the missing part of the first one: see [convert.Keep]. This violates no law.
	Unconverted int    `json:"unconverted,omitempty"`
	Lacks       string `json:"lacks,omitempty"`
	// Leaves is the largest n such that the checked objects include all small objects with up to n leaves; -1 if there
	// are too many even without leaves.
	Leaves int `json:"leaves"`
}

// LawResult is the result for one law.
type LawResult struct {
	Law        Law         `json:"law"`
	Checks     int         `json:"checks"`
	Violations []Violation `json:"violations"`
}

// Violation is an object that violates a law.
type Violation struct {
	Law Law `json:"law"`
	// From is the version of Object, and To the version that it is converted to.
	From string `json:"from"`
	To   string `json:"to"`
	// Path is the path of the violation, such as spec.ports[0].name. It is a path in From, or in To if the law is about
	// the converted object. It is empty for the whole object.
	Path string `json:"path"`
	// Rule is the rule that converts the value at Path, if it is known.
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message"`
	// Recorded are the indexes, in Options.Recorded, of the real objects that violate the law in this way, in order;
	// nil for none.
	Recorded []int `json:"recorded,omitempty"`
	// Object is the smallest object that was found.
	Object map[string]any `json:"object"`
	// Got and Want are the actual and expected values at Path; nil if the value is absent or there is no comparison.
	Got  any `json:"got,omitempty"`
	Want any `json:"want,omitempty"`
}

// Run checks whether a subject keeps the laws: with recorded objects, then with small ones, then with random ones. A
// violation has the smallest object found that violates the law in the same way.
//
// Run stops when ctx ends. This is not an error: the report shows the progress. The errors are incompatible options,
// recorded objects that cannot be read, and the failure to generate even one valid object.
func Run(ctx context.Context, s Subject, o Options) (*Report, error) {
	r, err := newRunner(ctx, s, o)
	if err != nil {
		return nil, err
	}
	return r.run()
}

// Violations returns the violations of all laws.
func (r *Report) Violations() []Violation {
	var out []Violation
	for _, l := range r.Laws {
		out = append(out, l.Violations...)
	}
	return out
}
