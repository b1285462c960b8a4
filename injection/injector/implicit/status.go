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
	"refract.dev/injection/inject"
	"refract.dev/internal/output"
)

// Reasons of the condition ServiceFound.
const (
	reasonFound              = "Found"
	reasonNotFound           = "NotFound"
	reasonInvalidAnnotations = "InvalidAnnotations"
)

// longestMessage is the maximum size of the errors in a condition, in bytes. An error may quote an annotation, which
// may be long.
const longestMessage = 2000

// serviceStatus is the part of a policy's status that comes from its Service. If the policy does not have implicit:
// true, all fields are nil.
type serviceStatus struct {
	fromService, effective *refractv1beta1.InjectedItems
	condition              *metav1.Condition
}

// serviceStatusOf returns the current serviceStatus of a policy.
func serviceStatusOf(p *refractv1beta1.ServiceInjectionPolicy) serviceStatus {
	return serviceStatus{
		fromService: p.Status.FromService, effective: p.Status.Effective,
		condition: meta.FindStatusCondition(p.Status.Conditions, refractv1beta1.ConditionServiceFound),
	}
}

// complete returns the expected serviceStatus of a policy. service is nil if the Service does not exist. complete
// modifies neither argument.
//
// If an annotation is invalid, fromService keeps its earlier value. Otherwise a mistake in one annotation would remove
// the items of the other annotations, and would recreate all pods. If fromService has no earlier value, it gets the
// items of the valid annotations. The earlier value also remains if all annotations are valid but their items would
// make the policy invalid. The policy's own items are always injected.
func complete(p *refractv1beta1.ServiceInjectionPolicy, service *corev1.Service, now metav1.Time) serviceStatus {
	if !p.Spec.Implicit {
		return serviceStatus{}
	}
	out := serviceStatus{condition: &metav1.Condition{
		Type: refractv1beta1.ConditionServiceFound, Status: metav1.ConditionFalse, ObservedGeneration: p.Generation, LastTransitionTime: now,
	}}
	c := out.condition
	name := output.Cut(p.Spec.Service, validation.DNS1035LabelMaxLength) // The name may be longer if the policy was stored before the CRD had this bound.
	if service == nil {
		c.Reason = reasonNotFound
		c.Message = fmt.Sprintf("there is no Service %s in the namespace: only the items of the policy itself are injected", name)
	} else {
		items, err := taken(p, service)
		if err != nil {
			c.Reason = reasonInvalidAnnotations
			c.Message = output.Cut(fmt.Sprintf("Service %s: %v", name, err), longestMessage) + "; until this is fixed, "
			if orNil(items) == nil && p.Status.FromService != nil {
				c.Message += "only the items of the policy itself are injected"
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

// taken returns the items that the policy takes over from the Service, and the error of the annotations. The items are
// never nil. If there is an error, they are the earlier items, those of the valid annotations, or none. They never
// invalidate a policy that is valid without them.
func taken(p *refractv1beta1.ServiceInjectionPolicy, service *corev1.Service) (*refractv1beta1.InjectedItems, error) {
	said := p.Status.FromService
	items, errs := inject.FromService(service)
	var err error = errs.ToAggregate()
	if err != nil && said != nil {
		items = said
	}
	nothing := &refractv1beta1.InjectedItems{}
	if fits(p, nothing) != nil {
		return items, err // The policy is invalid even without these items.
	}
	if wrong := fits(p, items); wrong != nil {
		if err == nil {
			err = fmt.Errorf("its annotations do not fit the policy: %w", wrong)
		}
		if items = said; items == nil || fits(p, items) != nil {
			items = nothing
		}
	}
	return items, err
}

// fits returns the reason why the policy is invalid together with these items; nil if it is valid.
func fits(p *refractv1beta1.ServiceInjectionPolicy, items *refractv1beta1.InjectedItems) error {
	completed := *p
	completed.Status.FromService = items
	_, errs := inject.Compile(&completed)
	return errs.ToAggregate()
}

// told describes the items of a Service in a sentence.
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
		return fmt.Sprintf("Service %s has no annotation for its consumers", service)
	}
	return fmt.Sprintf("Service %s provides: %s", service, strings.Join(parts, ", "))
}

func orNil(items *refractv1beta1.InjectedItems) *refractv1beta1.InjectedItems {
	if len(items.Env)+len(items.EnvFrom)+len(items.Volumes)+len(items.VolumeMounts) == 0 {
		return nil
	}
	return items
}

// same reports whether both statuses are equal, so that no write is needed.
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

// content returns a status that has only these parts. A typed status would also have the pod counts of the policy,
// which another writer owns.
func (s serviceStatus) content() (map[string]any, error) {
	out := map[string]any{}
	for key, items := range map[string]*refractv1beta1.InjectedItems{"fromService": s.fromService, "effective": s.effective} {
		if items == nil {
			continue
		}
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(items)
		if err != nil {
			return nil, fmt.Errorf("encoding the items of a Service: %w", err)
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
