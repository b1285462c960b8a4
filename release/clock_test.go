package release

import (
	"testing"
	"time"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/match"
)

// TestClockAhead: whoever sees that a copy is ready may do so by a clock that is ahead, by much or by the time that
// it takes to look. That is no break.
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
				t.Fatalf("%s ahead, after %s: it failed: %s", ahead, now, is.Message)
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
