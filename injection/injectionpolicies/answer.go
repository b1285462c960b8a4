package injectionpolicies

import (
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/kit/webhook/admission"
)

// mostCauses is the maximum number of causes in one response.
const mostCauses = 25

// refuse returns the errors of a policy in the form in which an API server reports an invalid object.
func refuse(w *write, causes []metav1.StatusCause) error {
	if more := len(causes) - mostCauses; more > 0 {
		causes = append(causes[:mostCauses:mostCauses], metav1.StatusCause{
			Type: metav1.CauseTypeFieldValueInvalid, Message: fmt.Sprintf("and %d more", more),
		})
	}
	texts := make([]string, len(causes))
	for i := range causes {
		texts[i] = at(causes[i].Field, causes[i].Message)
	}
	text := texts[0]
	if len(texts) > 1 {
		text = "[" + strings.Join(texts, ", ") + "]"
	}
	return status(&metav1.Status{
		Code: http.StatusUnprocessableEntity, Reason: metav1.StatusReasonInvalid,
		Message: fmt.Sprintf("%s.%s %q is invalid: %s", refractv1beta1.KindServiceInjectionPolicy, refractv1beta1.GroupVersion.Group, w.name(), text),
		Details: details(w, causes),
	})
}

func details(w *write, causes []metav1.StatusCause) *metav1.StatusDetails {
	return &metav1.StatusDetails{
		Group: refractv1beta1.GroupVersion.Group, Kind: refractv1beta1.KindServiceInjectionPolicy, Name: w.name(), Causes: causes,
	}
}

func status(s *metav1.Status) error {
	s.Status = metav1.StatusFailure
	return &apierrors.StatusError{ErrStatus: *s}
}

func at(where, what string) string {
	if where == "" {
		return what
	}
	return where + ": " + what
}

// Bounds for warnings. An API server truncates them if all together have more than 4096 characters.
const (
	mostWarnings   = 10
	longestWarning = 400
)

// short returns the warnings, each on one line, with at most the number and the lengths that an API server accepts.
func short(warnings []string) []string {
	if more := len(warnings) - mostWarnings; more > 0 {
		warnings = append(warnings[:mostWarnings-1:mostWarnings-1], fmt.Sprintf("and %d more", more+1))
	}
	out := make([]string, len(warnings))
	for i, text := range warnings {
		out[i] = admission.Brief(text, longestWarning)
	}
	return out
}
