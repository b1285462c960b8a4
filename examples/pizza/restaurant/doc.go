// Package restaurant is the webhook of a restaurant whose pizzas are custom resources with two versions. It converts
// between the versions, gives pizzas without toppings the recommended ones, and rejects pizzas with toppings that the
// restaurant does not have.
//
// The example comes from chapter 9 of "Programming Kubernetes" by Michael Hausenblas and Stefan Schimanski.
package restaurant
