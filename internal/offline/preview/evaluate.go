// Package preview answers offline what pods get: it applies the
// ServiceInjectionPolicies of a [manifest.Set] to its pods, and to the pods that
// its workloads would make, with the engine that the webhook uses ([Evaluate]),
// and writes the result as YAML, JSON or a diff.
package preview

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/inject"
	"refract.dev/internal/offline/manifest"
	"refract.dev/podtemplate"
)

// Evaluation is what becomes of the pods of a set.
type Evaluation struct {
	// Pods are in the order of the input: those of it, and one of each workload.
	Pods []Pod
	// Policies are in the order of the input.
	Policies []Policy
}

// Evaluate finds out what the pods of the set get from the policies of their
// namespace. Nothing in the set is modified. One pod or policy that is wrong stops
// no other. Policies that do not tell when they were created go by name, before those
// that do.
func Evaluate(set *manifest.Set) *Evaluation {
	e := &Evaluation{Policies: policiesOf(set)}
	byNamespace := map[string][]*inject.Policy{}
	for i := range e.Policies {
		if p := e.Policies[i].Compiled; p != nil {
			byNamespace[p.Namespace()] = append(byNamespace[p.Namespace()], p)
		}
	}
	sets := map[string]*inject.Set{}
	for namespace, policies := range byNamespace {
		sets[namespace] = inject.NewSet(policies...)
	}
	for i := range set.Objects {
		o := &set.Objects[i]
		kind := kindOf(o)
		pod := Pod{Object: o}
		switch pod.At, pod.Before = made(kind, o); {
		case pod.Before != nil && isExempt(o.Content.GetNamespace()):
			pod.inject(nil)
		case pod.Before != nil:
			pod.inject(sets[o.Content.GetNamespace()])
		case podtemplate.MakesPods(kind):
			pod.Err = errNoTemplate
		default:
			continue
		}
		e.Pods = append(e.Pods, pod)
	}
	return e
}

// isExempt reports whether nothing is injected into pods of a namespace, if Refract is
// where it is by default.
func isExempt(namespace string) bool {
	return slices.Contains(refractv1beta1.ExemptNamespaces(corev1alpha1.SystemNamespace), namespace)
}

// kindOf returns the kind of an object.
func kindOf(o *manifest.Object) schema.GroupKind { return o.Content.GroupVersionKind().GroupKind() }
