package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExemptNamespaces returns the namespaces into whose pods nothing is injected,
// whatever policies there say: those of the cluster itself, and the one given, which
// is that of Refract.
func ExemptNamespaces(system string) []string {
	return []string{metav1.NamespaceSystem, corev1.NamespaceNodeLease, system}
}
