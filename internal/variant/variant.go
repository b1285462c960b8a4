// Package variant renders objects for the clusters that they are placed on: what
// placement decided, then what overrides say. The controllers and the offline
// commands share it.
package variant

import (
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/match"
	"refract.dev/override"
	"refract.dev/placement"
	"refract.dev/tree"
)

// ReplicasPath is the place of what a policy divides.
const ReplicasPath = "/spec/replicas"

// Replicas returns spec.replicas of an object, nil if it has none. Of the built-in
// workloads one that says nothing has 1, as an API server would fill in.
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

// Render renders obj for the clusters that it is placed on, of which the targets
// tell the shares of replicas, in the same order: the share first, then the
// overrides. That a share is not what the object says is a change by the
// propagation policy, the first of [override.Variant.Changes].
//
// Otherwise it is as [override.Render], but that clusters with the same rules have
// as many variants as they have shares. It modifies nothing that it is given.
func Render(
	obj *unstructured.Unstructured, clusters []match.Cluster, targets []placement.Target, by tree.Policy, policies ...*override.Policy,
) []override.Variant {
	return RenderGrouped(nil, obj, clusters, targets, by, policies...)
}

// RenderGrouped is [Render] of one of many objects, with what is known of the clusters from the others: see [override.Budget].
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

// share is the clusters that have the same number of replicas.
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

// of returns the object with the share, and the change that this is; nil if it is
// none.
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

// after returns the changes after the first one.
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
