package hub

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
)

// roleIn returns the first ClusterRole of a file.
func roleIn(t *testing.T, file string) *rbacv1.ClusterRole {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
		if bytes.Contains(document, []byte("kind: ClusterRole\n")) {
			if err := yaml.UnmarshalStrict(document, role); err != nil {
				t.Fatal(err)
			}
			return role
		}
	}
	t.Fatalf("%s has no ClusterRole", file)
	return nil
}

// TestConversionRole: in a cluster with conversion, the documented role has no rule for all types, so it does not cover
// objects of users. It may create only Refract's own CustomResourceDefinition. It may patch any definition, because
// policies may name any.
func TestConversionRole(t *testing.T) {
	role := roleIn(t, "../../config/rbac/conversion/conversion.yaml")
	for _, r := range role.Rules {
		if slices.Contains(r.Resources, "*") || slices.Contains(r.APIGroups, "*") || slices.Contains(r.Verbs, "*") {
			t.Errorf("a rule with a star: %v", r)
		}
		if !slices.Contains(r.Resources, "customresourcedefinitions") {
			continue
		}
		if slices.Contains(r.Verbs, "create") && !slices.Equal(r.ResourceNames, []string{"conversionpolicies.refract.dev"}) {
			t.Errorf("a rule creates other types: %v", r)
		}
		for _, verb := range []string{"update", "delete", "deletecollection"} {
			if slices.Contains(r.Verbs, verb) {
				t.Errorf("a rule may %s definitions: %v", verb, r)
			}
		}
	}
}

// TestInjectionRole: in a cluster with injection, the documented role may write the installed objects, by name, and no
// others of their types.
func TestInjectionRole(t *testing.T) {
	role := roleIn(t, "../../config/rbac/injection/injection.yaml")
	objects, err := admission(serviceAdmission, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]string{"customresourcedefinitions": {"serviceinjectionpolicies.refract.dev"}}
	for _, o := range objects {
		resource := "validatingadmissionpolicies"
		if o.GetKind() == "ValidatingAdmissionPolicyBinding" {
			resource = "validatingadmissionpolicybindings"
		}
		want[resource] = append(want[resource], o.GetName())
	}
	got := map[string][]string{}
	for _, r := range role.Rules {
		for resource := range want {
			if slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, "patch") {
				got[resource] = append(got[resource], r.ResourceNames...)
			}
		}
		if slices.Contains(r.Resources, "*") || slices.Contains(r.APIGroups, "*") || slices.Contains(r.Verbs, "*") {
			t.Errorf("a rule with a star: %v", r)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("objects that the role may write: -want, +got:\n%s", diff)
	}
}
