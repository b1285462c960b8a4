// Package v1alpha1 holds the types of the API group refract.dev that Refract
// adds to those of KubeAdmiral: Propagation and ClusterPropagation report where
// an object of the hub is, and what each member cluster got.
//
// +kubebuilder:object:generate=true
// +groupName=refract.dev
package v1alpha1
