// Package v1beta1 holds ServiceInjectionPolicy of the API group refract.dev: what
// the consumers of a service need, and which pods of a namespace these are.
//
// The kind and its first fields are those of the proposal "Service Injection
// Policy" for Kubernetes (2016), which became PodPreset and was removed in
// Kubernetes 1.20. The rest of the fields are additions; absent they leave the
// proposal's behaviour as it was.
//
// +kubebuilder:object:generate=true
// +groupName=refract.dev
package v1beta1
