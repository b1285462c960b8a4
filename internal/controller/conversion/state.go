package conversion

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
	"refract.dev/internal/output"
	"refract.dev/structural"
)

// Reasons of the conditions.
const (
	reasonCompiled     = "Compiled"
	reasonInvalid      = "Invalid"            // The spec does not fit the definition.
	reasonNoDefinition = "DefinitionNotFound" // There is none.

	reasonVerified   = "Verified"
	reasonBroken     = "LawBroken"
	reasonUnverified = "NotVerified" // It could not be found out.

	reasonServing        = "Serving"
	reasonEarlier        = "EarlierServing" // What serves is not what the spec says, or not for the schemas of now.
	reasonNotServed      = "NotServed"      // Nothing has been good enough yet.
	reasonProbe          = "ProbeFailed"
	reasonSpecConversion = "NotWired"
	reasonDamaged        = "CannotServe" // What the status says is served cannot be compiled.
	reasonOthers         = "ConversionOwnedByOthers"
	reasonOlder          = "AnotherServes"
	reasonNeeded         = "Needed" // It is to be deleted, and cannot be yet.
	reasonComparing      = "Comparing"
	reasonNothing        = "NothingToCompare"
)

// state is what a condition says.
type state struct {
	status          metav1.ConditionStatus
	reason, message string
}

func yes(reason, message string) state { return state{metav1.ConditionTrue, reason, message} }

func no(reason, message string) state { return state{metav1.ConditionFalse, reason, message} }

// into writes it into the status of a policy.
func (s state) into(p *refractv1alpha1.ConversionPolicy, condition string) {
	setCondition(p, metav1.Condition{Type: condition, Status: s.status, Reason: s.reason, Message: output.Cut(s.message, mostMessage-len("…"))})
}

// event returns the type of the event that tells of it.
func (s state) event() string {
	if s.status == metav1.ConditionTrue {
		return corev1.EventTypeNormal
	}
	return corev1.EventTypeWarning
}

// mostFindings is how many are named in a condition, mostMessage how long it may be; an
// event may have 1,024 bytes.
const (
	mostFindings = 10
	mostMessage  = 1000
)

// compiledState says what came of compiling.
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

// errorsIn returns the texts of what is an error.
func errorsIn(findings []structural.Finding) []string {
	var texts []string
	for _, f := range findings {
		if f.Severity == structural.Error {
			texts = append(texts, f.String())
		}
	}
	return texts
}

// warningsIn returns what else there is to know, in one text.
func warningsIn(findings []structural.Finding) string {
	var texts []string
	for _, f := range findings {
		if f.Severity == structural.Warning {
			texts = append(texts, f.String())
		}
	}
	return strings.Join(texts, "; ")
}

// readiness returns the state of the condition Ready: judged is whether the spec is good
// for the definition of now, asked what came of having the API server ask.
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
		return yes(reasonNeeded, cmp.Or(neededBy(p, crd, want), "It is about to go"))
	case served.Generation != p.Generation:
		return no(reasonEarlier, fmt.Sprintf("Objects are converted by generation %d, and will be until generation %d is good.%s %s",
			served.Generation, p.Generation, keptAway(served.Kept), because(p)))
	case !judged && len(served.Kept) > 0 && crd != nil && samePacked(served.Definition, reduced(crd)):
		return no(reasonEarlier, fmt.Sprintf("Objects are converted by what generation %d says, which does not cover the definition.%s %s",
			served.Generation, keptAway(served.Kept), because(p)))
	case !judged:
		return no(reasonEarlier, "Objects are converted for the schemas that the definition had before. "+
			"Leave fields and versions that are new unused until the policy covers them: "+
			"a field is lost when its object is written in a version without it. "+because(p))
	case p.Spec.Mode == refractv1alpha1.ConversionShadow:
		return yes(reasonNeeded, "It converts the objects of "+p.Spec.CRD+" although it is a shadow: no other policy does")
	default:
		return yes(reasonServing, fmt.Sprintf("Objects of %s are converted by generation %d", p.Spec.CRD, served.Generation))
	}
}

// notServed says what follows if a policy has never been good. If the API server asks
// all the same, the policy was created anew or its status has been emptied.
func notServed(p *refractv1alpha1.ConversionPolicy, crd *unstructured.Unstructured, want *admissionregistrationv1.WebhookClientConfig) string {
	if crd == nil || !crdConversionOf(crd, want).ours {
		return "Nothing is converted by it yet. "
	}
	return fmt.Sprintf("Nothing is converted by it, although spec.conversion of %s asks Refract: objects can be read and written in the version "+
		"that they are stored in alone, but for replicas that have converted by this policy before. Mend it now. ", p.Spec.CRD)
}

// because returns what keeps a spec from being served.
func because(p *refractv1alpha1.ConversionPolicy) string {
	for _, about := range []string{refractv1alpha1.ConversionCompiled, refractv1alpha1.ConversionVerified} {
		if c := meta.FindStatusCondition(p.Status.Conditions, about); c != nil && c.Status == metav1.ConditionFalse {
			return fmt.Sprintf("%s (%s): %s", c.Type, c.Reason, c.Message)
		}
	}
	return ""
}
