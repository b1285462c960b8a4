// Package variant renders objects for their clusters: first the shares of replicas from the placement, then the
// overrides. The controllers and the offline commands use it.
package variant

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	"refract.dev/tree"
)

// ReplicasPath is the path of the number of replicas that a policy divides.
const ReplicasPath = "/spec/replicas"

// Replicas returns spec.replicas of an object, nil without a valid number. A missing number of a built-in workload is
// 1, the default of the API server.
func Replicas(obj *unstructured.Unstructured) *int64 {
	spec, ok := obj.Object["spec"].(map[string]any)
	if !ok {
		return nil
	}
	value, ok := spec["replicas"]
	if !ok && scales(obj) {
		return new(int64(1))
	}
	if n, ok := value.(int64); ok && n >= 0 {
		return &n
	}
	return nil
}

func scales(obj *unstructured.Unstructured) bool {
	switch obj.GetAPIVersion() + " " + obj.GetKind() {
	case "apps/v1 Deployment", "apps/v1 StatefulSet", "apps/v1 ReplicaSet", "v1 ReplicationController":
		return true
	default:
		return false
	}
}

// Render renders obj for the clusters of its placement. targets has the share of replicas of each cluster, in the same
// order. The share is set before the overrides. A share that differs from the object's number is recorded as a change
// by the propagation policy, and is the first of [override.Variant.Changes].
//
// Otherwise Render works like [override.Render]. Clusters with the same rules have one variant for each distinct share.
// It modifies no argument.
func Render(
	obj *unstructured.Unstructured, clusters []match.Cluster, targets []placement.Target, by tree.Policy, policies ...*override.Policy,
) []override.Variant {
	return RenderGrouped(nil, obj, clusters, targets, by, policies...)
}

// RenderGrouped is [Render] for one of many objects. groups is a cache that these objects share, see [override.Budget].
func RenderGrouped(
	groups *override.Groups, obj *unstructured.Unstructured, clusters []match.Cluster, targets []placement.Target, by tree.Policy,
	policies ...*override.Policy,
) []override.Variant {
	if !slices.ContainsFunc(targets, func(t placement.Target) bool { return t.Replicas != nil }) {
		return (&override.Budget{Groups: groups}).Render(obj, clusters, policies...)
	}
	author := &tree.Author{Policy: by, Rule: tree.NoRule}
	var variants []override.Variant
	var budget override.Budget
	for _, s := range shares(targets) {
		some := make([]match.Cluster, len(s.clusters))
		for i, c := range s.clusters {
			some[i] = clusters[c]
		}
		given, change := s.of(obj)
		for _, v := range budget.Render(given, some, policies...) {
			for i, c := range v.Clusters {
				v.Clusters[i] = s.clusters[c]
			}
			if change != nil && v.Err == nil {
				v.Changes = after(*change, author, v.Changes)
			}
			variants = append(variants, v)
		}
	}
	slices.SortFunc(variants, func(a, b override.Variant) int { return a.Clusters[0] - b.Clusters[0] })
	return variants
}

// share has the clusters with the same number of replicas.
type share struct {
	replicas *int64
	clusters []int
}

func shares(targets []placement.Target) []share {
	var all []share
	at := map[int64]int{}
	for i := range targets {
		key := int64(-1)
		if targets[i].Replicas != nil {
			key = *targets[i].Replicas
		}
		j, ok := at[key]
		if !ok {
			j = len(all)
			at[key] = j
			all = append(all, share{replicas: targets[i].Replicas})
		}
		all[j].clusters = append(all[j].clusters, i)
	}
	return all
}

// of returns the object with the share, and the change; nil if the object has this number already.
func (s *share) of(obj *unstructured.Unstructured) (*unstructured.Unstructured, *tree.Change) {
	spec, ok := obj.Object["spec"].(map[string]any)
	if s.replicas == nil || !ok {
		return obj, nil
	}
	change := tree.Change{Path: ReplicasPath, Op: tree.OpAdd, After: *s.replicas}
	if before, there := spec["replicas"]; there {
		change.Op, change.Before = tree.OpReplace, before
		if tree.Equal(before, change.After) {
			return obj, nil
		}
	}
	root, divided := maps.Clone(obj.Object), maps.Clone(spec)
	divided["replicas"] = *s.replicas
	root["spec"] = divided
	return &unstructured.Unstructured{Object: root}, &change
}

// after returns the first change, followed by the other changes.
func after(first tree.Change, by *tree.Author, changes []tree.Change) []tree.Change {
	first.By = by
	var all tree.Record
	all.Grow(len(changes) + 1)
	all.Add(first)
	for i := range changes {
		all.Add(changes[i])
	}
	return all.Changes()
}
