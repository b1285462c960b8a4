// Package config holds what has to be installed on a hub: the
// CustomResourceDefinitions as they were generated from the API types, and who
// may have what propagated.
package config

import "embed"

// CRDs holds a CustomResourceDefinition in each file below crd.
//
//go:embed crd/*.yaml
var CRDs embed.FS

// Manifests holds what Refract runs by in a cluster: kustomizations below install, and the
// roles that they name below rbac.
//
//go:embed install rbac
var Manifests embed.FS

// Admission holds the hub's ValidatingAdmissionPolicies with their bindings,
// several in each file below admission.
//
//go:embed admission/*.yaml
var Admission embed.FS
