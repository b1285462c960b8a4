package propagation

import (
	"testing"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestSettled: a report waits until all clusters have reported on the desired state.
func TestSettled(t *testing.T) {
	key := keyOf("configmaps", "web")
	s := newState()
	p := hashed("1", "h", "a", "b")
	s.setDesired(key, p, previous{}, nil)
	report := func(cluster string, want bool) {
		t.Helper()
		if settled, _ := s.report(key, cluster, clusterStatus{seq: p.seq, state: refractv1alpha1.StateSynced, hash: "h"}); settled != want || s.settled(key) != want {
			t.Errorf("%s has reported: want settled %t, got %t and %t", cluster, want, settled, s.settled(key))
		}
	}
	report("a", false)
	report("b", true)
	if is := s.underway(key); is != (underway{few: true, of: 2}) {
		t.Errorf("all copies are written: want none of 2 behind, got %+v", is)
	}
	s.setDesired(key, hashed("1", "i", "a", "b"), previous{}, nil)
	if is := s.underway(key); s.settled(key) || is != (underway{behind: 2, of: 2}) {
		t.Errorf("the clusters are to get other content: want 2 behind, of 2, got %+v", is)
	}
	s.setDesired(key, &desiredState{gone: true}, previous{placed: on("a", "b")}, nil)
	if is := s.underway(key); is != (underway{behind: 2, of: 2}) {
		t.Errorf("the object is gone, but its copies still exist: want 2 behind, of 2, got %+v", is)
	}
}
