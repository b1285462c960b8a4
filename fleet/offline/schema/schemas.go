package schema

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Schemas has the built-in types of Kubernetes and the types of CustomResourceDefinitions. It is safe for concurrent
// use.
type Schemas struct {
	builtin *kubernetes
	custom  map[schema.GroupVersionKind]*shape // Of the served versions.
}

// New returns the Schemas of Kubernetes and of CustomResourceDefinitions. The definitions are neither kept nor
// modified. The errors correspond to the definitions by index: nil for a definition that is used completely, otherwise
// the reason why the definition, or some of its versions, are not used.
func New(crds []*unstructured.Unstructured) (*Schemas, []error) {
	s := &Schemas{builtin: readKubernetes(), custom: map[schema.GroupVersionKind]*shape{}}
	var problems []error
	for _, crd := range crds {
		problems = append(problems, s.add(crd))
	}
	return s, problems
}

// Check returns every place where an object does not fit its type, sorted by path. The object has the form of
// [unstructured.Unstructured], with numbers as int64 or float64, and is not modified.
//
// For an unknown type, Check returns a mismatch only if the type certainly does not exist: if the kind exists in other
// versions only, or if its name differs by a few letters from an existing one.
//
// Messages quote the values concerned, except for the values of a Secret.
func (s *Schemas) Check(object map[string]any) []Mismatch { return s.CheckChanged(object, nil) }

// CheckChanged is [Schemas.Check] for an object that was made from another one and shares its unchanged parts. Values
// that both objects share are not checked. The duration is proportional to the size of the changed parts.
func (s *Schemas) CheckChanged(object, before map[string]any) []Mismatch {
	version, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	if before["apiVersion"] != version || before["kind"] != kind {
		before = nil // The object has another type now, so the shared parts must be checked as well.
	}
	gv, err := schema.ParseGroupVersion(version)
	if err != nil || version == "" || kind == "" {
		return nil
	}
	gvk := gv.WithKind(kind)
	root := s.root(gvk)
	if root == nil {
		return s.unserved(gvk)
	}
	c := checker{secret: gvk == schema.GroupVersionKind{Version: "v1", Kind: "Secret"}}
	c.value(object, before, root)
	slices.SortFunc(c.found, func(a, b Mismatch) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(c.found)
}

// root returns the shape of objects of a type; nil if the type is not known.
func (s *Schemas) root(gvk schema.GroupVersionKind) *shape {
	if shape, ok := s.custom[gvk]; ok {
		return shape
	}
	return s.builtin.root(gvk)
}

// unserved returns the mismatch of a type that certainly does not exist.
func (s *Schemas) unserved(gvk schema.GroupVersionKind) []Mismatch {
	if strings.HasSuffix(gvk.Kind, "List") || gvk.Kind == "Config" {
		return nil // Every kind has a list, and kubeconfig files are no mistakes.
	}
	isCustom := func(other schema.GroupVersionKind) bool { return other.GroupKind() == gvk.GroupKind() }
	if versions := groupVersions(s.custom, isCustom); len(versions) > 0 {
		return []Mismatch{elsewhere(gvk, "its CustomResourceDefinition", versions)}
	}
	if s.builtin.groups[gvk.Group] {
		// With apiVersion: v1 for a Deployment, the group is wrong, too.
		sameKind := func(other schema.GroupVersionKind) bool { return other.Kind == gvk.Kind }
		if versions := groupVersions(s.builtin.kinds, sameKind); len(versions) > 0 {
			return []Mismatch{elsewhere(gvk, "Kubernetes "+s.builtin.version, versions)}
		}
	}
	hint := didYouMean(gvk.Kind, slices.Concat(kindsOf(s.builtin.kinds, gvk.GroupVersion()), kindsOf(s.custom, gvk.GroupVersion())))
	if hint == "" {
		return nil
	}
	return []Mismatch{{
		Path:    "/kind",
		Message: fmt.Sprintf("is %q, and there is no such kind in %s", gvk.Kind, gvk.GroupVersion()),
		Hint:    hint,
	}}
}

// elsewhere reports that a kind exists in other versions only.
func elsewhere(gvk schema.GroupVersionKind, server string, versions []string) Mismatch {
	return Mismatch{
		Path:    "/apiVersion",
		Message: fmt.Sprintf("is %q, which has no %s", gvk.GroupVersion(), gvk.Kind),
		Hint:    fmt.Sprintf("%s serves it as %s", server, strings.Join(versions, ", ")),
	}
}

// groupVersions returns the sorted versions of the selected types.
func groupVersions[V any](types map[schema.GroupVersionKind]V, selected func(schema.GroupVersionKind) bool) []string {
	var versions []string
	for gvk := range maps.Keys(types) {
		if selected(gvk) {
			versions = append(versions, gvk.GroupVersion().String())
		}
	}
	slices.Sort(versions)
	return versions
}

// kindsOf returns the sorted kinds of a group and version.
func kindsOf[V any](types map[schema.GroupVersionKind]V, gv schema.GroupVersion) []string {
	var kinds []string
	for gvk := range maps.Keys(types) {
		if gvk.GroupVersion() == gv {
			kinds = append(kinds, gvk.Kind)
		}
	}
	slices.Sort(kinds)
	return kinds
}
