// Package v1alpha1 has the kinds Pizza and Topping of the restaurant in the first version. A pizza lists the names of
// its toppings, and a repeated name counts each time.
//
// +kubebuilder:object:generate=true
// +groupName=restaurant.programming-kubernetes.info
package v1alpha1
