package structural

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Severity distinguishes findings for which the API server rejects the manifest or object from other findings.
type Severity string

// Severities of a [Finding].
const (
	Error   Severity = "error"   // The API server, or kubectl on its behalf, rejects the manifest or object.
	Warning Severity = "warning" // The API server accepts the manifest or object, but there is probably a mistake.
)

// Finding is one problem of a manifest or an object.
type Finding struct {
	// Path is the place in the notation of the API server, for example
	// spec.versions[0].schema.openAPIV3Schema.properties[foo].type. It is empty for the whole object, for which the API
	// server has the text <nil>.
	Path string `json:"path"`
	// Message is the text of the API server or of the lint.
	Message  string   `json:"message"`
	Severity Severity `json:"severity"`
	// Rule is the violated rule: the API server's name of the error, such as FieldValueRequired; UnknownField;
	// RemovedAPIVersion; or the name of a lint.
	Rule string `json:"rule"`
}

// String returns PATH: MESSAGE. Without a path it returns MESSAGE.
func (f Finding) String() string {
	if f.Path == "" {
		return f.Message
	}
	return f.Path + ": " + f.Message
}

// Sort sorts findings in place, and returns them without duplicates. The order is by path, with indexes compared as
// numbers, then by message, and then by rule.
func Sort(findings []Finding) []Finding {
	slices.SortStableFunc(findings, func(a, b Finding) int {
		return cmp.Or(comparePaths(a.Path, b.Path), cmp.Compare(a.Message, b.Message), cmp.Compare(a.Rule, b.Rule))
	})
	return slices.Compact(findings)
}

// comparePaths compares two paths character by character. It compares numbers in brackets by their value. A number in
// brackets comes before a name in brackets.
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

// index returns the digits at the start of s if a closing bracket follows them; otherwise "".
func index(s string) string {
	digits := strings.TrimLeft(s, "0123456789")
	if !strings.HasPrefix(digits, "]") {
		return ""
	}
	return s[:len(s)-len(digits)]
}

// findings converts errors of the API server to findings, and sorts them.
func findings(errs field.ErrorList) []Finding {
	list := make([]Finding, 0, len(errs))
	for _, err := range errs {
		message := selfType.ReplaceAllString(err.ErrorBody(), "selfType")
		list = append(list, Finding{Path: pathOf(err), Message: message, Severity: Error, Rule: string(err.Type)})
	}
	return Sort(list)
}

// selfType matches the API server's name for the type of self in CEL. The name has a number from the clock, which
// differs each time and has no meaning.
var selfType = regexp.MustCompile(`\bselfType\d+`)

// pathOf returns the path of an error; "" for the whole object.
func pathOf(err *field.Error) string {
	if err.Field == (*field.Path)(nil).String() {
		return ""
	}
	return err.Field
}
