package member

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/policy/placement"
)

// Propagates reports whether objects of a kind can propagate from the hub to members: the kind may be placed, and its
// verbs are sufficient to list and write objects.
func Propagates(kind schema.GroupKind, verbs []string) bool {
	if !placement.Travels(kind) {
		return false
	}
	for _, verb := range []string{"list", "watch", "patch", "delete"} {
		if !slices.Contains(verbs, verb) {
			return false
		}
	}
	return true
}

// ServedType is a type that an API server serves.
type ServedType struct {
	// GroupVersionResource is the type in the version that the server prefers.
	schema.GroupVersionResource

	Kind       string
	Namespaced bool
	Verbs      []string
	// Versions are all served versions of the type, in the order that the server prefers.
	Versions []string
}

// ServedTypes returns the types of a discovery, without subresources. Groups are the API groups, and lists are their
// types, in any order. Lists of other groups and versions are ignored.
func ServedTypes(groups []*metav1.APIGroup, lists []*metav1.APIResourceList) (types []*ServedType) {
	byVersion := make(map[string][]metav1.APIResource, len(lists))
	for _, list := range lists {
		if list != nil {
			byVersion[list.GroupVersion] = list.APIResources
		}
	}
	for _, group := range groups {
		byName := map[string]*ServedType{}
		for _, version := range byPreference(group) {
			gv := schema.GroupVersion{Group: group.Name, Version: version}
			for i := range byVersion[gv.String()] {
				r := &byVersion[gv.String()][i]
				if strings.Contains(r.Name, "/") {
					continue
				}
				t := byName[r.Name]
				if t == nil {
					t = &ServedType{GroupVersionResource: gv.WithResource(r.Name), Kind: r.Kind, Namespaced: r.Namespaced, Verbs: r.Verbs}
					byName[r.Name] = t
					types = append(types, t)
				}
				if !slices.Contains(t.Versions, version) {
					t.Versions = append(t.Versions, version)
				}
			}
		}
	}
	return types
}

// byPreference returns the versions of a group, the preferred one first.
func byPreference(group *metav1.APIGroup) (versions []string) {
	for i := range group.Versions {
		versions = append(versions, group.Versions[i].Version)
	}
	if at := slices.Index(versions, group.PreferredVersion.Version); at > 0 {
		versions = slices.Insert(slices.Delete(versions, at, at+1), 0, group.PreferredVersion.Version)
	}
	return versions
}
