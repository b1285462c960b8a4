package rollout

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/test/harness"
)

// TestWaves: a change goes out wave by wave, and a bad one stops at the first cluster and is taken back, by itself.
func TestWaves(t *testing.T) {
	ns := namespace(t)
	h := watching(t, ns)
	apply(t, ns, shop, careful)
	complete(t, ns)

	release(t, ns, "shop:2")
	reaches(t, ns, refractv1alpha1.RolloutWaiting, func(s *refractv1alpha1.RolloutStatus) bool { return s.Awaits != "" && len(s.Done) == 1 })
	if diff := cmp.Diff([]string{"member-2"}, h.had("shop:2")); diff != "" {
		t.Fatalf("while Europe waits for an approval: -want, +got:\n%s", diff)
	}
	approve(t, ns)
	complete(t, ns)
	if diff := cmp.Diff(env.Members, h.had("shop:2")); diff != "" {
		t.Errorf("when it is complete: -want, +got:\n%s", diff)
	}
	if bake := h.since("member-1", "shop:2").Sub(h.since("member-2", "shop:2")); bake < 3*time.Second {
		t.Errorf("want the canary to have been ready for 3 s before the next cluster, got %s", bake)
	}
	for _, europe := range []string{"member-1", "member-4"} {
		for _, rest := range []string{"member-3", "member-5", "member-6"} {
			if !h.since(europe, "shop:2").Before(h.since(rest, "shop:2")) {
				t.Errorf("%s got it at %s, and %s at %s", europe, h.since(europe, "shop:2"), rest, h.since(rest, "shop:2"))
			}
		}
	}

	policy := &refractv1alpha1.RolloutPolicy{}
	if err := hub.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "careful"}, policy); err != nil {
		t.Fatal(err)
	}
	release(t, ns, "shop:broken")
	reaches(t, ns, refractv1alpha1.RolloutReverted, nil)
	harness.Eventually(t, "the canary has what it had", func(context.Context) error {
		if got := h.now("member-2"); got != "shop:2" {
			return fmt.Errorf("it has %s", got)
		}
		return nil
	})
	if diff := cmp.Diff([]string{"member-2"}, h.had("shop:broken")); diff != "" {
		t.Errorf("who had what is broken: -want, +got:\n%s", diff)
	}
	failed := h.since("member-2", "shop:broken").Add(10 * time.Second)
	t.Logf("broken on 1 of %d clusters; back %.1f s after the time was over", len(env.Members), h.since("member-2", "shop:2").Sub(failed).Seconds())
	if got := kubectl(t, "hub", "", "get", "deployment", "web", "-n", ns, "-o", "jsonpath={.spec.template.spec.containers[0].image}"); got != "shop:broken" {
		t.Errorf("want the object to stay as its user has written it, got image %s", got)
	}
	after := &refractv1alpha1.RolloutPolicy{}
	if err := hub.Get(t.Context(), client.ObjectKeyFromObject(policy), after); err != nil || after.Generation != policy.Generation {
		t.Errorf("want the policy to stay as it is, got generation %d, not %d, %v", after.Generation, policy.Generation, err)
	}

	// The next edit begins anew.
	release(t, ns, "shop:3")
	reaches(t, ns, refractv1alpha1.RolloutWaiting, func(s *refractv1alpha1.RolloutStatus) bool { return s.Awaits != "" && len(s.Done) == 1 })
	approve(t, ns)
	complete(t, ns)
}
