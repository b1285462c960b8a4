package policies

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/internal/webhook/bounded"
	"refract.dev/kit/webhook/admission"
)

// largePolicies returns many policies of a namespace, each of the maximum size.
func largePolicies(namespace string, n int) []*unstructured.Unstructured {
	all := make([]*unstructured.Unstructured, n)
	for i := range all {
		var rules []any
		for r := range 4 {
			var patches []any
			for p := range 100 {
				patches = append(patches, map[string]any{"path": fmt.Sprintf("/data/%d-%d", r, p), "operator": "add", "value": "x"})
			}
			rules = append(rules, map[string]any{"overriders": map[string]any{"jsonpatch": patches}})
		}
		p := brings("", 1, fmt.Sprint(i))
		p.SetNamespace(namespace)
		p.SetName(fmt.Sprint("large-", i))
		p.Object["spec"] = map[string]any{"overrideRules": rules}
		all[i] = p
	}
	return all
}

// TestLargePolicies: after a change of one of many large stored policies, a review of another namespace does not parse
// all of them again.
func TestLargePolicies(t *testing.T) {
	large := largePolicies("bank", 60)
	fleet := &hub{objects: slices.Concat(objects(t, []byte(misled), true), large)}
	v := newValidator(Options{Allowed: everything, Log: logr.Discard(), Patience: time.Minute, Fleet: fleet})
	allocated := func() uint64 {
		t.Helper()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if got := ask(t, admission.Handler(v.handle), review(t, nil, misleading(1, "a"))); !got.Allowed {
			t.Fatal(shown(got))
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	first := allocated()
	fleet.objects = slices.Clone(fleet.objects)
	fleet.objects[len(fleet.objects)-1] = large[len(large)-1].DeepCopy()
	if second := allocated(); second > first/10 {
		t.Errorf("after a change of one of 60 policies: want a tenth of the first memory allocation, got %d KiB of %d", second>>10, first>>10)
	}
}

// TestOutOfTime: a parse that runs out of time in one review continues in the next.
func TestOutOfTime(t *testing.T) {
	large := largePolicies("bank", 50)
	k := newKnown()
	late := 0
	for range 1000 {
		ctx, cancel := context.WithTimeoutCause(t.Context(), 2*time.Millisecond, bounded.ErrTooLong)
		_, _, err := k.parse(ctx, large, nil)
		cancel()
		if err == nil {
			break
		}
		if late++; !errors.Is(err, bounded.ErrTooLong) {
			t.Fatal(err)
		}
	}
	if k.set == nil || len(k.set.OverridePolicies) != len(large) || late == 0 {
		t.Errorf("want all policies read after some reviews, got %d reviews that ran out of time, and %v", late, k.set != nil)
	}
}
