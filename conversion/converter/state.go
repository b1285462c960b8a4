package converter

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/conversion/structural"
	"refract.dev/internal/output"
)

// Reasons of the conditions.
const (
	reasonCompiled     = "Compiled"
	reasonInvalid      = "Invalid"            // The spec does not fit the definition.
	reasonNoDefinition = "DefinitionNotFound" // The CustomResourceDefinition does not exist.

	reasonVerified   = "Verified"
	reasonBroken     = "LawBroken"
	reasonUnverified = "NotVerified" // The verification has had no result.

	reasonServing        = "Serving"
	reasonEarlier        = "EarlierServing" // status.served has another spec, or other schemas, than the present ones.
	reasonNotServed      = "NotServed"      // No spec has been verified yet.
	reasonProbe          = "ProbeFailed"
	reasonSpecConversion = "NotWired"
	reasonDamaged        = "CannotServe" // The spec in status.served does not compile.
	reasonOthers         = "ConversionOwnedByOthers"
	reasonOlder          = "AnotherServes"
	reasonNeeded         = "Needed" // The policy was deleted or is a shadow, but must still convert objects.
	reasonComparing      = "Comparing"
	reasonNothing        = "NothingToCompare"
)

// state is the status, the reason and the message of a condition.
type state struct {
	status          metav1.ConditionStatus
	reason, message string
}

func yes(reason, message string) state { return state{metav1.ConditionTrue, reason, message} }

func no(reason, message string) state { return state{metav1.ConditionFalse, reason, message} }

// into sets a condition of a policy to the state.
func (s state) into(p *refractv1alpha1.ConversionPolicy, condition string) {
	setCondition(p, metav1.Condition{Type: condition, Status: s.status, Reason: s.reason, Message: output.Cut(s.message, mostMessage-len("…"))})
}

// event returns the type of the event for the state.
func (s state) event() string {
	if s.status == metav1.ConditionTrue {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}

// mostFindings is the maximum number of findings in a condition. mostMessage is the maximum size in bytes of its
// message; an event may have 1,024 bytes.
const (
	mostFindings = 10
	mostMessage  = 1000
)

// compiledState returns the result of a compilation as a state of the condition Compiled.
func compiledState(findings []structural.Finding, err error) state {
	texts := errorsIn(findings)
	switch {
	case err == nil:
		return yes(reasonCompiled, warningsIn(findings))
	case errors.Is(err, errFindings) && len(texts) > 0:
		if more := len(texts) - mostFindings; more > 0 {
			texts = append(texts[:mostFindings:mostFindings], fmt.Sprintf("and %d more", more))
		}
		return no(reasonInvalid, strings.Join(texts, "; "))
	default:
		return no(reasonInvalid, err.Error())
	}
}

// errorsIn returns the texts of the errors among the findings.
func errorsIn(findings []structural.Finding) []string {
	var texts []string
	for _, f := range findings {
		if f.Severity == structural.Error {
			texts = append(texts, f.String())
		}
	}
	return texts
}

// warningsIn returns the texts of the warnings among the findings, as one text.
func warningsIn(findings []structural.Finding) string {
	var texts []string
	for _, f := range findings {
		if f.Severity == structural.Warning {
			texts = append(texts, f.String())
		}
	}
	return strings.Join(texts, "; ")
}

// readiness returns the state of the condition Ready. judged is true if the spec is verified for the current
// definition. asked is the result of ask.
func readiness(p *refractv1alpha1.ConversionPolicy, judged bool, asked state, crd *unstructured.Unstructured,
	want *admissionregistrationv1.WebhookClientConfig,
) state {
	served := p.Status.Served
	switch {
	case served == nil:
		return no(reasonNotServed, notServed(p, crd, want)+because(p))
	case asked.status != metav1.ConditionTrue:
		return asked
	case !p.DeletionTimestamp.IsZero():
		return yes(reasonNeeded, cmp.Or(neededBy(p, crd, want), "It is about to be deleted"))
	case served.Generation != p.Generation:
		return no(reasonEarlier, fmt.Sprintf("Objects are converted by generation %d until generation %d is accepted.%s %s",
			served.Generation, p.Generation, keptAway(served.Kept), because(p)))
	case !judged && len(served.Kept) > 0 && crd != nil && samePacked(served.Definition, reduced(crd)):
		return no(reasonEarlier, fmt.Sprintf("Objects are converted by generation %d, which does not cover the definition.%s %s",
			served.Generation, keptAway(served.Kept), because(p)))
	case !judged:
		return no(reasonEarlier, "Objects are converted for the previous schemas of the definition. Do not use new fields and versions until the policy "+
			"covers them: a field is lost when its object is written in a version without it. "+because(p))
	case p.Spec.Mode == refractv1alpha1.ConversionShadow:
		return yes(reasonNeeded, "It converts the objects of "+p.Spec.CRD+" although it is a shadow: no other policy does")
	default:
		return yes(reasonServing, fmt.Sprintf("Objects of %s are converted by generation %d", p.Spec.CRD, served.Generation))
	}
}

// notServed describes the consequence of a missing status.served. If spec.conversion names Refract, the policy was
// deleted and created again, or a user has emptied its status.
func notServed(p *refractv1alpha1.ConversionPolicy, crd *unstructured.Unstructured, want *admissionregistrationv1.WebhookClientConfig) string {
	if crd == nil || !crdConversionOf(crd, want).ours {
		return "It converts no objects yet. "
	}
	return fmt.Sprintf("It converts no objects, although spec.conversion of %s points to Refract: objects can be read and written only in their stored "+
		"version, except through replicas that have converted by this policy before. Fix it now. ", p.Spec.CRD)
}

// because returns the condition that prevents the use of the spec, as text.
func because(p *refractv1alpha1.ConversionPolicy) string {
	for _, about := range []string{refractv1alpha1.ConversionCompiled, refractv1alpha1.ConversionVerified} {
		if c := meta.FindStatusCondition(p.Status.Conditions, about); c != nil && c.Status == metav1.ConditionFalse {
			return fmt.Sprintf("%s (%s): %s", c.Type, c.Reason, c.Message)
		}
	}
	return ""
}
