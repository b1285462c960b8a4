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
package structural
