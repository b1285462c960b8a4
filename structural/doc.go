// Package structural does to a custom resource what an API server does, without
// one: it judges a CustomResourceDefinition ([Check]), and it prunes, defaults
// and validates objects by one ([New], [Version]).
//
// It stands on the API server's own packages
// (https://pkg.go.dev/k8s.io/apiextensions-apiserver), so that the verdict and
// its words are the server's: of the Kubernetes version that go.mod names, with
// the feature gates at their defaults.
//
// Objects are JSON as k8s.io/apimachinery/pkg/util/json decodes it: integers are
// int64, other numbers float64. Nothing here modifies its arguments, and all of
// it may be called concurrently.
//
// # Rules
//
// The rule of a [Finding] is the server's name of the error, such as
// FieldValueRequired or FieldValueForbidden
// (https://pkg.go.dev/k8s.io/apimachinery/pkg/util/validation/field#ErrorType), or
// one of these:
//
//	UnknownField            error    a field of the manifest that does not exist; kubectl refuses it
//	RemovedAPIVersion       error    a manifest in apiextensions.k8s.io/v1beta1
//	IntOrStringType         warning  a type beside x-kubernetes-int-or-string, where it has no effect
//	RequiredUnknownField    warning  a required field that is pruned, so that no object is valid
//	RootItems               warning  an array items at the root, with which the server takes every object for a list, and answers writes with HTTP 500
//	UnrecognizedFormat      warning  a format that nothing checks (the server warns too)
//	NonScalarSet            warning  a set of objects or arrays, which server-side apply and CEL do not treat as one (the server warns too)
//	InvalidCABundle         error    a caBundle of the conversion webhook that holds no certificate: the server does not establish the definition
//	InvalidCABundle         warning  the same of a definition that is established already
//	ConversionReviewV1      warning  a conversion webhook that is sent reviews of v1beta1 only, whose answers the server checks less
//	YAMLBoolean             warning  a property named true or false, or such a value in an enum of strings: YAML reads words such as on and no as that
//	EnumOfAnotherType       warning  a value of an enum that the type excludes
//	EmptyRange              warning  a lower limit above the upper one
//	NegativeLimit           warning  a limit of lengths below 0, or a multipleOf that is not above 0
//	MetadataWithoutProperties warning  metadata in a template that is pruned, as it says nothing of what is in it
//	NoneConversionDrops     warning  without conversion, a field that one version has and another does not
//	NoneConversionType      warning  without conversion, a field of another type in another version
//	NoneConversionRequires  warning  without conversion, a field that one version requires and another does not know
//
// Without conversion means strategy None: the server then only writes another
// apiVersion. The version that is stored is compared with each other one that is
// served.
//
// [CheckUpdate] compares each version with itself before the update, and warns
// about what the server takes and somebody does not survive:
//
//	FieldRemoved            warning  a field that is not there any more, so that what objects have in it is dropped
//	FieldsClosed            warning  an object that took any field, or a table any value, and no longer does
//	TypeChanged             warning  another type, other than one that takes all that the old one took
//	NullableRemoved         warning  a null that is no longer a value
//	RequiredAdded           warning  a required field that was not, and has no default
//	EnumNarrowed            warning  an enum that is new, or lacks a value
//	BoundTightened          warning  a bound that is new or tighter, or another pattern, format or multipleOf
//	ValidationAdded         warning  a CEL rule, allOf, anyOf, oneOf, not or embedded resource that may refuse what was valid
//	MergeChanged            warning  another type of list or map, or other keys, by which server-side apply merges
//	DefaultChanged          warning  a default that was changed or removed
//	VersionNotServed        warning  a version that was served and no longer is
package structural
