package rollout

import (
	"testing"
	"time"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
)

// TestClockAhead verifies that the readiness of a copy does not look interrupted if the clock of a replica is ahead.
func TestClockAhead(t *testing.T) {
	p, errs := Compile(&refractv1alpha1.RolloutPolicy{Spec: refractv1alpha1.RolloutPolicySpec{
		Waves: []refractv1alpha1.RolloutWave{{Name: "all", MinReadySeconds: 3}},
	}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, ahead := range []time.Duration{0, time.Microsecond, time.Second} {
		began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
		good, target := refractv1alpha1.Revision{Name: "good"}, refractv1alpha1.Revision{Name: "target"}
		is := &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutComplete, Target: good, LastGood: good}
		in := &Input{Policy: p, Target: target}
		done := time.Duration(-1)
		for _, now := range []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second} {
			in.Now = began.Add(now)
			in.Clusters = []Cluster{{
				Cluster: match.Cluster{Name: "a"}, Changes: true, Differs: len(is.Current)+len(is.Done) == 0,
				Holds: true, Ready: true, ReadySince: began.Add(ahead),
			}}
			if is, _ = Next(is, in); len(is.Failed) > 0 {
				t.Fatalf("%s ahead, after %s: the cluster failed: %s", ahead, now, is.Message)
			}
			if is.Phase == refractv1alpha1.RolloutComplete && done < 0 {
				done = now
			}
		}
		if want := (3*time.Second + ahead + time.Second - 1).Truncate(time.Second); done != want {
			t.Errorf("%s ahead: done after %s, want %s", ahead, done, want)
		}
	}
}

// TestEditedWhileItBakes verifies that an edit of the policy restarts the time limit of a cluster. The edit may change
// the condition for readiness, so a cluster that was ready only before the edit has not failed.
func TestEditedWhileItBakes(t *testing.T) {
	policy := func(generation int64) *Policy {
		p := &refractv1alpha1.RolloutPolicy{Spec: refractv1alpha1.RolloutPolicySpec{
			Waves: []refractv1alpha1.RolloutWave{{Name: "all", MinReadySeconds: 60}}, Health: &refractv1alpha1.RolloutHealth{TimeoutSeconds: 10},
		}}
		p.Namespace, p.Name, p.Generation = "shop", "careful", generation
		c, errs := Compile(p)
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		return c
	}
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	good, target := refractv1alpha1.Revision{Name: "good"}, refractv1alpha1.Revision{Name: "target"}
	is := &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutComplete, Target: good, LastGood: good}
	look := func(after time.Duration, generation int64, ready bool) {
		c := Cluster{Cluster: match.Cluster{Name: "a"}, Changes: true, Differs: len(is.Current) == 0, Holds: true, Ready: ready}
		if ready {
			c.ReadySince = began
		}
		is, _ = Next(is, &Input{Policy: policy(generation), Target: target, Clusters: []Cluster{c}, Now: began.Add(after)})
	}
	look(0, 1, true)
	look(5*time.Second, 1, true)
	for _, after := range []time.Duration{20 * time.Second, 21 * time.Second, 29 * time.Second} {
		if look(after, 2, false); len(is.Failed) > 0 {
			t.Fatalf("after %s the cluster failed: %s", after, is.Message)
		}
	}
	if look(31*time.Second, 2, false); len(is.Failed) != 1 {
		t.Errorf("want the cluster to fail after its time limit, got %+v", is)
	}
}
