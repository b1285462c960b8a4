package hub

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"refract.dev/config"
)

// TestAdmission: policies come before their bindings, and each has some.
func TestAdmission(t *testing.T) {
	objects, err := admission()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range objects {
		got = append(got, o.GetKind()+"/"+o.GetName())
	}
	want := []string{
		"ValidatingAdmissionPolicy/refract-followers",
		"ValidatingAdmissionPolicyBinding/refract-followers",
		"ValidatingAdmissionPolicyBinding/refract-followers-cluster",
		"ValidatingAdmissionPolicy/refract-named-followers",
		"ValidatingAdmissionPolicyBinding/refract-named-followers",
		"ValidatingAdmissionPolicyBinding/refract-named-followers-cluster",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("admission(): -want, +got:\n%s", diff)
	}
}

// TestDocumentedRole: what is installed on the hub by name may be written by the role
// that is documented for that, and nothing else of its type.
func TestDocumentedRole(t *testing.T) {
	text, err := os.ReadFile("../../config/rbac/hub.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ = bytes.Cut(text, []byte("\n---\n"))
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(text, role); err != nil {
		t.Fatal(err)
	}
	crds, err := fs.Glob(config.CRDs, "crd/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	wantCRDs := make([]string, len(crds))
	for i, file := range crds {
		group, plural, _ := strings.Cut(strings.TrimSuffix(path.Base(file), ".yaml"), "_")
		wantCRDs[i] = plural + "." + group
	}
	objects, err := admission()
	if err != nil {
		t.Fatal(err)
	}
	var wantPolicies []string
	for _, o := range objects {
		wantPolicies = append(wantPolicies, o.GetName())
	}
	for resource, want := range map[string][]string{"customresourcedefinitions": wantCRDs, "validatingadmissionpolicies": wantPolicies} {
		var got []string
		for _, r := range role.Rules {
			if slices.Contains(r.Resources, resource) && slices.Contains(r.Verbs, "patch") {
				got = append(got, r.ResourceNames...)
			}
		}
		slices.Sort(got)
		slices.Sort(want)
		if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
			t.Errorf("%s that the role may write: -want, +got:\n%s", resource, diff)
		}
	}
	for _, r := range role.Rules {
		if slices.Contains(r.Resources, "*") && !slices.Equal(r.Verbs, []string{"get", "list", "watch"}) {
			t.Errorf("a rule with a star does more than read: %v", r)
		}
	}
}
