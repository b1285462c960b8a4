// Package schema knows the types of API servers, and finds the places where an object does not fit its type: values of
// a wrong type, unknown fields, values outside an enumeration, and duplicate elements of lists.
//
// The built-in types come from kubernetes.txt, which is generated from the OpenAPI documents in the repository of
// Kubernetes. Custom types come from CustomResourceDefinitions.
//
// An API server rejects all reported mismatches, at the latest when the object is applied server-side with strict field
// validation, as by kubectl. An API server rejects more objects: those that violate rules in code (that a port is below
// 65536, that a selector matches a template), the CEL rules of a CustomResourceDefinition (x-kubernetes-validations),
// and rules that depend on other objects. The status of an object is not checked, because only controllers write it.
package schema
