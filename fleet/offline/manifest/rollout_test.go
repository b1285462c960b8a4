package manifest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/tree"
)

// TestFloor reads from a hub a Namespace that names a rollout policy. Its objects obey the policy. The Namespace itself
// is propagated only if it has a propagation label.
func TestFloor(t *testing.T) {
	const named = "refract.dev/cluster-rollout-policy-name: floor"
	cases := map[string]struct {
		reason, labels string
		travels        bool
	}{
		"Names":  {"It is no object that would be shown for every cluster.", named, false},
		"Asks":   {"It travels like any object that asks for it.", named + ", kubeadmiral.io/cluster-propagation-policy-name: all", true},
		"Others": {"Nothing else is left out.", "a: b", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			set, problems := FromObjects("hub", []*unstructured.Unstructured{
				{Object: parse(t, "{apiVersion: v1, kind: Namespace, metadata: {name: shop, labels: {"+tc.labels+"}}}")},
				{Object: parse(t, "{apiVersion: v1, kind: ConfigMap, metadata: {name: web, namespace: shop}}")},
			}, nil)
			if len(problems) > 0 {
				t.Fatal(problems)
			}
			if travels := len(set.Objects) == 2; travels != tc.travels {
				t.Errorf("%s\nthe Namespace is among the objects: want %t, got %t", tc.reason, tc.travels, travels)
			}
			names, _, err := set.Rollouts().Named(&set.Objects[len(set.Objects)-1])
			var want []tree.Policy
			if name != "Others" {
				want = []tree.Policy{{Kind: "ClusterRolloutPolicy", Name: "floor"}}
			}
			if diff := cmp.Diff(want, names.All()); diff != "" || err != nil {
				t.Errorf("%s\nNamed(): %v, -want, +got:\n%s", tc.reason, err, diff)
			}
		})
	}
}
