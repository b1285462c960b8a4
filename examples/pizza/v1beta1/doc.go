// Package v1beta1 has the kind Pizza of the restaurant in its second version, whose toppings have a quantity.
//
// +kubebuilder:object:generate=true
// +groupName=restaurant.programming-kubernetes.info
package v1beta1
