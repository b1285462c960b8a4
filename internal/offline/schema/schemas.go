package schema

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/internal/offline/manifest/nearest"
)

// Schemas knows the types of Kubernetes itself, and those of the
// CustomResourceDefinitions it was made with. It is safe for concurrent use.
type Schemas struct {
	builtin *kubernetes
	custom  map[schema.GroupVersionKind]*shape // Of the versions that are served.
}

// New returns the Schemas of Kubernetes and of CustomResourceDefinitions, which
// it neither keeps nor changes. One that it cannot use, wholly or in part, has a
// [CRDError], in the order given; what it can use it does.
func New(crds []*unstructured.Unstructured) (*Schemas, []*CRDError) {
	s := &Schemas{builtin: readKubernetes(), custom: map[schema.GroupVersionKind]*shape{}}
	var problems []*CRDError
	for i, crd := range crds {
		if err := s.add(crd); err != nil {
			problems = append(problems, &CRDError{Index: i, Name: crd.GetName(), Err: err})
		}
	}
	return s, problems
}

// Knows reports whether Check looks into objects of a type.
func (s *Schemas) Knows(gvk schema.GroupVersionKind) bool {
	if _, ok := s.custom[gvk]; ok {
		return true
	}
	_, ok := s.builtin.kinds[gvk]
	return ok
}

// Check returns every place where an object is not what an API server takes for
// its type, sorted by path. The object is as [unstructured.Unstructured] holds
// one, with numbers as int64 or float64, and is not changed.
//
// Of a type that it does not know, Check says nothing, unless it knows that there
// is no such type: if the kind exists in other versions only, or if its name
// differs by a few letters from one that exists.
//
// Messages quote the values they are about, except for the contents of a Secret.
func (s *Schemas) Check(object map[string]any) []Mismatch { return s.CheckChanged(object, nil) }

// CheckChanged is [Schemas.Check] for an object that was made from another and shares with it what
// was not changed: where both have the same value it says nothing. That takes as long as what was changed is large.
func (s *Schemas) CheckChanged(object, before map[string]any) []Mismatch {
	version, _ := object["apiVersion"].(string)
	kind, _ := object["kind"].(string)
	if before["apiVersion"] != version || before["kind"] != kind {
		before = nil // What it shares is of another shape now.
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
	c.object(object, before, root)
	slices.SortFunc(c.found, func(a, b Mismatch) int {
		return cmp.Or(strings.Compare(a.Path, b.Path), strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(c.found)
}

// root returns the shape of objects of a type, or nil if the type is not known.
func (s *Schemas) root(gvk schema.GroupVersionKind) *shape {
	if shape, ok := s.custom[gvk]; ok {
		return shape
	}
	return s.builtin.root(gvk)
}

// unserved returns what is wrong with a type that does not exist, if that is
// known.
func (s *Schemas) unserved(gvk schema.GroupVersionKind) []Mismatch {
	if strings.HasSuffix(gvk.Kind, "List") || gvk.Kind == "Config" {
		return nil // Every kind has a list, and kubeconfig files are nobody's mistake.
	}
	isCustom := func(other schema.GroupVersionKind) bool { return other.GroupKind() == gvk.GroupKind() }
	if versions := groupVersions(s.custom, isCustom); len(versions) > 0 {
		return []Mismatch{elsewhere(gvk, "its CustomResourceDefinition", versions)}
	}
	if s.builtin.groups[gvk.Group] {
		// Whoever writes apiVersion: v1 for a Deployment has the group wrong, too.
		sameKind := func(other schema.GroupVersionKind) bool { return other.Kind == gvk.Kind }
		if versions := groupVersions(s.builtin.kinds, sameKind); len(versions) > 0 {
			return []Mismatch{elsewhere(gvk, "Kubernetes "+s.builtin.version, versions)}
		}
	}
	near := nearest.To(gvk.Kind, slices.Concat(kindsOf(s.builtin.kinds, gvk.GroupVersion()), kindsOf(s.custom, gvk.GroupVersion())))
	if near == "" {
		return nil
	}
	return []Mismatch{{
		Path:    "/kind",
		Message: fmt.Sprintf("is %q, and there is no such kind in %s", gvk.Kind, gvk.GroupVersion()),
		Hint:    fmt.Sprintf("did you mean %s?", near),
	}}
}

// elsewhere says that a kind exists in other versions only.
func elsewhere(gvk schema.GroupVersionKind, server string, versions []string) Mismatch {
	return Mismatch{
		Path:    "/apiVersion",
		Message: fmt.Sprintf("is %q, which has no %s", gvk.GroupVersion(), gvk.Kind),
		Hint:    fmt.Sprintf("%s serves it as %s", server, strings.Join(versions, ", ")),
	}
}

// groupVersions returns the versions of the types selected, sorted.
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

// kindsOf returns the kinds of a group in a version, sorted.
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
