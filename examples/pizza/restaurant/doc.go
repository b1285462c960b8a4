// Package restaurant is the webhook of a restaurant whose pizzas are custom
// resources of two versions: it converts them from one to the other, gives those
// without toppings what the restaurant recommends, and refuses those with toppings
// that it does not have.
//
// The example is that of chapter 9 of "Programming Kubernetes" by Michael Hausenblas
// and Stefan Schimanski.
package restaurant
