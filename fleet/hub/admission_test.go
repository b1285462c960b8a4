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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"refract.dev/config"
)

// TestAdmission: policies come before their bindings, and each has at least one.
func TestAdmission(t *testing.T) {
	services := []string{
		"ValidatingAdmissionPolicy/refract-services",
		"ValidatingAdmissionPolicyBinding/refract-services",
	}
	cases := map[string]struct {
		reason string
		files  []admissionFile
		want   []string
	}{
		"Hub": {
			reason: "A hub has the policies for propagated objects and for Services.",
			files:  hubAdmission,
			want: append([]string{
				"ValidatingAdmissionPolicy/refract-followers",
				"ValidatingAdmissionPolicyBinding/refract-followers",
				"ValidatingAdmissionPolicyBinding/refract-followers-cluster",
				"ValidatingAdmissionPolicy/refract-named-followers",
				"ValidatingAdmissionPolicyBinding/refract-named-followers",
				"ValidatingAdmissionPolicyBinding/refract-named-followers-cluster",
			}, append(services,
				"ValidatingAdmissionPolicy/refract-placements",
				"ValidatingAdmissionPolicyBinding/refract-placements",
				"ValidatingAdmissionPolicy/refract-references",
				"ValidatingAdmissionPolicyBinding/refract-references",
				"ValidatingAdmissionPolicy/refract-rollouts",
				"ValidatingAdmissionPolicyBinding/refract-rollouts",
				"ValidatingAdmissionPolicy/refract-tokens",
				"ValidatingAdmissionPolicyBinding/refract-tokens",
			)...),
		},
		"Conversion": {
			reason: "With conversion, incompletely converted objects are protected from changes, and the converter's objects from deletion.",
			files:  conversionAdmission,
			want: []string{
				"ValidatingAdmissionPolicy/refract-unconverted", "ValidatingAdmissionPolicyBinding/refract-unconverted",
				"ValidatingAdmissionPolicy/refract-conversion-in-use", "ValidatingAdmissionPolicyBinding/refract-conversion-in-use",
			},
		},
		"Member": {
			reason: "A member propagates no objects, but injects its pods.",
			files:  serviceAdmission,
			want: append(services,
				"ValidatingAdmissionPolicy/refract-injection-status",
				"ValidatingAdmissionPolicyBinding/refract-injection-status",
			),
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			objects, err := admission(tc.files, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, o := range objects {
				got = append(got, o.GetKind()+"/"+o.GetName())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nadmission(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestTrusted: the names of users are written into the policy about Services, with any characters, and nothing else
// changes.
func TestTrusted(t *testing.T) {
	const variable = trustedVariable
	expression := func(trusted ...string) string {
		t.Helper()
		objects, err := admission(hubAdmission, map[string][]string{variable: trusted})
		if err != nil {
			t.Fatal(err)
		}
		plain, err := admission(hubAdmission, nil)
		if err != nil {
			t.Fatal(err)
		}
		var found []string
		for i := range objects {
			if diff := cmp.Diff(plain[i], objects[i]); diff == "" {
				continue
			}
			variables, _, err := unstructured.NestedSlice(objects[i].Object, "spec", "variables")
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range variables {
				if v := v.(map[string]any); v["name"] == variable {
					found = append(found, v["expression"].(string))
					v["expression"] = "[]"
				}
			}
			if err := unstructured.SetNestedSlice(objects[i].Object, variables, "spec", "variables"); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(plain[i], objects[i]); diff != "" {
				t.Errorf("want only the variable to differ: -without, +with:\n%s", diff)
			}
		}
		return strings.Join(found, " and ")
	}
	for want, trusted := range map[string][]string{
		"": {},
		`["system:serviceaccount:flux-system:kustomize-controller", "alice"]`: {"system:serviceaccount:flux-system:kustomize-controller", "alice"},
		`["\"] + [request.userInfo.username] + [\"", "a\\b"]`:                 {`"] + [request.userInfo.username] + ["`, `a\b`},
	} {
		if diff := cmp.Diff(want, expression(trusted...)); diff != "" {
			t.Errorf("The variable %s for %q: -want, +got:\n%s", variable, trusted, diff)
		}
	}
}

// TestAllAdmission: every file is installed.
func TestAllAdmission(t *testing.T) {
	want, err := fs.Glob(config.Admission, "admission/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, file := range slices.Concat(hubAdmission, serviceAdmission, conversionAdmission) {
		got = append(got, file.path)
	}
	slices.Sort(got)
	if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
		t.Errorf("installed files: -want, +got:\n%s", diff)
	}
}

// TestOwn: only the user of Refract may write two parts of the status of policies: the results from Services, and the
// authorized references of override policies.
func TestOwn(t *testing.T) {
	objects, err := admission(slices.Concat(serviceAdmission, hubAdmission), map[string][]string{ownVariable: {"system:serviceaccount:a:b"}})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]any{}
	for _, o := range objects {
		variables, _, err := unstructured.NestedSlice(o.Object, "spec", "variables")
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range variables {
			if v := v.(map[string]any); v["name"] == ownVariable {
				found[o.GetName()] = v["expression"]
			}
		}
	}
	if diff := cmp.Diff(map[string]any{
		"refract-injection-status": `["system:serviceaccount:a:b"]`,
		"refract-placements":       `["system:serviceaccount:a:b"]`,
		"refract-references":       `["system:serviceaccount:a:b"]`,
		"refract-rollouts":         `["system:serviceaccount:a:b"]`,
	}, found); diff != "" {
		t.Errorf("The variable %s: -want, +got:\n%s", ownVariable, diff)
	}
}

// TestDocumentedRole: the documented role may write the objects that are installed on the hub, by name, and no others
// of their types.
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
	objects, err := admission(hubAdmission, nil)
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
		if slices.Contains(r.Resources, "*") && !slices.Equal(r.Verbs, []string{"list", "watch"}) {
			t.Errorf("a rule with a star allows more than reading: %v", r)
		}
	}
}
