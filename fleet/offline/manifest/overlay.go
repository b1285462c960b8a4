package manifest

import (
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// Overlay returns the Set that results when further manifests are applied to the Set s. Each manifest of the argument
// replaces the one with the same identity, or is appended. The manifests of s keep their order.
//
// Fields that only an API server writes are kept from s: the status of a cluster, and for clusters and objects the UID
// and the deletion timestamp.
//
// Neither Set is modified. The result shares their content.
func (s *Set) Overlay(over *Set) *Set {
	out := &Set{
		Live:                       s.Live || over.Live,
		Manifests:                  overlay(s.Manifests, over.Manifests, (*Object).Identity),
		Objects:                    overlay(s.Objects, over.Objects, (*Object).Identity),
		Definitions:                overlay(s.Definitions, over.Definitions, (*Object).Identity),
		Namespaces:                 overlay(s.Namespaces, over.Namespaces, (*Object).Identity),
		RolloutPolicies:            overlay(s.RolloutPolicies, over.RolloutPolicies, nameOfPolicy),
		ClusterRolloutPolicies:     overlay(s.ClusterRolloutPolicies, over.ClusterRolloutPolicies, nameOfPolicy),
		OverridePolicies:           overlay(s.OverridePolicies, over.OverridePolicies, nameOfPolicy),
		ClusterOverridePolicies:    overlay(s.ClusterOverridePolicies, over.ClusterOverridePolicies, nameOfPolicy),
		PropagationPolicies:        overlay(s.PropagationPolicies, over.PropagationPolicies, nameOfPolicy),
		ClusterPropagationPolicies: overlay(s.ClusterPropagationPolicies, over.ClusterPropagationPolicies, nameOfPolicy),
		Clusters:                   overlay(s.Clusters, over.Clusters, func(c *Cluster) types.NamespacedName { return nameOf(c.Cluster) }),
		Propagations: overlay(s.Propagations, over.Propagations, func(p *Propagation) types.NamespacedName {
			return types.NamespacedName{Namespace: p.Source.Namespace, Name: p.Name}
		}),
		InjectionPolicies: overlay(s.InjectionPolicies, over.InjectionPolicies, nameOfPolicy),
		Truncated:         slices.Concat(s.Truncated, over.Truncated),
	}
	for _, n := range slices.Concat(s.Notes, over.Notes) {
		if slices.ContainsFunc(out.Manifests, func(o Object) bool { return o.Place.File == n.Place.File && o.Place.Document == n.Place.Document }) {
			out.Notes = append(out.Notes, n)
		}
	}
	out.keepObserved(s)
	return out
}

// keepObserved copies the fields that only an API server writes. They come from the Set before.
func (s *Set) keepObserved(before *Set) {
	objects := make(map[Identity]*unstructured.Unstructured, len(before.Objects))
	for i := range before.Objects {
		objects[before.Objects[i].Identity()] = before.Objects[i].Content
	}
	for i := range s.Objects {
		o := &s.Objects[i]
		if was := objects[o.Identity()]; was != nil && was != o.Content {
			o.Content = observed(was, o.Content)
		}
	}
	clusters := make(map[string]*corev1alpha1.FederatedCluster, len(before.Clusters))
	for i := range before.Clusters {
		clusters[before.Clusters[i].Cluster.Name] = before.Clusters[i].Cluster
	}
	for i := range s.Clusters {
		c := &s.Clusters[i]
		if was := clusters[c.Cluster.Name]; was != nil && was != c.Cluster && len(c.Cluster.Status.Conditions) == 0 {
			now := c.Cluster.DeepCopy()
			now.Status, now.UID, now.DeletionTimestamp = was.Status, was.UID, was.DeletionTimestamp
			c.Cluster = now
		}
	}
}

// observed returns the new object with the UID and deletion timestamp of the old one.
func observed(was, now *unstructured.Unstructured) *unstructured.Unstructured {
	if was.GetUID() == "" && was.GetDeletionTimestamp() == nil {
		return now
	}
	content, metadata := maps.Clone(now.Object), map[string]any{}
	if m, ok := now.Object["metadata"].(map[string]any); ok {
		metadata = maps.Clone(m)
	}
	content["metadata"] = metadata
	out := &unstructured.Unstructured{Object: content}
	out.SetUID(was.GetUID())
	out.SetDeletionTimestamp(was.GetDeletionTimestamp())
	return out
}

// overlay replaces or appends elements of a list. The keys are unique within each list.
func overlay[E any, K comparable](list, over []E, key func(*E) K) []E {
	if len(list)+len(over) == 0 {
		return nil
	}
	out := make([]E, 0, len(list)+len(over))
	at := make(map[K]int, len(list))
	for i := range list {
		at[key(&list[i])] = i
		out = append(out, list[i])
	}
	for i := range over {
		if there, ok := at[key(&over[i])]; ok {
			out[there] = over[i]
		} else {
			out = append(out, over[i])
		}
	}
	return out
}

// identityOf returns the identity of an object.
func identityOf(u *unstructured.Unstructured) Identity {
	return Identity{GroupKind: u.GroupVersionKind().GroupKind(), Namespace: u.GetNamespace(), Name: u.GetName()}
}

// nameOfPolicy returns the unique key of a policy within its kind.
func nameOfPolicy[T, C any](p *Policy[T, C]) types.NamespacedName {
	if obj, ok := any(p.Policy).(metav1.Object); ok {
		return nameOf(obj)
	}
	return types.NamespacedName{}
}

func nameOf(obj metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}
