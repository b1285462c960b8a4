package propagation

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/member"
)

// podSecurity is the prefix of the labels for Pod Security Admission, which judges the pods of a namespace:
// https://kubernetes.io/docs/concepts/security/pod-security-admission/
const podSecurity = "pod-security.kubernetes.io/"

// versionSuffix ends the label with the version of a Pod Security Standard. The label without the suffix names the
// standard.
const versionSuffix = "-version"

// CheckNamespaceLabel returns an error unless the pattern is a label, as KEY, or all labels with a prefix, as
// PREFIX/*. It also rejects the labels of KubeAdmiral, which do not travel.
func CheckNamespaceLabel(pattern string) error {
	key := pattern
	if prefix, all := strings.CutSuffix(pattern, "/*"); all {
		key = prefix + "/x"
	}
	if msgs := validation.IsQualifiedName(key); len(msgs) > 0 {
		return fmt.Errorf("%q is neither the key of a label nor PREFIX/*: %s", pattern, msgs[0])
	}
	if strings.HasPrefix(key, corev1alpha1.Prefix) {
		return fmt.Errorf("%q: labels of %s are for the hub and do not travel", pattern, corev1alpha1.Prefix)
	}
	return nil
}

// namespaceLabels are patterns of labels that Refract copies from a namespace of the hub to the namespace that it
// creates on a member. [CheckNamespaceLabel] defines the allowed patterns. The labels of pod security are always
// copied.
type namespaceLabels []string

func (l namespaceLabels) match(key string) bool {
	return strings.HasPrefix(key, podSecurity) || slices.ContainsFunc(l, func(pattern string) bool {
		prefix, all := strings.CutSuffix(pattern, "*")
		return key == pattern || (all && strings.HasPrefix(key, prefix))
	})
}

// of returns the labels that match a pattern.
func (l namespaceLabels) of(labels map[string]string) map[string]string {
	matching := map[string]string{}
	for key, value := range labels {
		if l.match(key) {
			matching[key] = value
		}
	}
	return matching
}

// changes returns the changes that give a namespace the wanted labels: the new values, and nil for each label to
// remove. A label that another client set on the member stays unchanged, because it may be stricter. Its [counterpart],
// the other label of the pair of standard and version, stays unchanged as well.
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

// counterpart returns the other label of a pair in pod security: the version of a standard, or the standard of a
// version. It returns "" for other labels.
func counterpart(key string) string {
	if !strings.HasPrefix(key, podSecurity) {
		return ""
	}
	if standard, ok := strings.CutSuffix(key, versionSuffix); ok {
		return standard
	}
	return key + versionSuffix
}
