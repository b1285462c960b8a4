package member

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// TestServedTypes: a type has all its versions in the order of the group, the preferred one first.
func TestServedTypes(t *testing.T) {
	groups := []*metav1.APIGroup{{
		Name:             "example.com",
		Versions:         []metav1.GroupVersionForDiscovery{{Version: "v3"}, {Version: "v2"}, {Version: "v1"}},
		PreferredVersion: metav1.GroupVersionForDiscovery{Version: "v2"},
	}}
	lists := []*metav1.APIResourceList{
		{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget"}, {Name: "gadgets", Kind: "Gadget", Namespaced: true}}},
		{GroupVersion: "example.com/v2", APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget"}, {Name: "widgets/status", Kind: "Widget"}}},
		{GroupVersion: "example.com/v3", APIResources: []metav1.APIResource{{Name: "widgets", Kind: "Widget"}}},
		{GroupVersion: "other.com/v1", APIResources: []metav1.APIResource{{Name: "others", Kind: "Other"}}},
		nil,
	}
	var got []string
	for _, s := range ServedTypes(groups, lists) {
		got = append(got, fmt.Sprintf("%s %s %t %v", s.GroupVersionResource.String(), s.Kind, s.Namespaced, s.Versions))
	}
	want := []string{"example.com/v2, Resource=widgets Widget false [v2 v3 v1]", "example.com/v1, Resource=gadgets Gadget true [v1]"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("ServedTypes(): -want, +got:\n%s", diff)
	}
}

// TestOlderVersions: the status of a cluster names the types that it does not serve in the version that the hub
// prefers, and no others. Entries of an API group that does not answer stay.
func TestOlderVersions(t *testing.T) {
	verbs := []string{"list", "watch", "patch", "delete"}
	typed := func(resource, kind string, versions ...string) *ServedType {
		return &ServedType{GroupVersionResource: schema.GroupVersionResource{Group: "example.com", Resource: resource}, Kind: kind, Namespaced: true, Verbs: verbs, Versions: versions}
	}
	hub := func(r schema.GroupResource) (string, bool) {
		return map[string]string{"widgets": "v2", "gadgets": "v2", "same": "v1"}[r.Resource], true
	}
	listed := func(resource, kind, version string) corev1alpha1.APIResource {
		return corev1alpha1.APIResource{Group: "example.com", Version: version, Kind: kind, PluralName: resource, Scope: "Namespaced"}
	}
	elsewhere := corev1alpha1.APIResource{Group: "down.com", Version: "v1", Kind: "Down", PluralName: "downs", Scope: "Cluster"}
	var v versions
	status := corev1alpha1.FederatedClusterStatus{APIResourceTypes: []corev1alpha1.APIResource{elsewhere}}
	if v.writeTo(&status) {
		t.Error("want no change of the status before the discovery of the member")
	}
	found := []*ServedType{typed("widgets", "Widget", "v1", "v1beta1"), typed("gadgets", "Gadget", "v3", "v2"), typed("same", "Same", "v1"), typed("own", "Own", "v1")}
	if !v.set(found, hub, map[string]bool{"down.com": true}) || v.set(found, hub, map[string]bool{"down.com": true}) {
		t.Error("want changed versions reported once")
	}
	want := []corev1alpha1.APIResource{listed("widgets", "Widget", "v1"), listed("widgets", "Widget", "v1beta1"), elsewhere}
	if !v.writeTo(&status) || v.writeTo(&status) {
		t.Error("want one change of the status")
	}
	if diff := cmp.Diff(want, status.APIResourceTypes); diff != "" {
		t.Errorf("writeTo(): -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"v1", "v1beta1"}, olderIn(&status)[schema.GroupResource{Group: "example.com", Resource: "widgets"}]); diff != "" {
		t.Errorf("olderIn(): -want, +got:\n%s", diff)
	}
	if !v.set([]*ServedType{typed("widgets", "Widget", "v2", "v1")}, hub, nil) || !v.writeTo(&status) || len(status.APIResourceTypes) > 0 || v.some() {
		t.Errorf("want no types when the preferred version is served, got %v", status.APIResourceTypes)
	}
	var many []*ServedType
	for i := range 2 * mostOlder {
		many = append(many, typed(fmt.Sprint(i), "Widget", strings.Fields(strings.Repeat("v1 ", 2*mostOfType))...))
	}
	if got := olderTypes(many, func(schema.GroupResource) (string, bool) { return "v2", true }); len(got) > mostOlder {
		t.Errorf("want at most %d versions, got %d", mostOlder, len(got))
	}
}

// TestOlderVersionsOfAMember: placement uses the versions in the status of a cluster, even if another replica connects
// to the cluster.
func TestOlderVersionsOfAMember(t *testing.T) {
	told := 0
	s := &Set{OnCopy: func(*Member, Key) {}, OnChange: func(string) { told++ }}
	t.Cleanup(s.Close)
	fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "m"}}
	s.observe(fc, outlook{ready: true})
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	if got := s.Older(widgets); got != nil {
		t.Errorf("want no older versions, got %v", got)
	}
	fc.Status.APIResourceTypes = []corev1alpha1.APIResource{{Group: "example.com", Version: "v1", Kind: "Widget", PluralName: "widgets", Scope: "Cluster"}}
	s.observe(fc, outlook{ready: true})
	s.observe(fc, outlook{ready: true})
	if diff := cmp.Diff(map[string][]string{"m": {"v1"}}, s.Older(widgets)); diff != "" || told != 2 {
		t.Errorf("Older(), told %d times: -want, +got:\n%s", told, diff)
	}
}
