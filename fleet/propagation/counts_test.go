package propagation

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestCopyCounts: after any changes of objects, the counters equal the numbers that they count: the copies by cluster
// and namespace, and the incorrect copies of each object.
func TestCopyCounts(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	clusters := []string{"a", "b", "c"}
	s := newState()
	for step := range 20_000 {
		key := keyOf("configmaps", fmt.Sprint(random.IntN(6)))
		key.Namespace = fmt.Sprint("ns-", random.IntN(2))
		cluster := clusters[random.IntN(len(clusters))]
		switch random.IntN(5) {
		case 0, 1:
			p := &desiredState{targets: map[string]*target{}, gone: random.IntN(4) == 0}
			for _, name := range clusters {
				if !p.gone && random.IntN(2) == 0 {
					p.targets[name] = &target{}
				}
			}
			was := previous{}
			if random.IntN(2) == 0 {
				was.statuses = []refractv1alpha1.ClusterStatus{{Name: cluster}}
			}
			s.setDesired(key, p, was, nil)
		case 2:
			r := clusterStatus{absent: random.IntN(2) == 0, state: refractv1alpha1.StateSynced}
			if p := s.desired(key); p != nil && random.IntN(2) == 0 {
				r.seq = p.seq
			}
			s.report(key, cluster, r)
		case 3:
			s.leave(cluster)
		case 4:
			s.forget(key, s.desired(key))
		}
		for _, cluster := range clusters {
			want := map[string]int{}
			for key, e := range s.objects {
				if _, reported := e.statuses[cluster]; reported {
					want[key.Namespace]++
				}
			}
			if diff := cmp.Diff(want, s.holds(cluster)); diff != "" {
				t.Fatalf("after step %d: holds(%s): -want, +got:\n%s", step, cluster, diff)
			}
			for _, namespace := range []string{"ns-0", "ns-1"} {
				if got, want := s.needs(cluster, namespace), needed(s, cluster, namespace); got != want {
					t.Fatalf("after step %d: needs(%s, %s): want %t, got %t", step, cluster, namespace, want, got)
				}
			}
		}
		for key, e := range s.objects {
			anew := objectState{desired: e.desired, statuses: e.statuses}
			if anew.count(); e.behind != anew.behind || e.wrong != anew.wrong {
				t.Fatalf("after step %d: %s: want %d behind and %d wrong, got %d and %d", step, key.Name, anew.behind, anew.wrong, e.behind, e.wrong)
			}
		}
	}
}

// needed reports whether an object has, or is to have, a copy on the cluster. It looks at all objects.
func needed(s *state, cluster, namespace string) bool {
	for key, e := range s.objects {
		_, reported := e.statuses[cluster]
		if key.Namespace == namespace && (reported || e.desired.targets[cluster] != nil) {
			return true
		}
	}
	return false
}

// TestPendingRemovals: after any sequence of deletions, recreations and approvals, the counters equal the waiting
// deletions. The token depends only on these deletions.
func TestPendingRemovals(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	now := time.Unix(0, 0)
	g := newGuard(DefaultGuard, func() time.Time { return now })
	causes := []cause{causePlacement, causeMissing}
	for step := range 20_000 {
		key := keyOf("configmaps", fmt.Sprint(random.IntN(40)))
		key.Namespace = fmt.Sprint("ns-", random.IntN(2))
		approved := ""
		if random.IntN(50) == 0 {
			held, _, _ := g.show()
			if held != nil {
				approved = held.Token
			}
		}
		switch random.IntN(8) {
		case 0:
			g.went(key)
		case 1:
			g.stays(key)
		default:
			r := removal{key, types.UID(fmt.Sprint(random.IntN(2))), causes[random.IntN(2)], random.IntN(20) == 0}
			g.ask(r, of(40), approved)
		}
		now = now.Add(time.Duration(random.IntN(200)) * time.Millisecond)
		want := newPendingRemovals()
		for _, r := range g.pending.byKey {
			want.add(r)
		}
		if diff := cmp.Diff(want, g.pending, cmp.AllowUnexported(pendingRemovals{}, removal{}, group{})); diff != "" {
			t.Fatalf("after step %d: -want, +got:\n%s", step, diff)
		}
		if got := g.pending.digest(); got != want.digest() || (got == "") != (len(g.pending.byKey) == 0) {
			t.Fatalf("after step %d: digest(): want %q, got %q", step, want.digest(), got)
		}
	}
}

// BenchmarkRemovals lets 10,000 copies of a member wait for their deletion, with an outdated approval. It measures the
// guard and its calls of the state, for all copies together.
func BenchmarkRemovals(b *testing.B) {
	const copies = 10_000
	s := newState()
	keys := make([]Key, copies)
	for i := range keys {
		keys[i] = keyOf("configmaps", fmt.Sprint(i))
		keys[i].Namespace = fmt.Sprint("ns-", i%100)
		s.setDesired(keys[i], &desiredState{gone: true, targets: map[string]*target{}}, previous{
			statuses: []refractv1alpha1.ClusterStatus{{Name: "m"}},
		}, nil)
	}
	holds := func() map[string]int { return s.holds("m") }
	for b.Loop() {
		now := time.Unix(0, 0)
		g := newGuard(DefaultGuard, func() time.Time { return now })
		for range 3 { // The guard collects the deletions, judges them, and is asked once more.
			for _, key := range keys {
				g.ask(removal{key, "u", causePlacement, false}, holds, "0123456789ab")
			}
			now = now.Add(2 * guardSettles)
		}
		if _, held, _ := g.show(); len(held) != copies {
			b.Fatalf("want all of them held, got %d", len(held))
		}
		for _, key := range keys {
			if s.needs("other", key.Namespace) {
				b.Fatal("want the copies still unwanted")
			}
		}
	}
}
