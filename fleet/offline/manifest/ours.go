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
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
)

// ourKind describes a kind of the group core.kubeadmiral.io: its scope and the decoder of its objects.
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

// Understands reports whether a kind is that of policies, clusters or reports, which have lists of their own in a
// [Set].
func Understands(kind schema.GroupVersionKind) bool {
	_, known := ourKinds[kind.Kind]
	return (known && kind.GroupVersion() == corev1alpha1.GroupVersion) ||
		((isReport(kind.GroupKind()) || isRollout(kind.GroupKind())) && kind.GroupVersion() == refractv1alpha1.GroupVersion)
}

// ours reports whether a group is that of policies and clusters (core.kubeadmiral.io).
func ours(group string) bool { return group == corev1alpha1.GroupVersion.Group }

// checkOurs checks that the kind and version exist.
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

// checkServed checks that the object has the only served version.
func (o *object) checkServed(served schema.GroupVersion) {
	if o.gvk.Version != served.Version {
		o.report("apiVersion", fmt.Sprintf("%s is not served, only %s", o.gvk.GroupVersion(), served), "")
	}
}

// decodeOurs decodes an object of the group core.kubeadmiral.io.
func (o *object) decodeOurs() {
	for _, msg := range validation.NameIsDNSSubdomain(o.Content.GetName(), false) {
		o.report("metadata.name", fmt.Sprintf("is %q: %s", o.Content.GetName(), msg), "")
	}
	ourKinds[o.gvk.Kind].decode(o)
}

// policies returns the decoder of one kind of policies, which also compiles them.
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
		if o.stored { // The policy is in force anyway: it fails where its invalid rules apply, or releases nothing.
			o.wrong = wrong
		}
		o.add = func(s *Set) {
			to := list(s)
			*to = append(*to, Policy[T, C]{Place: o.Place, Policy: p, Compiled: compiled, lines: o.lines})
		}
	}
}

// fillIn adds the defaults of an API server to a policy, as far as they differ from the meaning of an absent field.
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

// maxPolicyName is the maximum length of a label value, because objects name their policies in labels.
const maxPolicyName = 63

// decodeCluster decodes a cluster. Only its name is required, because nothing connects to it.
func decodeCluster(o *object) {
	cluster := decodeStrictly[corev1alpha1.FederatedCluster](o, false)
	o.add = func(s *Set) {
		s.Clusters = append(s.Clusters, Cluster{Place: o.Place, Cluster: cluster, lines: o.lines})
	}
}

// decodeStrictly decodes an object and reports all fields that do not fit T, except in the status, which manifests do
// not determine. It returns the decoded object even with mistakes, so that more of them can be found; nil if decoding
// fails.
func decodeStrictly[T any](o *object, required bool) *T {
	content := maps.Clone(o.Content.Object)
	delete(content, "status")
	for _, m := range conform(content, reflect.TypeFor[T](), nil, required) {
		o.report(m.path.String(), m.fact, m.hint)
	}
	return decodeTyped[T](o)
}

// decodeTyped decodes an object. If decoding fails, it returns nil, and reports the error if the object has no other
// problem.
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
