package override

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/fleet/policy/match"
)

// BenchmarkRender renders a Deployment of three containers. Its policy has one rule with eleven items in six
// overriders. The measurements include the record of changes:
//
//   - for one cluster, and for a thousand clusters with the same rules;
//   - the same with a clusterSelector in the rule;
//   - for clusters that need five variants.
//
// For comparison, handwritten makes the same object from the same input with minimal code: it copies the objects and
// arrays that change, without policies and without a record of changes. Deepcopy only copies the whole input.
func BenchmarkRender(b *testing.B) {
	obj := parseObject(b, readFile(b, "testdata/bench/deployment.yaml"))
	everywhere := benchPolicy(b, "testdata/bench/policy.yaml")
	selected := benchPolicy(b, "testdata/bench/selector.yaml")
	rings := benchPolicy(b, "testdata/bench/rings.yaml")

	for _, bc := range []struct {
		name     string
		policies []*Policy
		clusters int
		variants int
	}{
		{"clusters=1", []*Policy{everywhere}, 1, 1},
		{"clusters=1000", []*Policy{everywhere}, 1000, 1},
		{"selector/clusters=1", []*Policy{selected}, 1, 1},
		{"selector/clusters=1000", []*Policy{selected}, 1000, 1},
		{"five-variants/clusters=5", []*Policy{everywhere, rings}, 5, 5},
		{"five-variants/clusters=1000", []*Policy{everywhere, rings}, 1000, 5},
	} {
		clusters := make([]match.Cluster, bc.clusters)
		for i := range clusters {
			clusters[i] = match.Cluster{Name: fmt.Sprintf("member-%d", i), Labels: map[string]string{"region": "eu", "ring": fmt.Sprint(i % 5)}}
		}
		b.Run(bc.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				v := Render(obj, clusters, bc.policies...)
				if len(v) != bc.variants || v[0].Err != nil {
					b.Fatalf("want %d variants, got %+v", bc.variants, v)
				}
			}
		})
	}
	b.Run("handwritten", func(b *testing.B) {
		want := Apply(obj, match.Cluster{Name: "member"}, everywhere).Object
		if diff := cmp.Diff(want, handwritten(obj)); diff != "" {
			b.Fatalf("-Apply(), +handwritten():\n%s", diff)
		}
		b.ReportAllocs()
		for b.Loop() {
			_ = handwritten(obj)
		}
	})
	b.Run("deepcopy", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			_ = obj.DeepCopy()
		}
	})
}

// handwritten makes the changes of testdata/bench/policy.yaml to testdata/bench/deployment.yaml.
func handwritten(obj *unstructured.Unstructured) *unstructured.Unstructured {
	member := func(m map[string]any, key string) map[string]any {
		c := maps.Clone(m[key].(map[string]any))
		m[key] = c
		return c
	}
	image := func(container map[string]any) {
		img, err := parseImage(container["image"].(string))
		if err != nil {
			panic(err)
		}
		img.registry, img.tag = "cluster.io", "v9"
		container["image"] = img.String()
	}
	root := maps.Clone(obj.Object)
	metadata := member(root, "metadata")
	labels := member(metadata, "labels")
	delete(labels, "kubeadmiral.io/override-policy-name")
	labels["chat"] = "yes"
	labels["app"] = "web2"
	labels["hello"] = "world"
	annotations := member(metadata, "annotations")
	annotations["app"] = "chat"
	delete(annotations, "action")

	spec := member(root, "spec")
	spec["replicas"] = int64(5)
	podSpec := member(member(spec, "template"), "spec")
	containers := slices.Clone(podSpec["containers"].([]any))
	podSpec["containers"] = containers
	for i := range containers {
		containers[i] = maps.Clone(containers[i].(map[string]any))
	}
	first, second, third := containers[0].(map[string]any), containers[1].(map[string]any), containers[2].(map[string]any)
	image(first)
	image(second)
	first["command"] = append(slices.Clone(first["command"].([]any)), "/bin/sh", "-c", "sleep 10s")
	first["args"] = append(slices.Clone(first["args"].([]any)), "-v=4", "--enable-profiling")
	second["command"] = []any{"/bin/sh", "-c", "sleep 10s"}
	third["command"] = slices.DeleteFunc(slices.Clone(third["command"].([]any)), func(v any) bool { return v == "sleep 10s" })
	return &unstructured.Unstructured{Object: root}
}

func benchPolicy(b *testing.B, file string) *Policy {
	b.Helper()
	policies, errs := parsePolicies(b, readFile(b, file))
	if len(errs) > 0 || len(policies) != 1 {
		b.Fatalf("%s: want one policy, got %d and %v", file, len(policies), errs)
	}
	return policies[0]
}

func readFile(tb testing.TB, file string) string {
	tb.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	return string(text)
}
