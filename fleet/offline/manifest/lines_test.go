package manifest

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func TestAt(t *testing.T) {
	in := fstest.MapFS{
		"a.yaml": {Data: []byte(`# A comment.
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
spec:
  replicas: 3
---
# Another.
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: op}
spec:
  overrideRules:
    - overriders:
        jsonpatch:
          - path: /spec/replicas
            operator: replace
            value: 1
          - operator: replace
            path: /spec/paused
            value: true
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: FederatedCluster
metadata:
  name: eu-1
  labels:
    example.com/region: eu
---
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: ConfigMap
    metadata:
      name: item
`)},
		"b.json": {Data: []byte(`{"apiVersion": "v1", "kind": "ConfigMap",
  "metadata": {
    "name": "json"}}
`)},
		"c.json": {Data: []byte(`{"apiVersion": "v1", "kind": "ConfigMap", "data": {"x": "\ud83d\ude00"},
  "metadata": {"name": "surrogates"}}
`)},
	}
	set, problems := ReadFS(in)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	object, policy, cluster := &set.Objects[0], &set.OverridePolicies[0], &set.Clusters[0]
	item, inJSON, noYAML := &set.Objects[1], &set.Objects[2], &set.Objects[3]
	cases := map[string]struct {
		reason string
		at     func(string) Place
		field  string
		want   Place
	}{
		"Whole":   {reason: "The place of an object is that of its first field.", at: object.At, want: Place{"a.yaml", 2, 1}},
		"Field":   {reason: "The place of a field is that of its key.", at: object.At, field: "spec.replicas", want: Place{"a.yaml", 7, 1}},
		"Deeper":  {reason: "A missing field is at the nearest field around it.", at: object.At, field: "spec.template.spec", want: Place{"a.yaml", 6, 1}},
		"Unknown": {reason: "If nothing of the path exists, the place is that of the object.", at: object.At, field: "status", want: Place{"a.yaml", 2, 1}},
		"Policy":  {reason: "The places of fields in policies are known.", at: policy.At, field: "spec.overrideRules[0].overriders.jsonpatch[1].path", want: Place{"a.yaml", 21, 2}},
		"Element": {reason: "The place of an element is its first line.", at: policy.At, field: "spec.overrideRules[0].overriders.jsonpatch[1]", want: Place{"a.yaml", 20, 2}},
		"Cluster": {reason: "Fields of clusters have places, too.", at: cluster.At, field: "metadata.labels[example.com/region]", want: Place{"a.yaml", 29, 3}},
		"Item":    {reason: "The places of fields in the items of a list are known.", at: item.At, field: "metadata.name", want: Place{"a.yaml", 37, 4}},
		"JSON":    {reason: "The places of fields in JSON are known.", at: inJSON.At, field: "metadata.name", want: Place{"b.json", 3, 1}},
		"NoYAML":  {reason: "For JSON that is not YAML, only the first line is known.", at: noYAML.At, field: "metadata.name", want: Place{"c.json", 1, 1}},
		"None":    {reason: "Without lines, the place is unchanged.", at: (&Object{Place: Place{File: "hub"}}).At, field: "spec", want: Place{File: "hub"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.at(tc.field)); diff != "" {
				t.Errorf("%s\nAt(%q): -want, +got:\n%s", tc.reason, tc.field, diff)
			}
		})
	}
}
