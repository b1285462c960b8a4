// Package v1alpha1 holds the types of the API group refract.dev that Refract adds to those of KubeAdmiral: Propagation
// and ClusterPropagation report the clusters of an object and the state of its copies, RolloutPolicy and
// ClusterRolloutPolicy send changes to clusters in waves, ConversionPolicy converts custom resources.
//
// +kubebuilder:object:generate=true
// +groupName=refract.dev
package v1alpha1
