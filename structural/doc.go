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
//	UnrecognizedFormat      warning  a format that nothing checks (the server warns too)
//	NonScalarSet            warning  a set of objects or arrays, which server-side apply and CEL do not treat as one (the server warns too)
//	InvalidCABundle         warning  a caBundle of the conversion webhook that holds no certificate
//	ConversionReviewV1      warning  a conversion webhook that is sent reviews of v1beta1 only, whose answers the server checks less
//	NoneConversionDrops     warning  without conversion, a field that one version has and another does not
//	NoneConversionType      warning  without conversion, a field of another type in another version
//	NoneConversionRequires  warning  without conversion, a field that one version requires and another does not know
//
// Without conversion means strategy None: the server then only writes another
// apiVersion. The version that is stored is compared with each other one that is
// served.
package structural
