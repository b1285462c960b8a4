package manifest

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	utiljson "sigs.k8s.io/json"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/offline/manifest/nearest"
	"refract.dev/override"
	"refract.dev/placement"
)

// ourKind says whether a kind of ours is namespaced, and how its objects are
// decoded.
type ourKind struct {
	namespaced bool
	decode     func(*object)
}

var ourKinds = map[string]ourKind{
	corev1alpha1.KindOverridePolicy: {true, policies(override.Compile,
		func(s *Set) *[]Policy[corev1alpha1.OverridePolicy, override.Policy] { return &s.OverridePolicies })},
	corev1alpha1.KindClusterOverridePolicy: {false, policies(override.CompileCluster,
		func(s *Set) *[]Policy[corev1alpha1.ClusterOverridePolicy, override.Policy] {
			return &s.ClusterOverridePolicies
		})},
	corev1alpha1.KindPropagationPolicy: {true, policies(placement.Compile,
		func(s *Set) *[]Policy[corev1alpha1.PropagationPolicy, placement.Policy] {
			return &s.PropagationPolicies
		})},
	corev1alpha1.KindClusterPropagationPolicy: {false, policies(placement.CompileCluster,
		func(s *Set) *[]Policy[corev1alpha1.ClusterPropagationPolicy, placement.Policy] {
			return &s.ClusterPropagationPolicies
		})},
	corev1alpha1.KindFederatedCluster: {false, decodeCluster},
}

// Understands reports whether objects of a kind are policies, clusters or reports,
// which have lists of their own in a [Set].
func Understands(kind schema.GroupVersionKind) bool {
	_, known := ourKinds[kind.Kind]
	return (known && kind.GroupVersion() == corev1alpha1.GroupVersion) ||
		((isReport(kind.GroupKind()) || isRollout(kind.GroupKind())) && kind.GroupVersion() == refractv1alpha1.GroupVersion)
}

// ours reports whether a group is that of policies and clusters.
func ours(group string) bool { return group == corev1alpha1.GroupVersion.Group }

// checkOurs checks that there is such a kind.
func (o *object) checkOurs() {
	o.checkServed(corev1alpha1.GroupVersion)
	if _, ok := ourKinds[o.gvk.Kind]; ok {
		return
	}
	names := slices.Sorted(maps.Keys(ourKinds))
	hint := "its kinds are " + strings.Join(names, ", ")
	if near := nearest.To(o.gvk.Kind, names); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	o.report("kind", fmt.Sprintf("group %s has no kind %s", o.gvk.Group, o.gvk.Kind), hint)
}

// checkServed checks that the object's version is the one that there is.
func (o *object) checkServed(served schema.GroupVersion) {
	if o.gvk.Version != served.Version {
		o.report("apiVersion", fmt.Sprintf("%s is not served, only %s", o.gvk.GroupVersion(), served), "")
	}
}

// decodeOurs decodes an object of ours.
func (o *object) decodeOurs() {
	for _, msg := range validation.NameIsDNSSubdomain(o.Content.GetName(), false) {
		o.report("metadata.name", fmt.Sprintf("is %q: %s", o.Content.GetName(), msg), "")
	}
	ourKinds[o.gvk.Kind].decode(o)
}

// policies returns what decodes and compiles the policies of one kind.
func policies[T, C any](compile func(*T) (*C, field.ErrorList), list func(*Set) *[]Policy[T, C]) func(*object) {
	return func(o *object) {
		if name := o.Content.GetName(); len(name) > maxPolicyName {
			o.report("metadata.name", fmt.Sprintf("has %d characters, want at most %d: objects name the policy in a label value", len(name), maxPolicyName), "")
		}
		p := decodeStrictly[T](o, true)
		if p == nil {
			return
		}
		fillIn(o.Content.Object, p)
		compiled, errs := compile(p)
		wrong := o.wrong
		o.reportAll(errs)
		if o.stored { // It is in force all the same, and fails where its invalid rules hold, or releases nothing.
			o.wrong = wrong
		}
		o.add = func(s *Set) {
			to := list(s)
			*to = append(*to, Policy[T, C]{Place: o.Place, Policy: p, Compiled: compiled, lines: o.lines})
		}
	}
}

// fillIn gives a policy what an API server fills in, where that is not what the
// absence means.
func fillIn(content map[string]any, policy any) {
	var spec *corev1alpha1.PropagationPolicySpec
	switch p := policy.(type) {
	case *corev1alpha1.PropagationPolicy:
		spec = &p.Spec
	case *corev1alpha1.ClusterPropagationPolicy:
		spec = &p.Spec
	}
	if spec == nil || spec.ReschedulePolicy == nil {
		return
	}
	absent := func(path ...string) bool {
		_, there, err := unstructured.NestedFieldNoCopy(content, append([]string{"spec", "reschedulePolicy"}, path...)...)
		return err == nil && !there
	}
	if t := spec.ReschedulePolicy.Trigger; t != nil && absent("rescheduleWhen", "policyContentChanged") {
		t.PolicyContentChanged = true
	}
	if r := spec.ReschedulePolicy.ReplicaRescheduling; r != nil && absent("replicaRescheduling", "avoidDisruption") {
		r.AvoidDisruption = true
	}
}

// maxPolicyName is how long a label value, by which objects name a policy, can
// be.
const maxPolicyName = 63

// decodeCluster decodes a cluster. Nothing is asked of it but its name: it is not
// going to be reached.
func decodeCluster(o *object) {
	cluster := decodeStrictly[corev1alpha1.FederatedCluster](o, false)
	o.add = func(s *Set) {
		s.Clusters = append(s.Clusters, Cluster{Place: o.Place, Cluster: cluster, lines: o.lines})
	}
}

// decodeStrictly decodes an object and reports what is not as T wants it: the
// status excepted, which is not for a manifest to say. What can be decoded all
// the same is returned, so that more mistakes can be found; otherwise nil.
func decodeStrictly[T any](o *object, required bool) *T {
	content := maps.Clone(o.Content.Object)
	delete(content, "status")
	for _, m := range conform(content, reflect.TypeFor[T](), nil, required) {
		o.report(m.path.String(), m.fact, m.hint)
	}
	return decodeTyped[T](o)
}

// decodeTyped decodes an object, or reports why it cannot, if nothing else was
// reported, and returns nil.
func decodeTyped[T any](o *object) *T {
	data, ok := o.encode()
	if !ok {
		return nil
	}
	var typed T
	if err := utiljson.UnmarshalCaseSensitivePreserveInts(data, &typed); err != nil {
		if !o.wrong {
			o.report("", fmt.Sprintf("is no %s: %v", o.gvk.Kind, err), "")
		}
		return nil
	}
	return &typed
}
