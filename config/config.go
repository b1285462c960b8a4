// Package config holds what has to be installed on a hub, as it was generated
// from the API types.
package config

import "embed"

// CRDs holds a CustomResourceDefinition in each file below crd.
//
//go:embed crd/*.yaml
var CRDs embed.FS
