// Package structural processes custom resources as an API server does, but without a server. It checks a
// CustomResourceDefinition ([Check]), and it prunes, defaults and validates objects by a definition ([New], [Version]).
//
// It uses the API server's own packages (https://pkg.go.dev/k8s.io/apiextensions-apiserver). So results and messages
// are those of the API server: of the Kubernetes version in go.mod, with default feature gates. In the documentation of
// this package, the server means the API server.
//
// Objects are JSON as decoded by k8s.io/apimachinery/pkg/util/json: integers are int64, other numbers float64. No
// function modifies its arguments, and all functions are safe for concurrent use.
//
// # Rules
//
// The rule of a [Finding] is the server's name of the error, such as FieldValueRequired or FieldValueForbidden
// (https://pkg.go.dev/k8s.io/apimachinery/pkg/util/validation/field#ErrorType), or one of these:
//
//	UnknownField            error    an unknown field of the manifest; kubectl rejects it
//	RemovedAPIVersion       error    a manifest in apiextensions.k8s.io/v1beta1
//	IntOrStringType         warning  a type next to x-kubernetes-int-or-string, where it has no effect
//	RequiredUnknownField    warning  a required field that is pruned, so that no object is valid
//	RootItems               warning  an array items at the root: the server takes each object for a list, and answers writes with HTTP 500
//	UnrecognizedFormat      warning  a format that is not validated (the server warns, too)
//	NonScalarSet            warning  a set of objects or arrays, which server-side apply and CEL do not support (the server warns, too)
//	InvalidCABundle         error    a caBundle of the conversion webhook without a certificate: the server does not establish the definition
//	InvalidCABundle         warning  the same in a definition that is already established
//	ConversionReviewV1      warning  a conversion webhook that gets only v1beta1 reviews, whose answers the server checks less strictly
//	YAMLBoolean             warning  a property named true or false, or such a value in an enum of strings: YAML reads words such as on and no as booleans
//	EnumOfAnotherType       warning  a value of an enum that the type excludes
//	EmptyRange              warning  a lower limit above the upper limit
//	NegativeLimit           warning  a negative length limit, or a multipleOf of 0 or less
//	MetadataWithoutProperties warning  metadata of a template without properties, whose content is pruned
//	NoneConversionDrops     warning  without conversion, a field that one version has and another lacks
//	NoneConversionType      warning  without conversion, a field of another type in another version
//	NoneConversionRequires  warning  without conversion, a field that one version requires and another lacks
//
// Without conversion means strategy None: the server then changes only the apiVersion. The storage version is compared
// with each other served version.
//
// [CheckUpdate] compares each version with the same version before the update. It warns about changes that the server
// accepts and that break objects or clients:
//
//	FieldRemoved            warning  a removed field: its values in objects are dropped
//	FieldsClosed            warning  an object that no longer accepts any field, or a map that no longer accepts any value
//	TypeChanged             warning  another type that does not accept all values of the old type
//	NullableRemoved         warning  a null that is no longer accepted
//	RequiredAdded           warning  a newly required field without a default
//	EnumNarrowed            warning  an enum that is new, or lacks a value
//	BoundTightened          warning  a bound that is new or tighter, or another pattern, format or multipleOf
//	ValidationAdded         warning  a new CEL rule, allOf, anyOf, oneOf, not or embedded resource that may reject valid objects
//	MergeChanged            warning  another type of list or map, or other keys, which server-side apply uses to merge
//	DefaultChanged          warning  a default that was changed or removed
//	VersionNotServed        warning  a version that is no longer served
package structural
