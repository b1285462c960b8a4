package verify

import (
	"context"

	"refract.dev/structural"
)

// Subject is what is verified.
type Subject interface {
	// Convert returns objects in an API version, GROUP/VERSION: all of them, in their
	// order, or none and an error. What it is given stays unmodified. An error that is about
	// an answer which no API server would accept wraps [ErrContract].
	Convert(ctx context.Context, objects [][]byte, apiVersion string) ([][]byte, error)
}

// Knowledge is what is known of a conversion beyond what it does. Versions are names
// such as v1beta1, and places are as in a ConversionPolicy, with [*] for the elements of a
// list or table.
type Knowledge interface {
	// Normalize returns an object of a version in its normal form toward another one:
	// objects with equal normal forms mean the same. It does not modify obj.
	Normalize(version, other string, obj map[string]any) (map[string]any, error)
	// MayLose returns the places, in version, of what may get lost or change on the way to
	// the other version and back if no annotation may be written.
	MayLose(version, other string) []string
	// RuleAt returns the name of the rule that converts what is at a path of version, such
	// as spec.ports[0].name; empty if there is none.
	RuleAt(version, other, path string) string
}

// Options say what is checked with what.
type Options struct {
	// Definition has the schemas.
	Definition *structural.Definition
	// Hub and Versions are the versions between which objects are converted. Versions
	// has the hub too, in any order.
	Hub      string
	Versions []string
	// Knowledge may be nil: then objects mean the same if they are equal, and nothing may
	// get lost.
	Knowledge Knowledge
	// Laws are those to check, all if there are none.
	Laws []Law
	// Seed is what objects are generated from.
	Seed uint64
	// Objects is how many are generated per version: 1,000 if it is 0, none if it is negative.
	Objects int
	// Leaves is up to how many leaves all small objects are tried first: 3 if it is 0,
	// none if it is negative. They are half of the objects at most.
	Leaves int
	// Recorded are real objects, in any of the versions. They come first, all laws
	// are checked with each, valid or not, and none is modified.
	Recorded []map[string]any
	// Violations is how many a law has at most, 1 if it is 0: with so many it is checked no
	// further with objects that are made up. No two of them are about the same rule or, where
	// no rule is known, the same place.
	Violations int
}

// The defaults of Options.
const (
	defaultObjects    = 1000
	defaultLeaves     = 3
	defaultViolations = 1
)

// Report says what was checked, and what broke. It depends on what Run was given alone,
// as long as the time was sufficient and the subject deterministic.
type Report struct {
	Seed uint64 `json:"seed"`
	// Objects is how many were checked, and Refused how many were generated and then not,
	// because an API server would not accept them.
	Objects int `json:"objects"`
	Refused int `json:"refused"`
	// Checks is how many times a law was checked with an object.
	Checks int `json:"checks"`
	// Invalid are those of the recorded objects that an API server would not accept any
	// more, in their order.
	Invalid []Invalid `json:"invalid,omitempty"`
	// Versions are in the order of the options.
	Versions []VersionResult `json:"versions"`
	// Laws are those to be checked, in the order of [Laws]. One without checks says
	// nothing: Triangle if there are two versions only.
	Laws []LawResult `json:"laws"`
	// Complete is false if the time was over before all was checked.
	Complete bool `json:"complete"`
}

// Invalid says why a recorded object is not valid in its version.
type Invalid struct {
	// Recorded is its number in Options.Recorded.
	Recorded int `json:"recorded"`
	// Why is what an API server says.
	Why string `json:"why"`
}

// VersionResult says what the objects of a version were.
type VersionResult struct {
	Version string `json:"version"`
	Objects int    `json:"objects"`
	Refused int    `json:"refused"`
	// Why is what an API server says against the last one refused.
	Why string `json:"why,omitempty"`
	// Unconverted is of how many something was kept since another version cannot have it, and
	// Lacks what of the first: see [convert.Keep]. That breaks no law.
	Unconverted int    `json:"unconverted,omitempty"`
	Lacks       string `json:"lacks,omitempty"`
	// Leaves is up to how many leaves all small objects are among them; -1 if there are
	// too many of those with none.
	Leaves int `json:"leaves"`
}

// LawResult says what came of one law.
type LawResult struct {
	Law        Law         `json:"law"`
	Checks     int         `json:"checks"`
	Violations []Violation `json:"violations"`
}

// Violation is an object with which a law does not hold.
type Violation struct {
	Law Law `json:"law"`
	// From is the version of Object, To is that which it is converted to.
	From string `json:"from"`
	To   string `json:"to"`
	// Path is where it shows, such as spec.ports[0].name: in From, or in To if the law is
	// about what comes out there. It is empty for the object as a whole.
	Path string `json:"path"`
	// Rule is the one that converts what is at Path, if it is known.
	Rule    string `json:"rule,omitempty"`
	Message string `json:"message"`
	// Recorded are the numbers, in Options.Recorded, of the real objects that break the law
	// in this way, in their order; nil if none does.
	Recorded []int `json:"recorded,omitempty"`
	// Object is as small as it could be made.
	Object map[string]any `json:"object"`
	// Got and Want are what is at Path; nil if nothing is, or nothing is to be compared.
	Got  any `json:"got,omitempty"`
	Want any `json:"want,omitempty"`
}

// Run checks whether a subject keeps the laws: with recorded objects, then with small
// ones, then with random ones. A violation comes with the smallest object that was found to
// break the law in the same way.
//
// The end of ctx is the end of the time to do so: the report says how far it came, which is no error.
// The errors are about options that do not fit each other, recorded objects that cannot be
// read, and that not one object could be generated.
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
