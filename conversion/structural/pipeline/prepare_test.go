package pipeline_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"

	"refract.dev/conversion/structural"
	"refract.dev/conversion/structural/pipeline"
)

// TestPrepared checks that only the status subresource can set the status, if there is one.
func TestPrepared(t *testing.T) {
	type object = map[string]any
	version := func(t *testing.T, subresources object) *structural.Version {
		t.Helper()
		d, err := structural.New(object{
			"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": object{"name": "boxes.example.com"},
			"spec": object{
				"group": "example.com", "scope": "Cluster", "names": object{"kind": "Box", "plural": "boxes"},
				"versions": []any{object{
					"name": "v1", "served": true, "storage": true, "subresources": subresources,
					"schema": object{"openAPIV3Schema": object{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
				}},
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		return d.Versions()[0]
	}
	with := object{"status": object{}}
	cases := map[string]struct {
		reason         string
		subresources   object
		obj, old, want object
	}{
		"Create":    {"A create does not set the status.", with, object{"a": "b", "status": "new"}, nil, object{"a": "b"}},
		"Update":    {"An update keeps the status of the old object.", with, object{"a": "b", "status": "new"}, object{"status": "old"}, object{"a": "b", "status": "old"}},
		"Forgotten": {"An update keeps the old status even if the new object has none.", with, object{}, object{"status": "old"}, object{"status": "old"}},
		"First":     {"An update does not add a status.", with, object{"status": "new"}, object{}, object{}},
		"Nothing":   {"Objects without a status stay unchanged.", with, object{"a": "b"}, object{}, object{"a": "b"}},
		"Plain":     {"Without the subresource, the status is an ordinary field.", object{}, object{"status": "new"}, object{"status": "old"}, object{"status": "new"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			obj, old := runtime.DeepCopyJSON(tc.obj), runtime.DeepCopyJSON(tc.old)
			if diff := cmp.Diff(tc.want, pipeline.Prepared(version(t, tc.subresources), obj, old)); diff != "" {
				t.Errorf("%s\nPrepared(): -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff([]object{tc.obj, tc.old}, []object{obj, old}); diff != "" {
				t.Errorf("Prepared() changed its arguments: -before, +after:\n%s", diff)
			}
		})
	}
}
