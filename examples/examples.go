// Package examples holds the example manifests that the program shows itself at
// work with, so that it needs no file at hand.
package examples

import "embed"

// Shop are the use cases of override policies: objects and policies in the
// namespace shop, in the order of their files; the namespace itself; and the
// clusters that they are rendered for, which are for offline use and not for a
// hub.
//
//go:embed override/namespace.yaml override/clusters.yaml override/shop
var Shop embed.FS

// InjectionDemo is a ServiceInjectionPolicy and a consumer of its service, in the
// namespace of the shop, with what places both on the clusters.
//
//go:embed override/namespace.yaml override/clusters.yaml override/shop/00-placement.yaml injection/demo
var InjectionDemo embed.FS

// ReleaseDemo is a rollout policy and a Deployment that obeys it, in the namespace of the shop,
// with what places it on the clusters.
//
//go:embed override/namespace.yaml override/clusters.yaml override/shop/00-placement.yaml release/front.yaml
var ReleaseDemo embed.FS

// BrokenRelease is a change of it that fails on every cluster.
//
//go:embed release/broken
var BrokenRelease embed.FS
