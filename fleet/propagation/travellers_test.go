package propagation

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// TestManyReferences covers an object with thousands of references and a different variant on each cluster.
func TestManyReferences(t *testing.T) {
	const references, clusters = 2000, 100
	sources := make([]any, references)
	for i := range sources {
		sources[i] = map[string]any{"configMapRef": map[string]any{"name": fmt.Sprint("c", i)}}
	}
	obj := deployment(map[string]string{corev1alpha1.PropagationPolicyLabel: "pp", corev1alpha1.OverridePolicyLabel: "op"}, nil, false)
	obj.Object["spec"].(map[string]any)["template"] = map[string]any{"spec": map[string]any{
		"containers": []any{map[string]any{"name": "web", "image": "web", "envFrom": sources}},
	}}
	s := fleetOf(t, clusters, labelEach(t, clusters))
	before, began := alive(), time.Now()
	p := decide(source{gvr: deployments, kind: "Deployment", object: obj}, previous{uid: "1"}, s)
	took := time.Since(began)
	for _, v := range p.variants {
		v.body.Store(nil)
	}
	kept := alive() - before
	t.Logf("%v, and %d bytes are kept", took, kept)
	if len(p.variants) != clusters || len(p.followers) != references || p.withheld != nil {
		t.Fatalf("want %d variants and %d followers, got %d and %d, %d withheld", clusters, references, len(p.variants), len(p.followers), len(p.withheld))
	}
	first := p.followers[keyOf("configmaps", "c0")]
	for key, on := range p.followers {
		if len(on) != clusters || &on[0] != &first[0] {
			t.Fatalf("%v: want the shared list of all clusters, got %v", key, on)
		}
	}
	if !slices.IsSorted(first) {
		t.Errorf("want clusters in order, got %v", first)
	}
	if kept > references*800 {
		t.Errorf("want less than 800 bytes kept for each reference, got %d", kept/references)
	}
	runtime.KeepAlive(obj)
	runtime.KeepAlive(p)
}
