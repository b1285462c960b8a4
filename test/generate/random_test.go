package generate

import (
	"errors"
	"flag"
	"fmt"
	"reflect"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"refract.dev/fleet/policy/override"
	"refract.dev/tree"
)

var seeds = flag.Uint64("seeds", 200, "how many random fleets to look at")

// TestRandom: every document of every fleet is valid, before and after edits. Overrides change most objects, and every
// kind of failure occurs.
func TestRandom(t *testing.T) {
	s := &survey{features: features{}}
	for seed := range *seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { s.add(t, Random(seed), seed) })
	}
	if *seeds < 100 || t.Failed() {
		return // The sample is too small.
	}
	shares := []struct {
		what         string
		is, of       int
		least, most  int // In percent.
		consequences string
	}{
		{"placed and rendered with changes", s.changed, s.pairs, 30, 90, "few fleets show changes"},
		{"that fail", s.failed, s.pairs, 2, 20, "too few errors are tested, or too little else"},
		{"with warnings", s.warned, s.pairs, 2, 50, "too few warnings are tested, or too little else"},
		{"with a change that hides another", s.shadowed, s.pairs, 2, 60, "reports of hidden changes are not tested"},
		{"not placed, or without their policy", s.absent, s.pairs, 5, 40, "too few absences are tested, or too little else"},
		{"edits that change what a cluster gets", s.edited, s.fleets, 70, 99, "too few differences are tested, or there is always one"},
	}
	for _, share := range shares {
		percent := 100 * share.is / share.of
		t.Logf("%s: %d of %d, %d %%", share.what, share.is, share.of, percent)
		if percent < share.least || percent > share.most {
			t.Errorf("%s: %d %%, want %d to %d %%: %s", share.what, percent, share.least, share.most, share.consequences)
		}
	}
	if missing := s.features.missing(wanted); len(missing) > 0 {
		t.Errorf("no fleet has %q", missing)
	}
}

// TestRandomIsRepeatable: the fleet depends only on the seed.
func TestRandomIsRepeatable(t *testing.T) {
	different := map[string]bool{}
	for seed := range uint64(50) {
		first, second := contents(t, Mutate(Random(seed), seed+1).FS()), contents(t, Mutate(Random(seed), seed+1).FS())
		if diff := cmp.Diff(first, second); diff != "" {
			t.Fatalf("seed %d: -first, +second:\n%s", seed, diff)
		}
		different[fmt.Sprint(first)] = true
	}
	if len(different) != 50 {
		t.Errorf("50 seeds made %d different fleets", len(different))
	}
}

// survey counts the results of random fleets. A pair is an object on a cluster.
type survey struct {
	fleets, edited                                   int
	pairs, changed, failed, warned, shadowed, absent int
	features                                         features
}

// add counts the results of a fleet, and of an edit of it with the seed.
func (s *survey) add(t *testing.T, f Fleet, seed uint64) {
	t.Helper()
	set := read(t, f)
	if n := len(set.Clusters); n < 1 || n > 8 {
		t.Errorf("%d clusters, want 1 to 8", n)
	}
	if n := len(set.Objects); n < 1 || n > 13 { // Including the definition of a kind.
		t.Errorf("%d objects, want 1 to 12", n)
	}
	before := f.Clone()
	edited := Mutate(f, seed)
	if !reflect.DeepEqual(before, f) {
		t.Errorf("Mutate() changed its argument: -before, +after:\n%s", cmp.Diff(before, f))
	}
	if reflect.DeepEqual(f, edited) {
		t.Error("Mutate() changed nothing")
	}
	after := read(t, edited)
	if len(after.Clusters) == 0 {
		t.Error("Mutate() left no cluster")
	}
	s.fleets++
	was, is := pairs(set), pairs(after)
	if !reflect.DeepEqual(outcome(was), outcome(is)) {
		s.edited++
	}
	for _, p := range was {
		s.addPair(p)
	}
	for _, name := range f.Paths() {
		for _, d := range f[name] {
			s.features.add(d)
		}
	}
}

func (s *survey) addPair(p pair) {
	s.pairs++
	var failure *override.RuleError
	switch {
	case p.variant == nil:
		s.absent++
		return
	case errors.As(p.variant.Err, &failure):
		s.failed++
		s.features["error of "+failure.Overrider]++
	case len(p.variant.Changes) > 0:
		s.changed++
	}
	for _, w := range p.variant.Warnings {
		s.features["warning of "+w.Overrider]++
	}
	if len(p.variant.Warnings) > 0 {
		s.warned++
	}
	if slices.ContainsFunc(p.variant.Changes, func(c tree.Change) bool { return len(c.Shadows) > 0 }) {
		s.shadowed++
	}
}

// outcome returns the content of each object on each cluster, or the error.
func outcome(of []pair) map[string]any {
	out := map[string]any{}
	for _, p := range of {
		switch {
		case p.variant == nil:
		case p.variant.Err != nil:
			out[p.object+" on "+p.cluster] = p.variant.Err.Error()
		default:
			out[p.object+" on "+p.cluster] = p.variant.Object.Object
		}
	}
	return out
}
