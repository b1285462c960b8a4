package v1beta1

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
	// Toppings of the pizza. The order has no meaning, and a topping may be split over several entries. If empty, the
	// pizza gets the toppings that the restaurant recommends.
	Toppings []PizzaTopping `json:"toppings,omitempty"`
}

// PizzaTopping is a topping of a pizza.
type PizzaTopping struct {
	// Name of a Topping.
	Name string `json:"name"`
	// Quantity of the topping: 1 to 1000. 0 means that the quantity is not set, and counts as 1.
	Quantity int64 `json:"quantity,omitempty"`
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
