// Package config embeds the manifests that are installed on a hub: the CustomResourceDefinitions that are generated
// from the API types, the admission policies, and the kustomizations with their roles.
package config

import "embed"

// CRDs holds one CustomResourceDefinition in each file below crd.
//
//go:embed crd/*.yaml
var CRDs embed.FS

// Manifests holds the manifests of Refract itself: kustomizations below install, and the roles that they name below
// rbac.
//
//go:embed install rbac
var Manifests embed.FS

// Admission holds the hub's ValidatingAdmissionPolicies with their bindings. Each file below admission has several.
//
//go:embed admission/*.yaml
var Admission embed.FS
