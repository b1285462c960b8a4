package apiserver

import (
	"crypto/sha512"
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
)

// foundTypes is a discovery answer with its ETag.
type foundTypes struct {
	answer *Answer
	tag    string
}

const aggregated = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// discover answers discovery requests. It returns nil for other requests.
func (s *Server) discover(r *http.Request) *Answer {
	at := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if r.Method != http.MethodGet || at[0] != "api" && at[0] != "apis" || at[0] == "api" && len(at) > 2 || len(at) > 3 {
		return nil
	}
	whole := len(at) == 1 && strings.Contains(r.Header.Get("Accept"), "g=apidiscovery.k8s.io;v=v2")
	key := r.URL.Path
	if whole {
		key += "?"
	}
	d := s.found[key]
	if d == nil {
		what := s.describe(at, whole)
		if what == nil {
			return nil
		}
		d = &foundTypes{answer: encoded(http.StatusOK, what)}
		if whole {
			d.tag = fmt.Sprintf(`"%X"`, sha512.Sum512(d.answer.Body))
			d.answer.Header = http.Header{"Content-Type": {aggregated}, "Etag": {d.tag}, "Vary": {"Accept"}}
		}
		if s.found == nil {
			s.found = map[string]*foundTypes{}
		}
		s.found[key] = d
	}
	if d.tag != "" && r.Header.Get("If-None-Match") == d.tag {
		return &Answer{Code: http.StatusNotModified, Header: d.answer.Header}
	}
	return d.answer
}

// describe returns the discovery document of a path, or nil if the path has none.
func (s *Server) describe(at []string, whole bool) any {
	switch {
	case whole:
		return s.allGroups(at[0] == "api")
	case at[0] == "api" && len(at) == 1:
		return &metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}}
	case len(at) == 1:
		list := &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{}}
		for _, name := range s.groups() {
			list.Groups = append(list.Groups, *s.group(name))
		}
		return list
	case at[0] == "apis" && len(at) == 2:
		g := s.group(at[1])
		if len(g.Versions) == 0 {
			return nil
		}
		g.TypeMeta = metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}
		return g
	}
	gv := schema.GroupVersion{Version: at[len(at)-1]}
	if at[0] == "apis" {
		gv.Group = at[1]
	}
	if list := s.resources(gv); len(list.APIResources) > 0 {
		return list
	}
	return nil
}

// groups returns the names of all groups except the core group.
func (s *Server) groups() []string {
	var names []string
	for _, m := range s.order {
		if g := m.typ.GVR.Group; g != "" && !slices.Contains(names, g) {
			names = append(names, g)
		}
	}
	return names
}

// versions returns the versions of a group, the preferred one first.
func (s *Server) versions(group string) []string {
	var all []string
	for _, m := range s.order {
		if v := m.typ.GVR.Version; m.typ.GVR.Group == group && !slices.Contains(all, v) {
			all = append(all, v)
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return version.CompareKubeAwareVersionStrings(all[i], all[j]) > 0 })
	return all
}

func (s *Server) group(name string) *metav1.APIGroup {
	g := &metav1.APIGroup{Name: name}
	for _, v := range s.versions(name) {
		g.Versions = append(g.Versions, metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + v, Version: v})
	}
	if len(g.Versions) > 0 {
		g.PreferredVersion = g.Versions[0]
	}
	return g
}

func (s *Server) in(gv schema.GroupVersion) []*machinery {
	var all []*machinery
	for _, m := range s.order {
		if m.typ.GVR.GroupVersion() == gv {
			all = append(all, m)
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].typ.GVR.Resource < all[j].typ.GVR.Resource })
	return all
}

func (t *Type) singular() string {
	if t.Schema != nil && t.Schema.single != "" {
		return t.Schema.single
	}
	return strings.ToLower(t.Kind)
}

func (t *Type) shortNames() []string {
	if t.Schema != nil {
		return t.Schema.short
	}
	return nil
}

// subresources returns the kinds of the subresources of a type, by name.
func (t *Type) subresources() map[string]metav1.GroupVersionKind {
	all := map[string]metav1.GroupVersionKind{}
	if t.Status {
		all["status"] = metav1.GroupVersionKind{Group: t.GVR.Group, Version: t.GVR.Version, Kind: t.Kind}
	}
	if t.Scale {
		all["scale"] = metav1.GroupVersionKind{Group: "autoscaling", Version: "v1", Kind: "Scale"}
	}
	return all
}

var subresourceVerbs = []string{"get", "patch", "update"}

func (s *Server) resources(gv schema.GroupVersion) *metav1.APIResourceList {
	list := &metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: gv.String()}
	if gv.Group == "" {
		list.APIVersion = ""
	}
	for _, m := range s.in(gv) {
		t := &m.typ
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: t.GVR.Resource, SingularName: t.singular(), Namespaced: t.Namespaced, Kind: t.Kind, Verbs: t.verbs(), ShortNames: t.shortNames(),
		})
		for _, sub := range []string{"scale", "status"} {
			if kind, ok := t.subresources()[sub]; ok {
				r := metav1.APIResource{Name: t.GVR.Resource + "/" + sub, Namespaced: t.Namespaced, Kind: kind.Kind, Verbs: subresourceVerbs}
				if sub == "scale" {
					r.Group, r.Version = kind.Group, kind.Version
				}
				list.APIResources = append(list.APIResources, r)
			}
		}
	}
	return list
}

func (s *Server) allGroups(legacy bool) *apidiscoveryv2.APIGroupDiscoveryList {
	list := &apidiscoveryv2.APIGroupDiscoveryList{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroupDiscoveryList", APIVersion: apidiscoveryv2.SchemeGroupVersion.String()},
		Items:    []apidiscoveryv2.APIGroupDiscovery{},
	}
	names := []string{""}
	if !legacy {
		names = s.groups()
	}
	for _, name := range names {
		g := apidiscoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: name}}
		for _, v := range s.versions(name) {
			found := apidiscoveryv2.APIVersionDiscovery{Version: v, Freshness: apidiscoveryv2.DiscoveryFreshnessCurrent}
			for _, m := range s.in(schema.GroupVersion{Group: name, Version: v}) {
				found.Resources = append(found.Resources, discovered(&m.typ))
			}
			g.Versions = append(g.Versions, found)
		}
		list.Items = append(list.Items, g)
	}
	return list
}

func discovered(t *Type) apidiscoveryv2.APIResourceDiscovery {
	r := apidiscoveryv2.APIResourceDiscovery{
		Resource: t.GVR.Resource, Scope: apidiscoveryv2.ScopeCluster, SingularResource: t.singular(), Verbs: t.verbs(), ShortNames: t.shortNames(),
		ResponseKind: &metav1.GroupVersionKind{Group: t.GVR.Group, Version: t.GVR.Version, Kind: t.Kind},
	}
	if t.Namespaced {
		r.Scope = apidiscoveryv2.ScopeNamespace
	}
	for _, sub := range []string{"scale", "status"} {
		if kind, ok := t.subresources()[sub]; ok {
			r.Subresources = append(r.Subresources, apidiscoveryv2.APISubresourceDiscovery{Subresource: sub, ResponseKind: &kind, Verbs: subresourceVerbs})
		}
	}
	return r
}
