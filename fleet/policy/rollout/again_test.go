package rollout

import (
	"testing"
	"time"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
)

// TestTimeBeginsAgain: minReadySeconds begins again when the cluster has another copy, or was unreachable, even if the
// observed ReadySince is earlier.
func TestTimeBeginsAgain(t *testing.T) {
	p, errs := Compile(&refractv1alpha1.RolloutPolicy{Spec: refractv1alpha1.RolloutPolicySpec{
		Waves: []refractv1alpha1.RolloutWave{{Name: "all", MinReadySeconds: 300}},
	}})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		reason string
		first  string    // The copy that is ready at the beginning.
		then   []Cluster // Observations from 100 seconds on, ten seconds apart. The last one repeats.
		done   time.Duration
	}{
		"Same":      {"The copy is the same.", "a@1", []Cluster{{Copy: "a@1"}}, 300 * time.Second},
		"Created":   {"The copy was lost or deleted, and created again.", "a@1", []Cluster{{Copy: "b@100"}}, 400 * time.Second},
		"Corrected": {"The copy was changed, and corrected.", "a@1", []Cluster{{Copy: "a@100"}}, 400 * time.Second},
		"Twice":     {"The copy was created again two times.", "a@1", []Cluster{{Copy: "b@100"}, {Copy: "c@110"}}, 410 * time.Second},
		"Unknown":   {"A copy that is not known, as after a restart, is no other copy.", "a@1", []Cluster{{}, {Copy: "a@1"}}, 300 * time.Second},
		"Restart":   {"The copy was created again during a restart.", "a@1", []Cluster{{Unknown: true}, {Copy: "b@100"}}, 410 * time.Second},
		"Record":    {"A record of an earlier version names no copy.", "", []Cluster{{Copy: "a@1"}}, 300 * time.Second},
		"Recorded":  {"The copy that such a record lacks is noted, so the next one is another.", "", []Cluster{{Copy: "a@1"}, {Copy: "b@110"}}, 410 * time.Second},
		"Offline":   {"The state while the cluster was unreachable is unknown.", "a@1", []Cluster{{Offline: true, Copy: "a@1"}, {Copy: "a@1"}}, 410 * time.Second},
		"Rebuilt":   {"The cluster was rebuilt, and unreachable meanwhile.", "a@1", []Cluster{{Offline: true}, {Copy: "b@105"}}, 410 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			good, target := refractv1alpha1.Revision{Name: "good"}, refractv1alpha1.Revision{Name: "target"}
			is := &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutComplete, Target: good, LastGood: good}
			for after := time.Duration(0); is.Phase != refractv1alpha1.RolloutComplete || after == 0; after += 10 * time.Second {
				c := Cluster{Copy: tc.first}
				if n := int((after - 100*time.Second) / (10 * time.Second)); n >= 0 {
					c = tc.then[min(n, len(tc.then)-1)]
				}
				c.Cluster, c.Changes, c.Differs, c.Holds = match.Cluster{Name: "eu-1"}, true, after == 0, true
				c.Ready, c.ReadySince = !c.Unknown, began // The recorded time stays.
				if is, _ = Next(is, &Input{Policy: p, Target: target, Clusters: []Cluster{c}, Now: began.Add(after)}); len(is.Failed) > 0 || after > tc.done {
					t.Fatalf("%s\nwant the cluster done after %s, got after %s: %+v", tc.reason, tc.done, after, is)
				}
				if done := is.Phase == refractv1alpha1.RolloutComplete; done != (after == tc.done) {
					t.Fatalf("%s\nwant the cluster done after %s, got %t after %s", tc.reason, tc.done, done, after)
				}
			}
		})
	}
}
