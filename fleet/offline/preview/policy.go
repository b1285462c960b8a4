package preview

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/injection/inject"
)

// Policy is a policy of the set.
type Policy struct {
	// Manifest is the policy in the input.
	Manifest *manifest.Policy[refractv1beta1.ServiceInjectionPolicy, inject.Policy]
	// Compiled is the policy, completed by the annotations of its Service if it asks for that; nil if the result is not
	// valid.
	Compiled *inject.Policy
	// Service is the Service that completes the policy; nil without one.
	Service *manifest.Object
	// Missing reports that the policy asks for the data of a Service, and that neither the input has the Service nor
	// the status of the policy has the data.
	Missing bool
	// AnnotationErrors are the errors in the annotations of the Service.
	AnnotationErrors field.ErrorList
	// CompileErrors are the reasons why the completed policy is not valid.
	CompileErrors field.ErrorList
}

// policiesOf returns the policies of the set, completed by its Services.
func policiesOf(set *manifest.Set) []Policy {
	services := map[types.NamespacedName]*manifest.Object{}
	for i := range set.Objects {
		if o := &set.Objects[i]; kindOf(o) == (schema.GroupKind{Kind: "Service"}) {
			services[types.NamespacedName{Namespace: o.Content.GetNamespace(), Name: o.Content.GetName()}] = o
		}
	}
	var policies []Policy
	for i := range set.InjectionPolicies {
		p := Policy{Manifest: &set.InjectionPolicies[i], Compiled: set.InjectionPolicies[i].Compiled}
		if policy := p.Manifest.Policy; policy.Spec.Implicit {
			p.completeBy(services[types.NamespacedName{Namespace: policy.Namespace, Name: policy.Spec.Service}])
		}
		policies = append(policies, p)
	}
	return policies
}

// completeBy completes the policy by a Service. If service is nil, the status of the policy is used.
func (p *Policy) completeBy(service *manifest.Object) {
	if service == nil {
		p.Missing = p.Manifest.Policy.Status.FromService == nil
		return
	}
	p.Service = service
	var typed corev1.Service
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(service.Content.Object, &typed); err != nil {
		p.AnnotationErrors = field.ErrorList{field.Invalid(field.NewPath("spec"), field.OmitValueType{}, fmt.Sprintf("is no Service: %v", err))}
		return
	}
	items, errs := inject.FromService(&typed)
	p.AnnotationErrors = errs
	whole := p.Manifest.Policy.DeepCopy()
	whole.Status.FromService = items
	p.Compiled, p.CompileErrors = inject.Compile(whole)
}
