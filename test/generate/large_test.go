package generate

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestLarge: the fleet has the requested number of objects, clusters and policies, the files have the documented size,
// and each object has three variants.
func TestLarge(t *testing.T) {
	size := Size{Objects: 60, Clusters: 27, Policies: 20}
	f := Large(size)
	set := read(t, f)
	got := Size{Objects: len(set.Objects), Clusters: len(set.Clusters), Policies: len(set.OverridePolicies)}
	if diff := cmp.Diff(size, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	for name, content := range contents(t, f.FS()) {
		if d := f[name][0]; kindOf(d) == "Deployment" && (len(content) < 2000 || len(content) > 2500) {
			t.Errorf("%s has %d bytes", name, len(content))
		}
	}
	variants := map[string]map[any]int{}
	for _, p := range pairs(set) {
		switch {
		case p.variant == nil:
			t.Fatalf("%s is not on %s", p.object, p.cluster)
		case p.variant.Err != nil:
			t.Fatalf("%s on %s: %v", p.object, p.cluster, p.variant.Err)
		case len(p.variant.Changes) == 0 || len(p.variant.Warnings) > 0:
			t.Errorf("%s on %s: %d changes, warnings %v", p.object, p.cluster, len(p.variant.Changes), p.variant.Warnings)
		}
		if variants[p.object] == nil {
			variants[p.object] = map[any]int{}
		}
		variants[p.object][p.variant]++
	}
	for object, of := range variants {
		if len(of) != 3 {
			t.Errorf("%s has %d variants", object, len(of))
		}
	}
}
