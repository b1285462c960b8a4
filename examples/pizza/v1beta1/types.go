package v1beta1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Pizza is a pizza that somebody wants.
//
// +kubebuilder:object:root=true
type Pizza struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec   PizzaSpec   `json:"spec"`
	Status PizzaStatus `json:"status,omitzero"`
}

// PizzaSpec says what is on a pizza.
type PizzaSpec struct {
	// Toppings are what is on the pizza. The order does not matter, and neither does
	// it whether a topping stands in one entry or in several. Empty means what the
	// restaurant recommends.
	Toppings []PizzaTopping `json:"toppings,omitempty"`
}

// PizzaTopping is a topping of a pizza.
type PizzaTopping struct {
	// Name is that of a Topping.
	Name string `json:"name"`
	// Quantity is how often the topping is on the pizza: 1 to 1000. 0 is what is not
	// said, and means 1.
	Quantity int64 `json:"quantity,omitempty"`
}

// PizzaStatus is what the restaurant says of a pizza.
type PizzaStatus struct {
	// Cost is what the pizza costs, with all that is on it.
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
