// Package v1alpha1 holds the types of the API group core.kubeadmiral.io: the
// policies that say where an object of the hub goes (PropagationPolicy,
// ClusterPropagationPolicy), how it differs there (OverridePolicy,
// ClusterOverridePolicy), and the clusters themselves (FederatedCluster).
//
// Fields, enums and defaults are those of KubeAdmiral's group of the same name,
// so that a manifest written for it applies unchanged. Where Refract promises
// more than KubeAdmiral does, the field says so.
//
// +kubebuilder:object:generate=true
// +groupName=core.kubeadmiral.io
package v1alpha1
