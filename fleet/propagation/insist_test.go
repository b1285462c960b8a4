package propagation

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestInsists: a replica that does not lead and permanently disagrees with the leading replica about a row writes the
// same row at growing intervals. It writes new facts at once.
func TestInsists(t *testing.T) {
	key := keyOf("configmaps", "web")
	pending := refractv1alpha1.ClusterStatus{Name: "us-1", State: refractv1alpha1.StatePending, Hash: "hash"}
	eu := refractv1alpha1.ClusterStatus{Name: "eu-1", State: refractv1alpha1.StateSynced}
	d, s := &desk{}, newSources(nil, nil, discard)
	c := station(t, s, &replica{owned: []string{"us-1"}}, d.funcs(), recordOn("1", eu, pending))
	now := time.Unix(0, 0)
	c.reporter.now = func() time.Time { return now }
	see(t, c, key)
	p := &desiredState{targets: map[string]*target{"eu-1": {}, "us-1": {variant: &variant{content: &content{hash: "hash"}}}}}
	c.state.setDesired(key, p, previous{statuses: []refractv1alpha1.ClusterStatus{eu, {Name: "us-1", State: refractv1alpha1.StateSynced, Hash: "hash"}}}, nil)
	// leader writes the statement of the leading replica into the record and runs the report of this replica. It
	// returns whether the report writes, and after what time it runs again.
	leader := func(say func(*refractv1alpha1.PropagationStatus)) (wrote bool, again time.Duration) {
		r := newRecord(true)
		if err := c.reporter.live.Get(t.Context(), client.ObjectKey{Namespace: key.Namespace, Name: recordName(key)}, r.Object); err != nil {
			t.Fatal(err)
		}
		r.status.Clusters[1] = pending
		say(r.status)
		if err := c.reporter.client.Status().Update(t.Context(), r.Object); err != nil {
			t.Fatal(err)
		}
		see(t, c, key)
		d.wrote = nil
		result, err := c.reporter.reportOne(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		return len(d.wrote) > 0, result.RequeueAfter
	}
	same := func(*refractv1alpha1.PropagationStatus) {}
	writes := 0
	for now.Sub(time.Unix(0, 0)) < 20*time.Minute {
		wrote, again := leader(same)
		if wrote {
			writes++
		} else if again <= 0 || again > mostInsisting {
			t.Fatalf("after %s: want it to come again within %s, got %s", now.Sub(time.Unix(0, 0)), mostInsisting, again)
		}
		now = now.Add(2 * time.Second)
	}
	if writes < 10 || writes > 20 {
		t.Errorf("want it to be said less and less often, and to be said again, got %d writes within 20 minutes", writes)
	}
	if wrote, _ := leader(same); wrote {
		t.Error("want it not to be said again yet")
	}
	if wrote, _ := leader(func(s *refractv1alpha1.PropagationStatus) { s.Clusters[0].Readiness = refractv1alpha1.ReadinessReady }); wrote {
		t.Error("want it not to be said again for what another replica says of its cluster")
	}
	if wrote, _ := leader(func(s *refractv1alpha1.PropagationStatus) { s.ObservedGeneration++ }); !wrote {
		t.Error("want it to be said at once when the replica that leads says something new")
	}
	now = now.Add(2*mostInsisting + time.Second)
	if wrote, _ := leader(same); !wrote {
		t.Error("want it to be said at once when it was not said for long")
	}
	now = now.Add(2 * leastInsisting)
	if wrote, _ := leader(same); !wrote {
		t.Error("want the pauses to begin anew when it was not said for long")
	}
}
