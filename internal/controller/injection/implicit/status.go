package implicit

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/inject"
	"refract.dev/internal/output"
)

// Reasons of the condition ServiceFound.
const (
	reasonFound              = "Found"
	reasonNotFound           = "NotFound"
	reasonInvalidAnnotations = "InvalidAnnotations"
)

// longestMessage is how many bytes of what is wrong a condition tells. It may repeat
// an annotation, which may be long.
const longestMessage = 2000

// serviceStatus is the part of a policy's status that tells of its Service; all of it
// is nil for a policy that none completes.
type serviceStatus struct {
	fromService, effective *refractv1beta1.InjectedItems
	condition              *metav1.Condition
}

// serviceStatusOf returns what the status of a policy says.
func serviceStatusOf(p *refractv1beta1.ServiceInjectionPolicy) serviceStatus {
	return serviceStatus{
		fromService: p.Status.FromService, effective: p.Status.Effective,
		condition: meta.FindStatusCondition(p.Status.Conditions, refractv1beta1.ConditionServiceFound),
	}
}

// complete returns what the status of a policy should say. The service is nil if
// there is none. Nothing is modified.
//
// While something is wrong with the annotations, what they said before stays:
// a mistake in one of them must not take from the consumers what the others say,
// and have them all recreated. If they have never been right, what is right of them
// holds. The same goes for annotations that are right by themselves and make the policy
// invalid: what the policy says itself is always injected.
func complete(p *refractv1beta1.ServiceInjectionPolicy, service *corev1.Service, now metav1.Time) serviceStatus {
	if !p.Spec.Implicit {
		return serviceStatus{}
	}
	out := serviceStatus{condition: &metav1.Condition{
		Type: refractv1beta1.ConditionServiceFound, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation, LastTransitionTime: now,
	}}
	c := out.condition
	name := output.Cut(p.Spec.Service, validation.DNS1035LabelMaxLength) // What was stored before the CRD said so may be longer.
	if service == nil {
		c.Reason = reasonNotFound
		c.Message = fmt.Sprintf("there is no Service %s in the namespace: only what the policy says itself is injected", name)
	} else {
		items, err := taken(p, service)
		if err != nil {
			c.Reason = reasonInvalidAnnotations
			c.Message = output.Cut(fmt.Sprintf("Service %s: %v", name, err), longestMessage) + "; until that is put right, "
			if orNil(items) == nil && p.Status.FromService != nil {
				c.Message += "only what the policy says itself is injected"
			} else {
				c.Message += "status.fromService stays as it is"
			}
		} else {
			c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonFound, told(name, items)
		}
		out.fromService = orNil(items)
	}
	completed := *p
	completed.Status.FromService = out.fromService
	out.effective = orNil(inject.Effective(&completed))
	if was := serviceStatusOf(p).condition; was != nil && was.Status == c.Status {
		c.LastTransitionTime = was.LastTransitionTime
	}
	return out
}

// taken returns what the policy takes over from the Service, which is not nil, and what
// is wrong with what that says: then it may be what it said before, or nothing. A
// policy that is valid by itself stays so.
func taken(p *refractv1beta1.ServiceInjectionPolicy, service *corev1.Service) (*refractv1beta1.InjectedItems, error) {
	said := p.Status.FromService
	items, errs := inject.FromService(service)
	var err error = errs.ToAggregate()
	if err != nil && said != nil {
		items = said
	}
	nothing := &refractv1beta1.InjectedItems{}
	if fits(p, nothing) != nil {
		return items, err // Whoever wrote the policy put it out of force.
	}
	if wrong := fits(p, items); wrong != nil {
		if err == nil {
			err = fmt.Errorf("what its annotations say does not fit what the policy says: %w", wrong)
		}
		if items = said; items == nil || fits(p, items) != nil {
			items = nothing
		}
	}
	return items, err
}

// fits returns why the policy is not valid with these items; nil if it is.
func fits(p *refractv1beta1.ServiceInjectionPolicy, items *refractv1beta1.InjectedItems) error {
	completed := *p
	completed.Status.FromService = items
	_, errs := inject.Compile(&completed)
	return errs.ToAggregate()
}

// told says in a sentence what a Service says.
func told(service string, items *refractv1beta1.InjectedItems) string {
	var parts []string
	for _, of := range []struct {
		count     int
		one, many string
	}{
		{len(items.Env), "variable", "variables"},
		{len(items.EnvFrom), "source of variables", "sources of variables"},
		{len(items.VolumeMounts), "mount", "mounts"},
	} {
		switch of.count {
		case 0:
		case 1:
			parts = append(parts, "1 "+of.one)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", of.count, of.many))
		}
	}
	if len(parts) == 0 {
		return fmt.Sprintf("Service %s has no annotation that says what its consumers need", service)
	}
	return fmt.Sprintf("Service %s says: %s", service, strings.Join(parts, ", "))
}

func orNil(items *refractv1beta1.InjectedItems) *refractv1beta1.InjectedItems {
	if len(items.Env)+len(items.EnvFrom)+len(items.Volumes)+len(items.VolumeMounts) == 0 {
		return nil
	}
	return items
}

// same reports whether there is nothing to write.
func (s serviceStatus) same(other serviceStatus) bool {
	return equality.Semantic.DeepEqual(s.fromService, other.fromService) &&
		equality.Semantic.DeepEqual(s.effective, other.effective) && sameCondition(s.condition, other.condition)
}

func sameCondition(a, b *metav1.Condition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status && a.Reason == b.Reason && a.Message == b.Message && a.ObservedGeneration == b.ObservedGeneration
}

// content returns the status that holds this and nothing else: the counts of a
// policy, which a typed status always has, are for others to write.
func (s serviceStatus) content() (map[string]any, error) {
	out := map[string]any{}
	for key, items := range map[string]*refractv1beta1.InjectedItems{"fromService": s.fromService, "effective": s.effective} {
		if items == nil {
			continue
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(items)
		if err != nil {
			return nil, fmt.Errorf("encoding what a Service says: %w", err)
		}
		out[key] = content
	}
	if s.condition != nil {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(s.condition)
		if err != nil {
			return nil, fmt.Errorf("encoding a condition: %w", err)
		}
		out["conditions"] = []any{content}
	}
	return out, nil
}
