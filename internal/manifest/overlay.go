package manifest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Overlay returns the Set that there is when the manifests of over are applied to
// what there is in s: each stands in the place of the one of the same identity,
// or at the end. All others are those of s, in its order.
//
// Neither s nor over is modified. The result shares what is in them.
func (s *Set) Overlay(over *Set) *Set {
	return &Set{
		Manifests:                  overlay(s.Manifests, over.Manifests, (*Object).Identity),
		Objects:                    overlay(s.Objects, over.Objects, (*Object).Identity),
		Definitions:                overlay(s.Definitions, over.Definitions, (*Object).Identity),
		OverridePolicies:           overlay(s.OverridePolicies, over.OverridePolicies, nameOfPolicy),
		ClusterOverridePolicies:    overlay(s.ClusterOverridePolicies, over.ClusterOverridePolicies, nameOfPolicy),
		PropagationPolicies:        overlay(s.PropagationPolicies, over.PropagationPolicies, nameOfPolicy),
		ClusterPropagationPolicies: overlay(s.ClusterPropagationPolicies, over.ClusterPropagationPolicies, nameOfPolicy),
		Clusters:                   overlay(s.Clusters, over.Clusters, func(c *Cluster) types.NamespacedName { return nameOf(c.Cluster) }),
		Propagations: overlay(s.Propagations, over.Propagations, func(p *Propagation) types.NamespacedName {
			return types.NamespacedName{Namespace: p.Source.Namespace, Name: p.Name}
		}),
	}
}

// overlay overlays one list of which no two members have the same key.
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

// nameOfPolicy tells apart the policies of one kind.
func nameOfPolicy[T, C any](p *Policy[T, C]) types.NamespacedName {
	if obj, ok := any(p.Policy).(metav1.Object); ok {
		return nameOf(obj)
	}
	return types.NamespacedName{}
}

func nameOf(obj metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}
