// Package v1alpha1 holds the kinds Pizza and Topping of the restaurant in the
// version with which it opened: a pizza lists its toppings, and has one twice
// that is named twice.
//
// +kubebuilder:object:generate=true
// +groupName=restaurant.programming-kubernetes.info
package v1alpha1
