// Package v1alpha1 holds the types of the API group core.kubeadmiral.io: policies that place an object of the hub on
// member clusters (PropagationPolicy, ClusterPropagationPolicy), policies that change its content for single clusters
// (OverridePolicy, ClusterOverridePolicy), and the member clusters (FederatedCluster).
//
// Fields, enums and defaults are those of KubeAdmiral's group of the same name, so that a manifest written for
// KubeAdmiral applies unchanged. A field that promises more than in KubeAdmiral says so.
//
// +kubebuilder:object:generate=true
// +groupName=core.kubeadmiral.io
package v1alpha1
