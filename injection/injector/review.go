package injector

import (
	"fmt"
	"net/http"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
	"refract.dev/kit/webhook/admission"
	"refract.dev/tree/raw"
)

// review has the relevant parts of an AdmissionReview request, without decoding.
type review struct {
	admission.Review

	resource []byte // In the group "", like the webhook's rules.
}

// read reads a request. After an error, r has the parts before the error.
func (r *review) read(body []byte) error {
	if err := r.Read(body); err != nil {
		return err
	}
	if version := admissionv1.SchemeGroupVersion.String(); string(r.APIVersion) != version {
		return fmt.Errorf("want a review of %s, got %q", version, r.APIVersion)
	}
	if r.Resource == nil {
		return nil
	}
	s := raw.New(r.Resource)
	s.Object(func(key []byte) {
		if string(key) == "resource" {
			r.resource = s.Text()
		}
	})
	if err := s.End(); err != nil {
		return fmt.Errorf("reading the resource: %w", err)
	}
	return nil
}

// is reports whether the review is for this operation on a pod or on a subresource of a pod.
func (r *review) is(operation admissionv1.Operation, subresource string) bool {
	return string(r.Operation) == string(operation) && string(r.resource) == "pods" && string(r.SubResource) == subresource
}

// answer is the response about a pod. Without a result the pod is admitted unchanged.
type answer struct {
	*inject.Result

	busy bool // The namespace of the pod did not get its turn.
}

// encode returns the AdmissionReview that responds to the request with this UID.
func (a answer) encode(uid string) []byte {
	return admission.Answer(admissionv1.SchemeGroupVersion.String(), uid, a.response())
}

func (a answer) response() *admission.Response {
	switch {
	case a.busy:
		return &admission.Response{
			AuditAnnotations: map[string]string{"uninjected": outcomeBusy},
			Warnings: []string{"no ServiceInjectionPolicy was applied: too many pods of the namespace are being created at once; " +
				"create the pod again, unless " +
				"a rollout of the policies recreates it later"},
		}
	case a.Result == nil:
		return &admission.Response{}
	}
	out := &admission.Response{AuditAnnotations: map[string]string{}, Patch: a.Patch}
	if names := a.applied(); len(names) > 0 {
		out.AuditAnnotations["applied"] = listed(names)
	}
	if names := a.skipped(); len(names) > 0 {
		out.AuditAnnotations["skipped"] = listed(names)
	}
	if why := a.Rejected; why != nil {
		out.Err = &apierrors.StatusError{ErrStatus: metav1.Status{
			Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: conflict(why),
		}}
		return out
	}
	out.Warnings = a.warnings()
	return out
}

// outcome returns the outcome of the review for the metric.
func (a answer) outcome() string {
	switch {
	case a.Result == nil:
		return outcomeUnchanged
	case a.Rejected != nil:
		return outcomeRejected
	case a.exceeded():
		return outcomeExceeded
	case len(a.Applied) > 0 && len(a.Patch) > 0:
		return outcomeInjected
	case len(a.Skipped) == 0 || len(a.Applied) > 0:
		return outcomeUnchanged
	case a.excluded():
		return outcomeExcluded
	default:
		return outcomeSkipped
	}
}

// exceeded reports whether the policies were skipped because the pod exceeds the work limit.
func (a answer) exceeded() bool {
	return len(a.Skipped) > 0 && a.Skipped[0].Reason == inject.ReasonTooMuchWork
}

// excluded reports whether the policies were skipped because the pod must not be injected.
func (a answer) excluded() bool {
	if len(a.Skipped) == 0 {
		return false
	}
	reason := a.Skipped[0].Reason
	return reason == inject.ReasonOptedOut || reason == inject.ReasonMirrorPod
}

func (a answer) applied() []string {
	var names []string
	for i := range a.Applied {
		names = append(names, a.Applied[i].Policy.Name())
	}
	return names
}

func (a answer) skipped() []string {
	var names []string
	for i := range a.Skipped {
		names = append(names, a.Skipped[i].Policy.Name()+"="+a.Skipped[i].Reason)
	}
	return names
}

// Bounds for a response. The API server truncates warnings if all together have more than 4096 characters. Annotations
// should not make audit logs long.
const (
	mostWarnings  = 10
	longestText   = 400
	mostAnnotated = 10
)

// warnings returns warnings about skipped policies for the user who creates a pod. A policy causes no warning if the
// pod has opted out of it, or if its mode is Audit.
func (a answer) warnings() []string {
	if a.exceeded() { // All policies have the same reason.
		return []string{admission.Brief(fmt.Sprintf("nothing is injected: %s; skipped ServiceInjectionPolicies: %s",
			a.Skipped[0].Message, listed(policiesOf(a.Skipped))), longestText)}
	}
	var out []string
	for i := range a.Skipped {
		s := &a.Skipped[i]
		if s.Policy.Mode() == refractv1beta1.ModeAudit {
			continue
		}
		switch s.Reason {
		case inject.ReasonEnvConflict, inject.ReasonEnvFromConflict, inject.ReasonVolumeConflict, inject.ReasonMountConflict,
			inject.ReasonVolumeMissing, inject.ReasonTooLarge:
		default:
			continue
		}
		if len(out) == mostWarnings {
			return append(out[:mostWarnings-1], "and more injection policies were left out")
		}
		out = append(out, conflict(s))
	}
	return out
}

func policiesOf(skipped []inject.Skipped) []string {
	names := make([]string, len(skipped))
	for i := range skipped {
		names[i] = skipped[i].Policy.Name()
	}
	return names
}

func conflict(s *inject.Skipped) string {
	return admission.Brief(fmt.Sprintf("ServiceInjectionPolicy %s is left out: %s", s.Policy.Name(), s.Message), longestText)
}

// listed joins the first names, and appends the number of the others.
func listed(names []string) string {
	if more := len(names) - mostAnnotated; more > 0 {
		return strings.Join(names[:mostAnnotated], ",") + fmt.Sprintf(" and %d more", more)
	}
	return strings.Join(names, ",")
}
