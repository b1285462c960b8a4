package policies

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/offline/lint"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/render"
	"refract.dev/kit/webhook/admission"
)

// causesOf returns the causes to reject an object that is invalid by itself.
func causesOf(problems []*manifest.Problem) []metav1.StatusCause {
	var causes []metav1.StatusCause
	for _, p := range problems {
		causes = append(causes, cause(p.Field, hinted(p.Fact, p.Hint)))
	}
	return causes
}

func cause(field, message string) metav1.StatusCause {
	return metav1.StatusCause{Type: metav1.CauseTypeFieldValueInvalid, Field: field, Message: message}
}

func hinted(message, hint string) string {
	if hint == "" {
		return message
	}
	return message + "; " + hint
}

// silent are findings that are not reported for a write, because policies are often written before their objects and
// clusters.
var silent = map[lint.Code]bool{lint.PolicyNotUsed: true, lint.NoClusters: true}

// judge adds the lint findings for the state after the write to the answer. An error of the written object rejects the
// write, unless the error existed before; then it is a warning, so that the object can be repaired step by step. All
// other findings are warnings. Old findings of other objects are omitted, because this write did not cause them. For
// objects that the author may not list, a warning has only the kind of the problem.
func (a *answer) judge(w *write, was, is *lint.Result, lenient bool, to *visibility) {
	before := map[string]bool{}
	for i := range was.Findings {
		before[identity(&was.Findings[i])] = true
	}
	var others []string
	for i := range is.Findings {
		f := &is.Findings[i]
		own, there := w.isAbout(f), before[identity(f)]
		if own && silent[f.Code] || !own && (there || f.Code == lint.NoClusters) {
			continue
		}
		f = to.of(w, f)
		switch {
		case own && f.Severity == lint.Error && !there && !lenient:
			a.causes = append(a.causes, cause(f.Field, hinted(told(f), f.Hint)))
		case own:
			a.warnings = append(a.warnings, hinted(at(f.Field, told(f)), f.Hint)+code(f))
		default:
			others = append(others, hinted(at(subjectOf(f), at(f.Field, told(f))), f.Hint)+code(f))
		}
	}
	a.warnings = append(a.warnings, others...)
}

// identity is equal for the same problem, wherever it is in its object.
func identity(f *lint.Finding) string {
	return strings.Join([]string{string(f.Code), subjectOf(f), f.Path, f.Message}, "\x00")
}

// isAbout reports whether a finding is about the written object.
func (w *write) isAbout(f *lint.Finding) bool {
	switch {
	case f.Policy != nil:
		return f.Policy.Kind == w.ref.Kind && f.Policy.Namespace == w.ref.Namespace && f.Policy.Name == w.ref.Name
	case f.Object != nil:
		return f.Object.Kind == w.ref.Kind && f.Object.Namespace == w.ref.Namespace && f.Object.Name == w.ref.Name
	default:
		return false
	}
}

func subjectOf(f *lint.Finding) string {
	switch {
	case f.Policy != nil:
		o := render.Object{Kind: f.Policy.Kind, Namespace: f.Policy.Namespace, Name: f.Policy.Name}
		return o.String()
	case f.Object != nil:
		return f.Object.String()
	default:
		return ""
	}
}

// told returns the text of a finding, with its objects and clusters.
func told(f *lint.Finding) string {
	var of []string
	if len(f.Objects) > 0 {
		of = append(of, render.Few(f.Objects))
	}
	if len(f.Clusters) > 0 {
		of = append(of, render.Few(f.Clusters))
	}
	if len(of) == 0 {
		return f.Message
	}
	return fmt.Sprintf("%s (%s)", f.Message, strings.Join(of, " on "))
}

// code returns the code of a finding for the end of a warning, so that readers can look up its explanation.
func code(f *lint.Finding) string { return fmt.Sprintf(" [%s]", f.Code) }

func at(where, what string) string {
	if where == "" {
		return what
	}
	return where + ": " + what
}

// mostCauses limits the causes of one answer.
const mostCauses = 25

// refuse returns an error with the causes, in the form of an API server.
func refuse(w *write, causes []metav1.StatusCause) error {
	if more := len(causes) - mostCauses; more > 0 {
		causes = append(causes[:mostCauses:mostCauses], cause("", fmt.Sprintf("and %d more", more)))
	}
	texts := make([]string, len(causes))
	for i := range causes {
		causes[i].Message = admission.OneLine(causes[i].Message)
		texts[i] = at(causes[i].Field, causes[i].Message)
	}
	text := texts[0]
	if len(texts) > 1 {
		text = "[" + strings.Join(texts, ", ") + "]"
	}
	group := corev1alpha1.GroupVersion.Group
	return status(&metav1.Status{
		Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: fmt.Sprintf("%s.%s %q is invalid: %s", w.ref.Kind, group, w.ref.Name, text),
		Details: &metav1.StatusDetails{Group: group, Kind: w.ref.Kind, Name: w.ref.Name, Causes: causes},
	})
}

// unchecked returns the error for a write that could not be checked.
func unchecked(w *write, why error) error {
	return status(&metav1.Status{
		Code: http.StatusServiceUnavailable, Reason: metav1.StatusReasonServiceUnavailable,
		Message: fmt.Sprintf("the references to Secrets and ConfigMaps from the policy could not be checked: %v: try again", why),
		Details: &metav1.StatusDetails{Group: corev1alpha1.GroupVersion.Group, Kind: w.ref.Kind, Name: w.ref.Name, RetryAfterSeconds: 1},
	})
}

func status(s *metav1.Status) error {
	s.Status = metav1.StatusFailure
	return &apierrors.StatusError{ErrStatus: *s}
}

// An API server truncates each warning if all of them together are longer than 4096 characters.
const (
	mostWarnings   = 10
	longestWarning = 256
)

// short returns the warnings within the limits of an API server in number and length, each on one line.
func short(warnings []string) []string {
	if more := len(warnings) - mostWarnings; more > 0 {
		warnings = append(warnings[:mostWarnings:mostWarnings], fmt.Sprintf("and %d more; refract lint shows all", more))
	}
	out := make([]string, len(warnings))
	for i, text := range warnings {
		out[i] = admission.Brief(text, longestWarning)
	}
	return out
}
