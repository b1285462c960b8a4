// Package examples embeds the example manifests of the program's demonstrations, so that they need no files.
package examples

import "embed"

// Shop has the use cases of override policies: objects and policies in the namespace shop, in the order of their files;
// the namespace itself; and the clusters of the renderings, which are for offline use and not for a hub.
//
//go:embed override/namespace.yaml override/clusters.yaml override/shop
var Shop embed.FS

// InjectionDemo has a ServiceInjectionPolicy and a consumer of its service, in the namespace of the shop, with the
// propagation policies that place both on the clusters.
//
//go:embed override/namespace.yaml override/clusters.yaml override/shop/00-placement.yaml injection/demo
var InjectionDemo embed.FS

// ReleaseDemo has a rollout policy and a Deployment that obeys it, in the namespace of the shop, with the propagation
// policy that places the Deployment on the clusters.
//
//go:embed override/namespace.yaml override/clusters.yaml override/shop/00-placement.yaml release/front.yaml
var ReleaseDemo embed.FS

// BrokenRelease is a change of the Deployment that fails on every cluster.
//
//go:embed release/broken
var BrokenRelease embed.FS
