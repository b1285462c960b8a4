package installation

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/internal/owner"
)

func objects(t *testing.T, o *Options) []*unstructured.Unstructured {
	t.Helper()
	all, err := Objects(o)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestObjects checks that each part has a Deployment, an account and a role, that no two objects have the same name,
// and that all namespaced objects are in the system namespace.
func TestObjects(t *testing.T) {
	all := objects(t, &Options{Parts: Parts(), Namespace: "other", Image: "example.com/refract:v1@sha256:0"})
	names := map[string]bool{}
	for _, o := range all {
		if name := Describe(o); names[name] {
			t.Errorf("%s is there twice", name)
		}
		names[Describe(o)] = true
		if ns := o.GetNamespace(); ns != "" && ns != "other" {
			t.Errorf("%s is in another namespace", Describe(o))
		}
		if containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers"); len(containers) > 0 {
			if image := containers[0].(map[string]any)["image"]; image != "example.com/refract:v1@sha256:0" {
				t.Errorf("%s runs %v", Describe(o), image)
			}
		}
	}
	for _, part := range Parts() {
		for _, want := range []string{
			"deployment other/" + part.Deployment, "service other/" + part.Deployment, "serviceaccount other/" + part.Deployment,
			"poddisruptionbudget other/" + part.Deployment, "networkpolicy other/" + part.Deployment,
			"clusterrole " + part.Role, "clusterrolebinding " + part.Role, "role other/" + part.Role, "rolebinding other/" + part.Role,
		} {
			if !names[want] {
				t.Errorf("%s: want %s", part.Name, want)
			}
		}
	}
	if all[0].GetKind() != "Namespace" {
		t.Errorf("want the namespace first, got %s", Describe(all[0]))
	}
}

// TestManifestNamespace checks that the given namespace replaces the default namespace everywhere, and that nothing
// else changes.
func TestManifestNamespace(t *testing.T) {
	one, err := Manifest(&Options{Parts: Parts(), Image: "a"})
	if err != nil {
		t.Fatal(err)
	}
	other, err := Manifest(&Options{Parts: Parts(), Namespace: "other", Image: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.ReplaceAll(string(one), "kube-admiral-system", "other"); want != string(other) {
		t.Error(cmp.Diff(want, string(other)))
	}
	if strings.Count(string(one), "\n        image: a\n") != len(Parts()) {
		t.Error("want the image in each Deployment")
	}
}

func TestManifestRefuses(t *testing.T) {
	cases := map[string]struct {
		reason string
		o      Options
		want   string
	}{
		"Namespace": {"The namespace must be a DNS label.", Options{Namespace: "a b", Image: "a"}, `system namespace "a b"`},
		"NoImage":   {"The image is required.", Options{}, `image ""`},
		"Image":     {"A line break in the image would add lines to the manifest.", Options{Image: "a\nb: c"}, "want a reference"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.o.Parts = Parts()
			if _, err := Manifest(&tc.o); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s\nwant %q, got %v", tc.reason, tc.want, err)
			}
		})
	}
}

// TestWritten checks that the role of each part permits patches of the objects that the part writes.
func TestWritten(t *testing.T) {
	for _, part := range Parts() {
		var role *unstructured.Unstructured
		for _, o := range objects(t, &Options{Parts: []Part{part}, Image: "a"}) {
			if o.GetKind() == "ClusterRole" && o.GetName() == part.Role {
				role = o
			}
		}
		for _, o := range slices.Concat(part.asked(), part.judged(nil)) {
			kind := strings.ToLower(o.GetObjectKind().GroupVersionKind().Kind)
			plural := kind + "s"
			if strings.HasSuffix(kind, "policy") {
				plural = strings.TrimSuffix(kind, "y") + "ies"
			}
			if !allows(role, plural, o.GetName()) {
				t.Errorf("%s: role %s may not patch %s %s", part.Name, part.Role, plural, o.GetName())
			}
		}
	}
	if owner.HubRole != Propagation.Role {
		t.Errorf("want role %s, got %s", owner.HubRole, Propagation.Role)
	}
}

func allows(role *unstructured.Unstructured, resource, name string) bool {
	rules, _, _ := unstructured.NestedSlice(role.Object, "rules")
	return slices.ContainsFunc(rules, func(r any) bool {
		rule, _ := r.(map[string]any)
		has := func(key, value string) bool {
			values, _ := rule[key].([]any)
			return slices.Contains(values, any(value))
		}
		return has("resources", resource) && has("resourceNames", name) && has("verbs", "patch")
	})
}
