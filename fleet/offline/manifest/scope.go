package manifest

import (
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// clusterScoped are the cluster-scoped kinds of Kubernetes, by group. Kinds that cannot be written (ComponentStatus,
// reviews) are left out.
//
// Source: https://kubernetes.io/docs/reference/kubernetes-api/, the paths of the operations of each kind, for
// Kubernetes 1.37; and the CustomResourceDefinitions and APIServices that every cluster can serve.
var clusterScoped = map[string][]string{
	"": {"Namespace", "Node", "PersistentVolume"},
	"admissionregistration.k8s.io": {
		"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration",
	},
	"apiextensions.k8s.io":         {"CustomResourceDefinition"},
	"apiregistration.k8s.io":       {"APIService"},
	"certificates.k8s.io":          {"CertificateSigningRequest", "ClusterTrustBundle"},
	"flowcontrol.apiserver.k8s.io": {"FlowSchema", "PriorityLevelConfiguration"},
	"internal.apiserver.k8s.io":    {"StorageVersion"},
	"networking.k8s.io":            {"IPAddress", "IngressClass", "ServiceCIDR"},
	"node.k8s.io":                  {"RuntimeClass"},
	"rbac.authorization.k8s.io":    {"ClusterRole", "ClusterRoleBinding"},
	"resource.k8s.io":              {"DeviceClass", "DeviceTaintRule", "ResourcePoolStatusRequest", "ResourceSlice"},
	"scheduling.k8s.io":            {"PriorityClass"},
	"storage.k8s.io":               {"CSIDriver", "CSINode", "StorageClass", "VolumeAttachment", "VolumeAttributesClass"},
	"storagemigration.k8s.io":      {"StorageVersionMigration"},
}

// builtInScopes tells whether kinds are namespaced: Refract's kinds, and the cluster-scoped kinds of Kubernetes.
func builtInScopes() map[schema.GroupKind]bool {
	scopes := map[schema.GroupKind]bool{}
	for group, kinds := range clusterScoped {
		for _, kind := range kinds {
			scopes[schema.GroupKind{Group: group, Kind: kind}] = false
		}
	}
	for kind, k := range ourKinds {
		scopes[schema.GroupKind{Group: corev1alpha1.GroupVersion.Group, Kind: kind}] = k.namespaced
	}
	scopes[injectionKind] = true
	for kind, namespaced := range reports {
		scopes[schema.GroupKind{Group: refractv1alpha1.GroupVersion.Group, Kind: kind}] = namespaced
	}
	for kind, namespaced := range rollouts {
		scopes[schema.GroupKind{Group: refractv1alpha1.GroupVersion.Group, Kind: kind}] = namespaced
	}
	return scopes
}
