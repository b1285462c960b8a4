// Package schema knows what an API server takes for an object of a given type,
// and finds the places where an object is something else: values of a wrong
// type, fields that do not exist, values that an enumeration does not list, and
// lists that name an element twice.
//
// It knows the types of Kubernetes itself from kubernetes.txt, which is generated
// from the OpenAPI documents in the repository of Kubernetes, and those of the
// CustomResourceDefinitions it is given.
//
// What it finds an API server refuses, at the latest when the object is applied
// server-side with strict validation of fields, as kubectl does. An API server
// refuses more: what takes code to decide (that a port is below 65536, that a
// selector matches a template), the rules in CEL of a CustomResourceDefinition
// (x-kubernetes-validations), and what depends on other objects. The status of an
// object is not looked at, as only a server writes it.
package schema
