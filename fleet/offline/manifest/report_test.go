package manifest

import (
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

func TestPropagations(t *testing.T) {
	place := Place{File: "a.yaml", Line: 1, Document: 1}
	cases := map[string]struct {
		reason string
		in     string
		want   Propagation
	}{
		"Namespaced": {
			reason: "Each cluster in the report may have a copy, unless it is to be deleted. Deleted policies count as rendered, as for the controllers.",
			in: `apiVersion: refract.dev/v1alpha1
kind: Propagation
metadata: {name: web.deployments.apps, namespace: shop}
spec:
  source: {apiVersion: apps/v1, kind: Deployment, resource: deployments, name: web, uid: u-1}
status:
  placed: 2
  placementHash: abc
  follows: [{resource: statefulsets.apps, name: db}]
  overridePolicies:
  - {kind: OverridePolicy, namespace: shop, name: z, generation: 3}
  - {kind: ClusterOverridePolicy, name: a, generation: 1}
  deletedPolicies:
  - {kind: OverridePolicy, namespace: shop, name: gone}
  clusters:
  - {name: us-1, state: Offline, replicas: 2}
  - {name: eu-1, state: Synced}
  - {name: ap-1, state: Deleting, replicas: 3}
`,
			want: Propagation{
				Place: place, Name: "web.deployments.apps",
				Source:   Identity{GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, Namespace: "shop", Name: "web"},
				UID:      "u-1",
				Clusters: []string{"eu-1", "us-1"},
				Replicas: map[string]int64{"us-1": 2}, PlacementHash: "abc",
				Follows: []refractv1alpha1.FollowedObject{{Resource: "statefulsets.apps", Name: "db"}},
				Rendered: []tree.Policy{
					{Kind: "OverridePolicy", Namespace: "shop", Name: "z"},
					{Kind: "ClusterOverridePolicy", Name: "a"},
					{Kind: "OverridePolicy", Namespace: "shop", Name: "gone"},
				},
			},
		},
		"ClusterScoped": {
			reason: "A report on a cluster-scoped object may be empty.",
			in: `apiVersion: refract.dev/v1alpha1
kind: ClusterPropagation
metadata: {name: shop.namespaces}
spec: {source: {apiVersion: v1, kind: Namespace, resource: namespaces, name: shop}}
`,
			want: Propagation{
				Place: place, Name: "shop.namespaces",
				Source: Identity{GroupKind: schema.GroupKind{Kind: "Namespace"}, Name: "shop"},
			},
		},
		"BadSource": {
			reason: "An invalid version gives an identity that no object has.",
			in: `apiVersion: refract.dev/v1alpha1
kind: Propagation
metadata: {name: x}
spec: {source: {apiVersion: a/b/c, kind: X, resource: xs, name: x}}
`,
			want: Propagation{
				Place: place, Name: "x",
				Source: Identity{GroupKind: schema.GroupKind{Kind: "X"}, Namespace: "default", Name: "x"},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set, problems := ReadFS(fstest.MapFS{"a.yaml": {Data: []byte(tc.in)}})
			if len(problems) > 0 {
				t.Fatalf("%s\nReadFS(): problems: %v", tc.reason, problems)
			}
			if diff := cmp.Diff([]Propagation{tc.want}, set.Propagations); diff != "" {
				t.Errorf("%s\nReadFS(): Propagations: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
