package manifest

import (
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/internal/rescue"
)

// TestConcurrently verifies that a panic in one call does not affect the others.
func TestConcurrently(t *testing.T) {
	const n, stumbles = 100, 42
	var mu sync.Mutex
	var done, failed []int
	concurrently(t.Context(), n, func(i int) {
		if i == stumbles {
			panic("what somebody wrote")
		}
		mu.Lock()
		defer mu.Unlock()
		done = append(done, i)
	}, func(i int, err error) {
		mu.Lock()
		defer mu.Unlock()
		failed = append(failed, i)
		if !rescue.Is(err) {
			t.Errorf("want the error of a panic, got %v", err)
		}
	})
	if len(done) != n-1 || !slices.Equal(failed, []int{stumbles}) {
		t.Errorf("want all calls done except %d, which panics: got %d done, and %v failed", stumbles, len(done), failed)
	}
}

// TestStumbling verifies that an object whose decoding panics is not in the Set and has a problem, and that all others
// are read.
func TestStumbling(t *testing.T) {
	was := ourKinds["PropagationPolicy"]
	t.Cleanup(func() { ourKinds["PropagationPolicy"] = was })
	ourKinds["PropagationPolicy"] = ourKind{namespaced: true, decode: func(*object) { panic("what somebody wrote") }}
	object := func(kind string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "core.kubeadmiral.io/v1alpha1", "kind": kind,
			"metadata": map[string]any{"name": "web", "namespace": "shop"}, "spec": map[string]any{},
		}}
	}
	set, problems := FromObjects("hub", []*unstructured.Unstructured{object("PropagationPolicy"), object("OverridePolicy")}, nil)
	if len(set.Manifests) != 1 || len(set.OverridePolicies) != 1 || len(problems) != 1 || problems[0].Kind != "PropagationPolicy" {
		t.Errorf("want the override policy, and one problem, got %d objects and %v", len(set.Manifests), problems)
	}
}
