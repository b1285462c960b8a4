package rollout

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
)

// canaryThenProd returns a wave with cluster a, and a wave with b and c that needs an approval.
func canaryThenProd() []refractv1alpha1.RolloutWave {
	return []refractv1alpha1.RolloutWave{
		{Name: "canary", TargetClusters: &corev1alpha1.TargetClusters{Clusters: []string{"a"}}, MinReadySeconds: 600},
		{Name: "prod", TargetClusters: &corev1alpha1.TargetClusters{Clusters: []string{"b", "c"}}, Strategy: refractv1alpha1.WaveManual},
	}
}

// nowhere returns waves that select no cluster. Each is over as soon as it is opened.
func nowhere() (waves []refractv1alpha1.RolloutWave) {
	for _, name := range []string{"w1", "w2", "w3", "w4", "w5"} {
		waves = append(waves, refractv1alpha1.RolloutWave{Name: name, TargetClusters: &corev1alpha1.TargetClusters{Clusters: []string{"no-such-cluster"}}})
	}
	return waves
}

func ownPolicy(t *testing.T, name string, uid types.UID, waves ...refractv1alpha1.RolloutWave) *Policy {
	t.Helper()
	p := &refractv1alpha1.RolloutPolicy{Spec: refractv1alpha1.RolloutPolicySpec{Waves: waves}}
	p.Namespace, p.Name, p.UID, p.Generation = "shop", name, uid, 1
	c, errs := Compile(p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return c
}

func floorPolicy(t *testing.T, uid types.UID, generation int64, waves ...refractv1alpha1.RolloutWave) *Policy {
	t.Helper()
	p := &refractv1alpha1.ClusterRolloutPolicy{}
	p.Name, p.UID, p.Generation, p.Spec.AllowNarrower, p.Spec.Waves = "floor", uid, generation, true, waves
	c, errs := CompileCluster(p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	return c
}

// TestOtherPolicy verifies that open waves and approvals belong to one policy. Another policy of the same name and
// generation inherits neither.
func TestOtherPolicy(t *testing.T) {
	floor := floorPolicy(t, "f", 1, canaryThenProd()...)
	reversed := canaryThenProd()
	reversed[0], reversed[1] = reversed[1], reversed[0]
	tests := []struct {
		name          string // The difference between the policies.
		before, after *Policy
	}{
		{
			"a tenant creates its policy again without the empty waves, which are open while the canary of the floor tries the change",
			ownPolicy(t, "own", "1", nowhere()...).Inside(floor), ownPolicy(t, "own", "2").Inside(floor),
		},
		{"a policy is created again with its waves in another order", ownPolicy(t, "own", "1", canaryThenProd()...), ownPolicy(t, "own", "2", reversed...)},
		{
			"the floor is created again", floorPolicy(t, "f", 1, append(nowhere(), canaryThenProd()[:1]...)...),
			floorPolicy(t, "g", 1, canaryThenProd()...),
		},
		{"the object names another policy", ownPolicy(t, "own", "1", append(nowhere(), canaryThenProd()...)...), ownPolicy(t, "other", "2", canaryThenProd()...)},
		{"the floor no longer allows other policies", ownPolicy(t, "own", "1", nowhere()...).Inside(floor), floorPolicy(t, "f", 2, canaryThenProd()...)},
		{"the object no longer names its policy", ownPolicy(t, "own", "1", nowhere()...).Inside(floor), floor},
		{
			"two policies have exchanged their names", ownPolicy(t, "own", "1", nowhere()...).Inside(floor),
			ownPolicy(t, "own", "2", canaryThenProd()...).Inside(floorPolicy(t, "g", 1)),
		},
		{
			"the RolloutStatus comes from a version without UIDs", ownPolicy(t, "own", "", nowhere()...).Inside(floorPolicy(t, "", 1, canaryThenProd()...)),
			ownPolicy(t, "own", "1").Inside(floor),
		},
	}
	for _, tt := range tests {
		for _, away := range []bool{false, true} {
			t.Run(tt.name+map[bool]string{true: ", and was missing in between"}[away], func(t *testing.T) {
				f := &governedFleet{t: t, in: &Input{Policy: tt.before, Target: revision(1), Now: start}}
				f.look()
				f.in.Target = revision(2)
				f.look()
				opened, nonce, attempt := f.is.Opened, f.is.Nonce, f.is.Attempt
				if opened == 0 || f.targets() == "abc" {
					t.Fatalf("want some but not all waves open, got %d, and %q have the target", opened, f.targets())
				}
				had := f.targets()
				if away {
					f.in.Policy, f.in.Hold = nil, "it does not exist"
					f.look()
				}
				f.in.Policy, f.in.Hold = tt.after, ""
				f.look()
				if f.is.Attempt == attempt || f.is.Nonce == nonce {
					t.Errorf("want a new attempt and nonce, so that earlier approvals do not count, got %d and %q", f.is.Attempt, f.is.Nonce)
				}
				for range 3 {
					for _, name := range []string{"b", "c"} {
						if strings.Contains(f.targets(), name) && !strings.Contains(had, name) {
							t.Fatalf("%s has the target without an approval of prod, %d waves are open: %s", name, f.is.Opened, f.is.Message)
						}
					}
					f.look()
				}
			})
		}
	}
}

// governedFleet is a fleet of three clusters that hold their assigned content.
type governedFleet struct {
	t     *testing.T
	in    *Input
	is    *refractv1alpha1.RolloutStatus
	looks int
}

func (f *governedFleet) look() {
	f.looks++
	f.in.Nonce = strings.Repeat("n", f.looks)
	f.in.Clusters = nil
	for _, name := range []string{"a", "b", "c"} {
		c := Cluster{Cluster: match.Cluster{Name: name}, Holds: true, Ready: true}
		if f.is != nil {
			good := &f.is.LastGood
			if f.is.Target.Name != f.in.Target.Name {
				good = &f.is.Target
			}
			c.Changes, c.Differs = good.Name != f.in.Target.Name, Assigned(f.is, name).Name != f.in.Target.Name
		}
		f.in.Clusters = append(f.in.Clusters, c)
	}
	f.is, _ = Next(f.is, f.in)
}

// targets returns the clusters that have the newest revision.
func (f *governedFleet) targets() string {
	var names []string
	for i := range f.in.Clusters {
		if name := f.in.Clusters[i].Name; Assigned(f.is, name).Name == f.in.Target.Name {
			names = append(names, name)
		}
	}
	return strings.Join(names, "")
}

// TestApprovedForAnotherPolicy verifies that an approval applies only to a wave of the same policy.
func TestApprovedForAnotherPolicy(t *testing.T) {
	manual := func(clusters ...string) refractv1alpha1.RolloutWave {
		return refractv1alpha1.RolloutWave{Name: "first", TargetClusters: &corev1alpha1.TargetClusters{Clusters: clusters}, Strategy: refractv1alpha1.WaveManual}
	}
	f := &governedFleet{t: t, in: &Input{Policy: ownPolicy(t, "own", "1", manual("a")), Target: revision(1), Now: start}}
	f.look()
	f.in.Target = revision(2)
	f.look()
	f.in.Approved = f.is.Awaits
	f.in.Policy = ownPolicy(t, "own", "2", manual("a", "b", "c"))
	f.look()
	if f.targets() != "" || f.is.Awaits == f.in.Approved || f.is.Awaits == "" {
		t.Errorf("want another awaited approval, got %q, and %q have the target", f.is.Awaits, f.targets())
	}
}

// TestSamePolicyAgain verifies that a rollout continues if its policy is unavailable for a moment and then has the same
// UID and generation. A complete rollout does not begin again for another policy.
func TestSamePolicyAgain(t *testing.T) {
	f := &governedFleet{t: t, in: &Input{Policy: ownPolicy(t, "own", "1", canaryThenProd()...), Target: revision(1), Now: start}}
	f.look()
	policy := f.in.Policy
	f.in.Target = revision(2)
	f.look()
	f.look()
	opened, attempt, nonce := f.is.Opened, f.is.Attempt, f.is.Nonce
	f.in.Policy, f.in.Hold = nil, "it waits"
	f.look()
	f.in.Policy, f.in.Hold = policy, ""
	f.look()
	if f.is.Opened != opened || f.is.Attempt != attempt || f.is.Nonce != nonce {
		t.Errorf("want the rollout to continue, got %+v", f.is)
	}
	f.in.Policy, f.is = ownPolicy(t, "own", "2"), nil
	f.look()
	attempt = f.is.Attempt
	f.in.Policy = ownPolicy(t, "own", "3", canaryThenProd()...)
	f.look()
	if f.is.Phase != refractv1alpha1.RolloutComplete || f.is.Attempt != attempt || f.targets() != "abc" || f.is.Policies[0].UID != "3" {
		t.Errorf("want the rollout to stay complete, got %+v", f.is)
	}
}
