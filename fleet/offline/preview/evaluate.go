// Package preview computes the content of pods offline. [Evaluate] applies the ServiceInjectionPolicies of a
// [manifest.Set] to its pods, and to the pods that its workloads would create, with the engine of the webhook. The
// Write functions write the result as YAML, JSON or a diff.
package preview

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/policy/podtemplate"
	"refract.dev/injection/inject"
)

// Evaluation is the result for the pods of a set.
type Evaluation struct {
	// Pods are the pods of the set, and one pod of each workload, in the order of the input.
	Pods []Pod
	// Policies are in the order of the input.
	Policies []Policy
}

// Evaluate computes the effect of policies on the pods of their namespace. The set is not modified. An error in one pod
// or policy does not affect the others. Policies without a creation time are sorted by name and come before the others.
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

// isExempt reports whether Refract injects nothing into pods of a namespace, if Refract is installed in its default
// namespace.
func isExempt(namespace string) bool {
	return slices.Contains(refractv1beta1.ExemptNamespaces(corev1alpha1.SystemNamespace), namespace)
}

// kindOf returns the kind of an object.
func kindOf(o *manifest.Object) schema.GroupKind { return o.Content.GroupVersionKind().GroupKind() }
