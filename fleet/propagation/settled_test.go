package propagation

import (
	"testing"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestSettled: a replica reports when its own clusters have reported, and waits no longer when all clusters have
// reported.
func TestSettled(t *testing.T) {
	key := keyOf("configmaps", "web")
	s := newState()
	s.owns = func(name string) bool { return name != "theirs" }
	p := hashed("1", "h", "a", "b", "theirs")
	s.setDesired(key, p, previous{}, nil)
	report := func(cluster string, want bool) {
		t.Helper()
		if settled, _ := s.report(key, cluster, clusterStatus{seq: p.seq, state: refractv1alpha1.StateSynced, hash: "h"}); settled != want {
			t.Errorf("%s has reported: want settled %t, got %t", cluster, want, settled)
		}
	}
	report("a", false)
	report("b", true)
	if is := s.underway(key); is != (underway{few: true, own: 2, of: 3}) {
		t.Errorf("this replica has written its copies: want none of 3 behind, got %+v", is)
	}
	if s.settled(key) {
		t.Error("another replica has not written its copy yet")
	}
	s.learn(key, []refractv1alpha1.ClusterStatus{{Name: "theirs", State: refractv1alpha1.StateSynced, Hash: "h"}})
	if !s.settled(key) {
		t.Error("all have their copies")
	}
	s.setDesired(key, hashed("1", "i", "a", "theirs"), previous{}, nil)
	if s.settled(key) {
		t.Error("now they are to have others")
	}
	if is := s.underway(key); is != (underway{behind: 1, own: 1, of: 2}) {
		t.Errorf("this replica is to write one: want 1 behind, of 2, got %+v", is)
	}
	s.setDesired(key, &desiredState{gone: true}, previous{placed: on("a", "b", "theirs")}, nil)
	if is := s.underway(key); is != (underway{behind: 3, own: 3, of: 3, fewOfAll: true}) {
		t.Errorf("it is gone, and its copies are not: want 3 behind, of 3, got %+v", is)
	}
}
