// Package v1beta1 holds the kind Pizza of the restaurant in the version in which
// a topping says how often it is on the pizza.
//
// +kubebuilder:object:generate=true
// +groupName=restaurant.programming-kubernetes.info
package v1beta1
