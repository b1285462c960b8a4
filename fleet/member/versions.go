package member

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

const (
	// mostOlder is the maximum number of versions in the status of a cluster, for all types that are not served in the
	// version that the hub prefers. mostOfType is the maximum number of versions of one type.
	mostOlder  = 500
	mostOfType = 10
)

// versions are the types that a member does not serve in the version that the hub prefers, with their served versions.
// Most members have no such type. It is safe for concurrent use.
type versions struct {
	mu       sync.Mutex
	known    bool // Whether the member was discovered.
	older    []corev1alpha1.APIResource
	doubtful map[string]bool // The API groups that could not be discovered.
}

// set records the result of a discovery, and reports whether the status on the hub must change.
func (v *versions) set(found []*ServedType, hub func(schema.GroupResource) (string, bool), doubtful map[string]bool) (changed bool) {
	older := olderTypes(found, hub)
	v.mu.Lock()
	defer v.mu.Unlock()
	changed = !slices.Equal(v.older, older)
	v.known, v.older, v.doubtful = true, older, doubtful
	return changed
}

// some reports whether the member has a type that it does not serve in the version that the hub prefers.
func (v *versions) some() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return len(v.older) > 0
}

// writeTo writes the types into the status of the cluster, and reports whether the status changed. Types in the status
// stay if their API group could not be discovered.
func (v *versions) writeTo(status *corev1alpha1.FederatedClusterStatus) (changed bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.known {
		return false
	}
	now := slices.Clone(v.older)
	for i := range status.APIResourceTypes {
		if was := status.APIResourceTypes[i]; v.doubtful[was.Group] && !slices.Contains(now, was) && len(now) < mostOlder {
			now = append(now, was)
		}
	}
	if slices.Equal(now, status.APIResourceTypes) {
		return false
	}
	status.APIResourceTypes = now
	return true
}

// olderTypes returns the types that can propagate and that are not served in the version that the hub prefers.
func olderTypes(found []*ServedType, hub func(schema.GroupResource) (string, bool)) (older []corev1alpha1.APIResource) {
	for _, t := range found {
		preferred, _ := hub(t.GroupResource())
		kind := schema.GroupKind{Group: t.Group, Kind: t.Kind}
		if preferred == "" || slices.Contains(t.Versions, preferred) || !Propagates(kind, t.Verbs) {
			continue
		}
		scope := "Cluster"
		if t.Namespaced {
			scope = "Namespaced"
		}
		for _, version := range t.Versions[:min(len(t.Versions), mostOfType)] {
			older = append(older, corev1alpha1.APIResource{Group: t.Group, Version: version, Kind: t.Kind, PluralName: t.Resource, Scope: scope})
		}
	}
	slices.SortStableFunc(older, func(a, b corev1alpha1.APIResource) int {
		return cmp.Or(cmp.Compare(a.Group, b.Group), cmp.Compare(a.PluralName, b.PluralName)) // Versions of a type keep their order.
	})
	return older[:min(len(older), mostOlder)]
}

// olderIn returns the versions of each type in the status of a cluster; nil for none.
func olderIn(status *corev1alpha1.FederatedClusterStatus) (older map[schema.GroupResource][]string) {
	for i := range status.APIResourceTypes {
		if older == nil {
			older = map[schema.GroupResource][]string{}
		}
		t := &status.APIResourceTypes[i]
		resource := schema.GroupResource{Group: t.Group, Resource: t.PluralName}
		older[resource] = append(older[resource], t.Version)
	}
	return older
}
