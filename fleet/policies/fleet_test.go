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
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/offline/manifest"
	"refract.dev/internal/webhook/bounded"
	"refract.dev/kit/webhook/admission"
	"refract.dev/tree"
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

// TestConcerned: an autoscaler counts without naming the policy, because the render leaves the replicas of its workload
// to the cluster.
func TestConcerned(t *testing.T) {
	var objects []*unstructured.Unstructured
	for _, o := range []struct{ apiVersion, kind, name, policy string }{
		{"apps/v1", "Deployment", "web", "sizes"},
		{"apps/v1", "Deployment", "other", "colors"},
		{"autoscaling/v2", "HorizontalPodAutoscaler", "web", ""},
		{"keda.sh/v1alpha1", "ScaledObject", "worker", ""},
		{"example.com/v1", "HorizontalPodAutoscaler", "homonym", ""},
	} {
		u := &unstructured.Unstructured{}
		u.SetAPIVersion(o.apiVersion)
		u.SetKind(o.kind)
		u.SetNamespace("shop")
		u.SetName(o.name)
		if o.policy != "" {
			u.SetLabels(map[string]string{"kubeadmiral.io/override-policy-name": o.policy})
		}
		objects = append(objects, u)
	}
	set, problems := manifest.FromObjects("hub", objects, func(schema.GroupKind) (bool, bool) { return true, true })
	if len(problems) > 0 {
		t.Fatal(problems[0])
	}
	var got []string
	for _, o := range concerned(set, &write{ref: tree.Policy{Kind: "OverridePolicy", Namespace: "shop", Name: "sizes"}}).Objects {
		got = append(got, o.Content.GetKind()+" "+o.Content.GetName())
	}
	slices.Sort(got)
	want := []string{"Deployment web", "HorizontalPodAutoscaler web", "ScaledObject worker"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}
