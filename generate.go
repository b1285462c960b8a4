// Package refract transforms Kubernetes objects at the boundaries where one manifest no longer fits. This directory has
// only the go:generate lines; start reading at [refract.dev/fleet/policy/override] and the README.
package refract

//go:generate go tool -modfile=go.tools.mod controller-gen object paths=./examples/pizza/...
//go:generate go tool -modfile=go.tools.mod controller-gen object crd:generateEmbeddedObjectMeta=true paths=./api/... output:crd:dir=config/crd
//go:generate go run ./fleet/offline/schema/generate
//go:generate go run ./internal/limits/generate
//go:generate go run ./cmd/refract docs --markdown docs/reference --man docs/man
