package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// first is the first released chart.
const first = "testdata/refract-0.1.0.tgz"

// fixed are the fields that an upgrade must keep, by kind. Some are immutable; the others select pods, addresses or
// subjects.
var fixed = map[string][]string{
	"Deployment":          {"spec/selector"},
	"Service":             {"spec/selector", "spec/type", "spec/clusterIP", "spec/ports"}, // The first two select the pods, the others the address.
	"PodDisruptionBudget": {"spec/selector"},
	"NetworkPolicy":       {"spec/podSelector"},
	"RoleBinding":         {"roleRef", "subjects"},
	"ClusterRoleBinding":  {"roleRef", "subjects"},
	"ConfigMap":           {"immutable"},
}

// TestUpgrade: an upgrade from the first chart to this one keeps all objects with their names and selectors, and
// accepts the same values.
func TestUpgrade(t *testing.T) {
	for name, values := range settings(t) {
		t.Run(name, func(t *testing.T) {
			before, _, err := render(t, load(t, first), values, "")
			if err != nil {
				t.Fatal(err)
			}
			after, _, err := render(t, load(t, chartDir), values, "")
			if err != nil {
				t.Fatal(err)
			}
			for key, was := range before {
				is, ok := after[key]
				if !ok {
					t.Errorf("%s is gone", key)
					continue
				}
				if was.GetAPIVersion() != is.GetAPIVersion() || was.GetNamespace() != is.GetNamespace() {
					t.Errorf("%s: was %s in %q, is %s in %q", key, was.GetAPIVersion(), was.GetNamespace(), is.GetAPIVersion(), is.GetNamespace())
				}
				for _, path := range fixed[is.GetKind()] {
					if diff := cmp.Diff(field(was.Unstructured, path), field(is.Unstructured, path)); diff != "" {
						t.Errorf("%s: %s: -before, +after:\n%s", key, path, diff)
					}
				}
			}
		})
	}
	now := leaves(load(t, chartDir).Values)
	for path := range leaves(load(t, first).Values) {
		if _, ok := now[path]; !ok {
			t.Errorf("the value %s is gone: who has set it cannot upgrade", path)
		}
	}
}

// field returns a field by its path, nil if it does not exist.
func field(o *unstructured.Unstructured, path string) any {
	value, _, err := unstructured.NestedFieldNoCopy(o.Object, strings.Split(path, "/")...)
	if err != nil {
		return err.Error()
	}
	return value
}
