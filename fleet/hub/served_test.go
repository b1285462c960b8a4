package hub

import (
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fakediscovery "k8s.io/client-go/discovery/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestDiscovered: a type is served when discovery lists each of its served versions.
func TestDiscovered(t *testing.T) {
	crd := &apiextensionsv1.CustomResourceDefinition{Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: "example.com", Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true}, {Name: "v2", Served: true}, {Name: "v3"}},
	}}
	has := func(version string, names ...string) *metav1.APIResourceList {
		l := &metav1.APIResourceList{GroupVersion: "example.com/" + version}
		for _, name := range names {
			l.APIResources = append(l.APIResources, metav1.APIResource{Name: name})
		}
		return l
	}
	cases := map[string]struct {
		reason string
		lists  []*metav1.APIResourceList
		want   bool
	}{
		"Nothing":      {"The group is not known yet.", nil, false},
		"OtherType":    {"Discovery lists only another type of the group.", []*metav1.APIResourceList{has("v1", "gadgets"), has("v2", "gadgets")}, false},
		"OtherVersion": {"Discovery lists only one of two versions.", []*metav1.APIResourceList{has("v1", "widgets")}, false},
		"All":          {"Discovery lists each served version.", []*metav1.APIResourceList{has("v1", "widgets"), has("v2", "gadgets", "widgets")}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			disco := &fakediscovery.FakeDiscovery{Fake: &clienttesting.Fake{Resources: tc.lists}}
			if got := discovered(disco, crd); got != tc.want {
				t.Errorf("%s\ndiscovered(): got %t, want %t", tc.reason, got, tc.want)
			}
		})
	}
}
