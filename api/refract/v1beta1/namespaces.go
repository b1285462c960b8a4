package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ExemptNamespaces returns the namespaces whose pods are never injected, whatever their policies say: kube-system,
// kube-node-lease, and the given system namespace of Refract.
func ExemptNamespaces(system string) []string {
	return []string{metav1.NamespaceSystem, corev1.NamespaceNodeLease, system}
}
