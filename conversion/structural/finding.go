package structural

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Severity says whether a finding prevents the server from accepting the checked manifest or object.
type Severity string

// Severities of a [Finding].
const (
	Error   Severity = "error"   // The server, or kubectl on its behalf, rejects it.
	Warning Severity = "warning" // The server accepts it, but it is probably a mistake.
)

// Finding is one problem of a manifest or an object.
type Finding struct {
	// Path is the place in the notation of the API server, for example
	// spec.versions[0].schema.openAPIV3Schema.properties[foo].type. It is empty for the whole object, which the server
	// calls <nil>.
	Path string `json:"path"`
	// Message is the text of the server or of the lint.
	Message  string   `json:"message"`
	Severity Severity `json:"severity"`
	// Rule is the violated rule: the server's name of the error, such as FieldValueRequired; UnknownField;
	// RemovedAPIVersion; or the name of a lint.
	Rule string `json:"rule"`
}

// String returns PATH: MESSAGE, or MESSAGE without a path.
func (f Finding) String() string {
	if f.Path == "" {
		return f.Message
	}
	return f.Path + ": " + f.Message
}

// Sort sorts findings in place and returns them without duplicates. The order is by path, with indexes compared as
// numbers, then by message, then by rule.
func Sort(findings []Finding) []Finding {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(comparePaths(a.Path, b.Path), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Rule, b.Rule))
	})
	return slices.Compact(findings)
}

// comparePaths compares character by character. It compares numbers in brackets by their value, and sorts them before
// names in brackets.
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

// index returns the digits at the start of s if a closing bracket follows, otherwise "".
func index(s string) string {
	digits := strings.TrimLeft(s, "0123456789")
	if !strings.HasPrefix(digits, "]") {
		return ""
	}
	return s[:len(s)-len(digits)]
}

// findings converts errors of the server to findings, sorted.
func findings(errs field.ErrorList) []Finding {
	list := make([]Finding, 0, len(errs))
	for _, err := range errs {
		message := selfType.ReplaceAllString(err.ErrorBody(), "selfType")
		list = append(list, Finding{Path: pathOf(err), Message: message, Severity: Error, Rule: string(err.Type)})
	}
	return Sort(list)
}

// selfType matches the server's name for the type of self. The name has a number from the clock, which is meaningless
// and differs each time.
var selfType = regexp.MustCompile(`\bselfType\d+`)

// pathOf returns the path of an error, "" for the whole object.
func pathOf(err *field.Error) string {
	if err.Field == (*field.Path)(nil).String() {
		return ""
	}
	return err.Field
}
