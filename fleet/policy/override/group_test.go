package override

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/policy/match"
)

// TestGroups verifies that cached groups do not change any result, in any order of renderings.
func TestGroups(t *testing.T) {
	perTier := func(value string) *Policy {
		p := rulesOf(1, 1)
		for i := range p.Spec.OverrideRules {
			rule := &p.Spec.OverrideRules[i]
			rule.TargetClusters = &corev1alpha1.TargetClusters{ClusterSelector: map[string]string{"tier": fmt.Sprint(i)}}
			rule.Overriders.JSONPatch[0].Value.Raw = fmt.Appendf(nil, "%q", value+fmt.Sprint(i))
		}
		policy, errs := Compile(p)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		return policy
	}
	a, b, c := perTier("a"), perTier("b"), perTier("c")
	clustersOf := func(n, tiers int) (all []match.Cluster) {
		for i := range n {
			all = append(all, match.Cluster{Name: fmt.Sprintf("c%d", i), Labels: map[string]string{"tier": fmt.Sprint(i % tiers)}})
		}
		return all
	}
	two, three := clustersOf(6, 2), clustersOf(6, 3)
	var groups Groups
	for i, tc := range []struct {
		reason   string
		clusters []match.Cluster
		policies []*Policy
	}{
		{"The cache is empty.", two, []*Policy{a}},
		{"The same clusters and policies again.", two, []*Policy{a}},
		{"The same clusters with another policy.", two, []*Policy{b}},
		{"Other clusters with the first policy.", three, []*Policy{a}},
		{"Only some of the clusters.", three[:4], []*Policy{a}},
		{"No clusters.", nil, []*Policy{a}},
		{"Two policies for the other clusters.", three, []*Policy{a, b}},
		{"The policies take effect in another order.", three, []*Policy{b, a}},
		{"More policies than the cache allows.", three, []*Policy{a, b, c}},
		{"Only the first two of these policies.", three, []*Policy{a, b}},
		{"No policies.", three, nil},
	} {
		obj := configMap()
		want := new(Budget).Render(obj, tc.clusters, tc.policies...)
		got := (&Budget{Groups: &groups}).Render(obj, tc.clusters, tc.policies...)
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b *unstructured.Unstructured) bool { return cmp.Equal(a.Object, b.Object) })); diff != "" {
			t.Errorf("%d: %s\nRender(): without Groups -, with them +:\n%s", i, tc.reason, diff)
		}
	}
}
