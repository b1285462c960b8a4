package propagation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/internal/member"
)

// podSecurity begins the labels by which an API server judges the pods of a namespace:
// https://kubernetes.io/docs/concepts/security/pod-security-admission/
const podSecurity = "pod-security.kubernetes.io/"

// versionSuffix is what the label ends with that says by which version of a standard a
// namespace is judged; without it is the label that says which standard that is.
const versionSuffix = "-version"

// CheckNamespaceLabel returns an error unless the pattern is a label, as KEY, or all of a
// prefix, as PREFIX/*.
func CheckNamespaceLabel(pattern string) error {
	key := pattern
	if prefix, all := strings.CutSuffix(pattern, "/*"); all {
		key = prefix + "/x"
	}
	if msgs := validation.IsQualifiedName(key); len(msgs) > 0 {
		return fmt.Errorf("%q is neither the key of a label nor PREFIX/*: %s", pattern, msgs[0])
	}
	if strings.HasPrefix(key, corev1alpha1.Prefix) {
		return fmt.Errorf("%q: labels of %s speak to the hub and do not travel", pattern, corev1alpha1.Prefix)
	}
	return nil
}

// namespaceLabels are patterns of labels that a namespace which is made on a member has
// as on the hub: those that [CheckNamespaceLabel] allows. Those of pod security are always
// among them.
type namespaceLabels []string

func (l namespaceLabels) match(key string) bool {
	return strings.HasPrefix(key, podSecurity) || slices.ContainsFunc(l, func(pattern string) bool {
		prefix, all := strings.CutSuffix(pattern, "*")
		return key == pattern || (all && strings.HasPrefix(key, prefix))
	})
}

// of returns those of the labels that match.
func (l namespaceLabels) of(labels map[string]string) map[string]string {
	matching := map[string]string{}
	for key, value := range labels {
		if l.match(key) {
			matching[key] = value
		}
	}
	return matching
}

// changes returns what has to become of a namespace's labels so that it has those that
// are wanted: their values, nil for one to be removed. A label that somebody on the
// member has set stays as it is, as it may be stricter; so does the other of the two that
// say a standard and its version.
func (l namespaceLabels) changes(ns *member.Namespace, want map[string]string) map[string]any {
	set := func(key string) bool {
		_, there := ns.Labels[key]
		return there && !ns.Own[key]
	}
	theirs := func(key string) bool { return set(key) || set(counterpart(key)) }
	changes := map[string]any{}
	for key, value := range want {
		if is, there := ns.Labels[key]; (!there || is != value) && !theirs(key) {
			changes[key] = value
		}
	}
	for key := range ns.Labels {
		if _, wanted := want[key]; !wanted && l.match(key) && !theirs(key) {
			changes[key] = nil
		}
	}
	return changes
}

// counterpart returns the label of pod security that goes with one; "" if none does.
func counterpart(key string) string {
	if !strings.HasPrefix(key, podSecurity) {
		return ""
	}
	if standard, ok := strings.CutSuffix(key, versionSuffix); ok {
		return standard
	}
	return key + versionSuffix
}
