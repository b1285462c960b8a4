// Package v1beta1 holds ServiceInjectionPolicy of the API group refract.dev. A policy selects pods of its namespace
// that consume a service, and lists the items that they need.
//
// The kind and its first fields are those of the Kubernetes proposal "Service Injection Policy" (2016), which became
// PodPreset and was removed in Kubernetes 1.20. The other fields are additions. Without them a policy behaves as in the
// proposal.
//
// +kubebuilder:object:generate=true
// +groupName=refract.dev
package v1beta1
