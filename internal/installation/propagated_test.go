package installation

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// typesOf returns the rules of TypesRole; nil if objects does not have this role.
func typesOf(t *testing.T, objects []*unstructured.Unstructured) (rules []rbacv1.PolicyRule) {
	t.Helper()
	for _, o := range objects {
		if o.GetKind() != "ClusterRole" || o.GetName() != TypesRole {
			continue
		}
		role := &rbacv1.ClusterRole{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role); err != nil {
			t.Fatal(err)
		}
		rules = role.Rules
	}
	return rules
}

// TestTypes checks that the account may list only the given types, or every type if none is given.
func TestTypes(t *testing.T) {
	read := []string{"list", "watch"}
	every := []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: read}}
	for texts, want := range map[string][]rbacv1.PolicyRule{
		"":  every,
		"*": every,
		"deployments.apps configmaps statefulsets.apps configmaps widgets.example.com": {
			{APIGroups: []string{"apps"}, Resources: []string{"deployments", "statefulsets"}, Verbs: read},
			{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: read},
			{APIGroups: []string{"example.com"}, Resources: []string{"widgets"}, Verbs: read},
		},
	} {
		types, err := ParseTypes(strings.Fields(texts))
		if err != nil {
			t.Fatal(err)
		}
		objects, err := Objects(&Options{Parts: []Part{Propagation}, Image: "registry.example.com/refract:v1", Types: types})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, typesOf(t, objects)); diff != "" {
			t.Errorf("%q: -want, +got:\n%s", texts, diff)
		}
	}
	for _, text := range []string{"", "Deployment", "pods/exec", "deployments.Apps", "deployments.apps/v1", ".apps", "a b"} {
		if _, err := ParseTypes([]string{text}); err == nil {
			t.Errorf("%q: want an error", text)
		}
	}
}

// TestKeepTypes checks that an upgrade changes all objects except for TypesRole.
func TestKeepTypes(t *testing.T) {
	objects, err := Objects(&Options{Parts: []Part{Propagation}, Image: "registry.example.com/refract:v1"})
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := rbacv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	first, err := KeepTypes(t.Context(), fake.NewClientBuilder().WithScheme(scheme).Build(), objects)
	if err != nil || len(first) != len(objects) {
		t.Errorf("the first installation: want all %d objects, got %d, %v", len(objects), len(first), err)
	}
	there := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: TypesRole}}
	again, err := KeepTypes(t.Context(), fake.NewClientBuilder().WithScheme(scheme).WithObjects(there).Build(), objects)
	if err != nil || len(again) != len(objects)-1 || typesOf(t, again) != nil {
		t.Errorf("an upgrade: want all but the types of %d objects, got %d, %v", len(objects), len(again), err)
	}
}
