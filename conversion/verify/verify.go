package verify

import (
	"context"

	"refract.dev/conversion/structural"
)

// Subject is a conversion to verify.
type Subject interface {
	// Convert returns the objects in an API version, GROUP/VERSION: either all objects, in order, or an error. It must
	// not modify its argument. If the subject gives an answer that no API server would accept, the error wraps
	// [ErrContract].
	Convert(ctx context.Context, objects [][]byte, apiVersion string) ([][]byte, error)
}

// Knowledge is information about a conversion that its results do not show. Versions are names such as v1beta1. Places
// are written as in a ConversionPolicy, with [*] for the elements of a list or table.
type Knowledge interface {
	// Normalize returns the normal form of an object of version, for conversions to other. Objects with equal normal
	// forms mean the same. Normalize must not modify obj.
	Normalize(version, other string, obj map[string]any) (map[string]any, error)
	// MayLose returns the places in version whose values may get lost or change on the way to the other version and
	// back, if the conversion cannot use an annotation.
	MayLose(version, other string) []string
	// RuleAt returns the name of the rule that converts the value at a path of version, such as spec.ports[0].name; ""
	// if there is none.
	RuleAt(version, other, path string) string
}

// Options select the objects and laws of a verification.
type Options struct {
	// Definition has the schemas.
	Definition *structural.Definition
	// Hub is one of Versions. Versions are the versions to convert between, in any order.
	Hub      string
	Versions []string
	// Knowledge may be nil. In that case objects mean the same only if they are equal, and no value may get lost.
	Knowledge Knowledge
	// Laws are the laws to check. If it is empty, all laws are checked.
	Laws []Law
	// Seed is the seed for generated objects.
	Seed uint64
	// Objects is the number of generated objects for each version. 0 means 1,000, and a negative number means none.
	Objects int
	// Leaves is the maximum number of leaves of the small objects. Small objects are checked first, and all of them. 0
	// means 3, and a negative number means no small objects. At most half of the objects are small ones.
	Leaves int
	// Recorded are real objects in any of the versions. They are checked first, with all laws, even if they are
	// invalid. They are not modified.
	Recorded []map[string]any
	// Violations is the maximum number of violations for each law; 0 means 1. After that number, the law is not checked
	// with further generated objects. All violations of a law differ in their rule or, if no rule is known, in their
	// place.
	Violations int
}

// The defaults of Options.
const (
	defaultObjects    = 1000
	defaultLeaves     = 3
	defaultViolations = 1
)

// Report has the results of a verification. If the time was sufficient and the subject is deterministic, it depends
// only on the arguments of Run.
type Report struct {
	Seed uint64 `json:"seed"`
	// Objects is the number of checked objects. Refused is the number of generated objects that were not checked,
	// because an API server would reject them.
	Objects int `json:"objects"`
	Refused int `json:"refused"`
	// Checks is the number of checks. Each is a check of one law with one object.
	Checks int `json:"checks"`
	// Invalid lists the recorded objects that an API server would now reject, in their order.
	Invalid []Invalid `json:"invalid,omitempty"`
	// Versions are in the order of the options.
	Versions []VersionResult `json:"versions"`
	// Laws are the selected laws, in the order of [Laws]. A law with 0 checks has no result: for example, Triangle with
	// only two versions.
	Laws []LawResult `json:"laws"`
	// Complete is false if ctx ended before all checks.
	Complete bool `json:"complete"`
}

// Invalid is a recorded object that is invalid in its version.
type Invalid struct {
	// Recorded is the index of the object in Options.Recorded.
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
	// Unconverted is the number of objects with a part that is kept because it cannot be converted. Lacks describes the
	// missing part of the first such object: see [convert.Keep]. This is no violation.
	Unconverted int    `json:"unconverted,omitempty"`
	Lacks       string `json:"lacks,omitempty"`
	// Leaves is the largest number for which all small objects with at most that many leaves were checked; -1 if there
	// are too many objects even without leaves.
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
	// From is the version of Object. To is the version to which Object is converted.
	From string `json:"from"`
	To   string `json:"to"`
	// Path is the path of the violation, such as spec.ports[0].name. It is a path in the version From or, if the law is
	// about the converted object, in the version To. It is empty for the whole object.
	Path string `json:"path"`
	// Rule is the rule that converts the value at Path, if it is known.
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message"`
	// Recorded are the indexes in Options.Recorded of the recorded objects with this violation, in order; nil if there
	// are none.
	Recorded []int `json:"recorded,omitempty"`
	// Object is the smallest object with this violation that was found.
	Object map[string]any `json:"object"`
	// Got and Want are the actual and the expected value at Path. They are nil for an absent value, and if the law
	// compares no values.
	Got  any `json:"got,omitempty"`
	Want any `json:"want,omitempty"`
}

// Run checks whether a subject obeys the laws. It uses recorded objects first, then small ones, and then random ones.
// For each violation it looks for the smallest object that violates the law in the same way.
//
// Run ends when ctx ends. This is not an error: the report shows how much was checked. Run returns an error for
// incompatible options, for unreadable recorded objects, and if it cannot generate a single valid object.
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
