package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Pizza is an ordered pizza.
//
// +kubebuilder:object:root=true
type Pizza struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   PizzaSpec   `json:"spec"`
	Status PizzaStatus `json:"status,omitzero"`
}

// PizzaSpec has the content of a pizza.
type PizzaSpec struct {
	// Toppings are names of Toppings. A repeated name counts each time. The order has no meaning. If empty, the pizza
	// gets the toppings that the restaurant recommends.
	Toppings []string `json:"toppings,omitempty"`
}

// PizzaStatus has the restaurant's information about a pizza.
type PizzaStatus struct {
	// Cost of the pizza, including its toppings.
	Cost float64 `json:"cost,omitempty"`
}

// PizzaList is a list of pizzas.
//
// +kubebuilder:object:root=true
type PizzaList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Pizza `json:"items"`
}

// Topping is a topping that the restaurant offers. It is cluster-scoped.
//
// +kubebuilder:object:root=true
type Topping struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec ToppingSpec `json:"spec"`
}

// ToppingSpec has the properties of a topping.
type ToppingSpec struct {
	// Cost of the topping for each time that it is on a pizza. 0 or more.
	Cost float64 `json:"cost"`
}

// ToppingList is a list of toppings.
//
// +kubebuilder:object:root=true
type ToppingList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitzero"`

	Items []Topping `json:"items"`
}
