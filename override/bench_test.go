package override_test

import (
	"fmt"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/match"
	"refract.dev/override"
)

// BenchmarkRender renders a Deployment of three containers with a policy of
// eight overriders, provenance included, for one cluster and for a thousand for
// which the same rules hold.
func BenchmarkRender(b *testing.B) {
	obj := &unstructured.Unstructured{}
	readYAML(b, "testdata/bench/deployment.yaml", &obj.Object)
	spec := &corev1alpha1.OverridePolicy{}
	readYAML(b, "testdata/bench/policy.yaml", spec)
	policy, errs := override.Compile(spec)
	if len(errs) > 0 {
		b.Fatal(errs.ToAggregate())
	}
	for _, n := range []int{1, 1000} {
		clusters := make([]match.Cluster, n)
		for i := range clusters {
			clusters[i] = match.Cluster{Name: fmt.Sprintf("member-%d", i), Labels: map[string]string{"region": "eu"}}
		}
		b.Run(fmt.Sprintf("clusters=%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v := override.Render(obj, clusters, policy)
				if len(v) != 1 || v[0].Err != nil || len(v[0].Changes) == 0 {
					b.Fatalf("want one variant with changes, got %+v", v)
				}
			}
		})
	}
	b.Run("deepcopy", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = obj.DeepCopy()
		}
	})
}

func readYAML(tb testing.TB, file string, into any) {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	if err := yaml.Unmarshal(text, into); err != nil {
		tb.Fatalf("%s: %v", file, err)
	}
}
