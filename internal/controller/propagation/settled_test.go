package propagation

import (
	"testing"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestSettled: a replica has something to say when its own clusters have reported, and nothing is to be waited for when all have.
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
	behind := func(why string, wantN, wantOf int) {
		t.Helper()
		if n, of := s.behind(key); n != wantN || of != wantOf {
			t.Errorf("%s: want %d of %d behind, got %d of %d", why, wantN, wantOf, n, of)
		}
	}
	behind("another replica has not written its copy yet", 1, 3)
	s.learn(key, []refractv1alpha1.ClusterStatus{{Name: "theirs", State: refractv1alpha1.StateSynced, Hash: "h"}})
	behind("all have their copies", 0, 3)
	s.setDesired(key, hashed("1", "i", "a", "theirs"), previous{}, nil)
	behind("now they are to have others", 2, 2)
}
