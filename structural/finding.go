package structural

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Severity says whether a finding keeps the server from accepting what was
// checked.
type Severity string

// Severities of a [Finding].
const (
	Error   Severity = "error"   // The server, or kubectl on its behalf, refuses it.
	Warning Severity = "warning" // The server accepts it; it is hardly what was meant.
)

// Finding is one thing that is wrong with a manifest or an object.
type Finding struct {
	// Path is the place, as the API server writes one, for example
	// spec.versions[0].schema.openAPIV3Schema.properties[foo].type. It is empty for
	// the whole, which the server calls <nil>.
	Path string `json:"path"`
	// Message is the server's own text, or the lint's.
	Message  string   `json:"message"`
	Severity Severity `json:"severity"`
	// Rule is what was broken: the server's name of the kind of error, such as
	// FieldValueRequired; UnknownField; RemovedAPIVersion; or the name of a lint.
	Rule string `json:"rule"`
}

// String returns PATH: MESSAGE, or MESSAGE without a path.
func (f Finding) String() string {
	if f.Path == "" {
		return f.Message
	}
	return f.Path + ": " + f.Message
}

// Sort returns findings sorted by path, indexes as numbers, those of one path by
// message, and without duplicates. It sorts in place.
func Sort(findings []Finding) []Finding {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(comparePaths(a.Path, b.Path), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Rule, b.Rule))
	})
	return slices.Compact(findings)
}

// comparePaths compares letter by letter, but numbers in brackets by their value,
// and they come before names in brackets.
func comparePaths(a, b string) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		if a[i] != b[i] {
			return cmp.Compare(a[i:], b[i:])
		}
		if a[i] != '[' {
			continue
		}
		m, n := index(a[i+1:]), index(b[i+1:])
		switch {
		case m == n:
			continue
		case m == "":
			return 1
		case n == "":
			return -1
		}
		return cmp.Or(cmp.Compare(len(m), len(n)), cmp.Compare(m, n))
	}
	return cmp.Compare(len(a), len(b))
}

// index returns the digits at the beginning of s if a closing bracket follows.
func index(s string) string {
	digits := strings.TrimLeft(s, "0123456789")
	if !strings.HasPrefix(digits, "]") {
		return ""
	}
	return s[:len(s)-len(digits)]
}

// findings returns the errors of the server, sorted.
func findings(errs field.ErrorList) []Finding {
	list := make([]Finding, 0, len(errs))
	for _, err := range errs {
		message := selfType.ReplaceAllString(err.ErrorBody(), "selfType")
		list = append(list, Finding{Path: pathOf(err), Message: message, Severity: Error, Rule: string(err.Type)})
	}
	return Sort(list)
}

// selfType is the name that the server gives the type of self. It has a number made
// of the clock in it, which says nothing and differs from one time to the next.
var selfType = regexp.MustCompile(`\bselfType\d+`)

// pathOf returns the path of an error; the whole object has none.
func pathOf(err *field.Error) string {
	if err.Field == (*field.Path)(nil).String() {
		return ""
	}
	return err.Field
}
