package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/injection/inject"
)

// proposed is the API version of ServiceInjectionPolicy in the original proposal. No API server can serve it any more.
const proposed = "extensions/v1beta1"

// injectionKind is the kind of injection policies.
var injectionKind = schema.GroupKind{Group: refractv1beta1.GroupVersion.Group, Kind: refractv1beta1.KindServiceInjectionPolicy}

func isInjection(gk schema.GroupKind) bool { return gk == injectionKind }

// modernize sets the present API version in a policy that still has the API version of the original proposal. The content
// may be shared with other objects, so it is copied and not modified.
func (o *object) modernize() {
	if o.Content.Object["apiVersion"] != proposed || o.Content.Object["kind"] != refractv1beta1.KindServiceInjectionPolicy {
		return
	}
	o.former = proposed
	content := maps.Clone(o.Content.Object)
	content["apiVersion"] = refractv1beta1.GroupVersion.String()
	o.Content = &unstructured.Unstructured{Object: content}
}

// checkInjection checks that the kind and version exist.
func (o *object) checkInjection() {
	if isInjection(o.gvk.GroupKind()) {
		o.checkServed(refractv1beta1.GroupVersion)
		return
	}
	hint := "its kind is " + injectionKind.Kind
	if near := nearest.To(o.gvk.Kind, []string{injectionKind.Kind}); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	o.report("kind", fmt.Sprintf("%s has no kind %s", refractv1beta1.GroupVersion, o.gvk.Kind), hint)
}

// decodeInjection decodes and compiles a policy. The policy is also an object that can be propagated.
func (o *object) decodeInjection() {
	for _, msg := range validation.NameIsDNSSubdomain(o.Content.GetName(), false) {
		o.report("metadata.name", fmt.Sprintf("is %q: %s", o.Content.GetName(), msg), "")
	}
	var compiled *inject.Policy
	p := decodeStrictly[refractv1beta1.ServiceInjectionPolicy](o, true)
	if p != nil {
		c, errs := inject.Compile(p)
		o.reportAll(errs)
		compiled = c
	}
	if o.stored { // The policy is in the cluster in any case, and in force if it compiles.
		o.wrong = false
	} else {
		o.quoteNumbers()
	}
	if o.former != "" {
		o.note("apiVersion", fmt.Sprintf("%s is read as %s", o.former, refractv1beta1.GroupVersion), "no API server serves "+o.former+" any more")
	}
	o.add = func(s *Set) {
		s.Objects = append(s.Objects, o.Object)
		if compiled != nil {
			s.InjectionPolicies = append(s.InjectionPolicies,
				Policy[refractv1beta1.ServiceInjectionPolicy, inject.Policy]{Place: o.Place, Policy: p, Compiled: compiled, lines: o.lines})
		}
	}
}

// quoteNumbers converts numbers among the values of variables to strings, like the API server.
func (o *object) quoteNumbers() {
	spec, _ := o.Content.Object["spec"].(map[string]any)
	env, _ := spec["env"].([]any)
	isNumber := func(variable any) bool {
		m, _ := variable.(map[string]any)
		_, number := m["value"].(int64)
		return number
	}
	if !slices.ContainsFunc(env, isNumber) {
		return
	}
	env = slices.Clone(env)
	for i := range env {
		variable, _ := env[i].(map[string]any)
		if number, ok := variable["value"].(int64); ok {
			variable = maps.Clone(variable)
			variable["value"] = strconv.FormatInt(number, 10)
			env[i] = variable
		}
	}
	spec = maps.Clone(spec)
	spec["env"] = env
	content := maps.Clone(o.Content.Object)
	content["spec"] = spec
	o.Content = &unstructured.Unstructured{Object: content}
}
