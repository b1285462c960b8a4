package v1alpha1

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
	// Toppings are names of Toppings. One that is named more than once is on the
	// pizza as often. The order does not matter. Empty means what the restaurant
	// recommends.
	Toppings []string `json:"toppings,omitempty"`
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

// Topping is something that the restaurant can put on a pizza. It has no
// namespace.
//
// +kubebuilder:object:root=true
type Topping struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitzero"`

	Spec ToppingSpec `json:"spec"`
}

// ToppingSpec says what a topping is.
type ToppingSpec struct {
	// Cost is what it costs to have it on a pizza once. 0 or more.
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
