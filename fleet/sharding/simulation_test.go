package sharding

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
)

var (
	seeds     = flag.Int("seeds", 40, "how many `histories` TestSimulation goes through")
	firstSeed = flag.Uint64("first-seed", 1, "`seed` of the first")
)

// actor is a replica in a simulation: the package itself, its link to the server, and workers that write to its
// members.
type actor struct {
	*Shards

	link  *link
	stop  context.CancelFunc // Ends it regularly.
	ended chan struct{}
	err   error // Of Run, once it has ended.
}

// world is the state of a simulation. Its clock is that of the synctest bubble.
type world struct {
	server  *server
	random  *rand.Rand
	members []string
	actors  []*actor
	running sync.WaitGroup
	anarchy bool // All replicas consider themselves the leader, at all times.

	mu      sync.Mutex
	writers map[string]string // By member.
	wrong   []string
	writes  int
}

const simulated = 15 * time.Second // The duration of a Lease.

func newWorld(seed uint64) *world {
	w := &world{server: newServer(), random: rand.New(rand.NewPCG(seed, 1)), writers: map[string]string{}}
	for i := range 1 + w.random.IntN(7) {
		w.members = append(w.members, fmt.Sprintf("member-%d", i))
	}
	return w
}

func (w *world) wrongf(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.wrong = append(w.wrong, fmt.Sprintf(format, args...))
}

// start adds a replica.
func (w *world) start() {
	l := &link{server: w.server, random: rand.New(rand.NewPCG(w.random.Uint64(), 2)), delay: 20 * time.Millisecond}
	s, err := New(Options{Leases: l, Identity: fmt.Sprintf("replica-%d", len(w.actors)), LeaseDuration: simulated, Log: logr.Discard()})
	if err != nil {
		w.wrongf("New: %v", err)
		return
	}
	s.SetMembers(w.members)
	ctx, stop := context.WithCancel(context.Background())
	a := &actor{Shards: s, link: l, stop: stop, ended: make(chan struct{})}
	w.actors = append(w.actors, a)
	if w.anarchy {
		s.leadership.elected, s.leadership.until = true, time.Now().Add(24*time.Hour)
	}
	w.running.Go(func() {
		defer close(a.ended)
		a.err = s.Run(ctx)
	})
	for i := range 3 {
		random := rand.New(rand.NewPCG(w.random.Uint64(), uint64(i)))
		w.running.Go(func() { w.write(a, random) })
	}
}

// write is a worker: it writes to one member after the other.
func (w *world) write(a *actor, random *rand.Rand) {
	for {
		select {
		case <-a.ended:
			return
		case <-time.After(time.Duration(1+random.IntN(600)) * time.Millisecond):
		}
		name := fmt.Sprintf("member-%d", random.IntN(8))
		ctx, end, ok := a.Begin(context.Background(), name)
		if !ok {
			continue
		}
		w.enter(a, name)
		takes := time.Duration(1+random.IntN(50)) * time.Millisecond
		if random.IntN(100) == 0 {
			takes = time.Duration(random.IntN(20)) * time.Second // The member hangs.
		}
		select {
		case <-ctx.Done():
		case <-time.After(takes):
		}
		w.exit(a, name)
		end()
	}
}

// enter records that a write began, and fails if another replica is writing.
func (w *world) enter(a *actor, member string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes++
	if other := w.writers[member]; other != "" && !strings.HasPrefix(other, a.ID()+" ") {
		w.wrong = append(w.wrong, fmt.Sprintf("%s writes to %s while it is written to by %s", a.ID(), member, other))
	}
	w.writers[member] += a.ID() + " "
}

func (w *world) exit(a *actor, member string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writers[member] = strings.Replace(w.writers[member], a.ID()+" ", "", 1)
}

// alive returns the replicas that run.
func (w *world) alive() []*actor {
	return slices.DeleteFunc(slices.Clone(w.actors), func(a *actor) bool {
		select {
		case <-a.ended:
			return true
		default:
			return a.link.isDead()
		}
	})
}

func (l *link) isDead() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dead
}

// look finds members that two replicas own at the same time.
func (w *world) look() {
	for i := range 8 {
		var owners []string
		for _, a := range w.actors {
			if !a.link.isDead() && a.Owns(fmt.Sprintf("member-%d", i)) {
				owners = append(owners, a.ID())
			}
		}
		if len(owners) > 1 {
			w.wrongf("member-%d is owned by %v", i, owners)
		}
	}
}

// crash ends a replica without giving anything back.
func (a *actor) crash() {
	a.link.set(func(l *link) { l.dead = true })
	a.owned.mu.Lock()
	a.owned.ending = true
	a.owned.lapse()
	a.owned.mu.Unlock()
	a.stop()
}

// mishap causes a random event.
func (w *world) mishap() {
	alive := w.alive()
	if len(alive) == 0 {
		w.start()
		return
	}
	a := alive[w.random.IntN(len(alive))]
	switch w.random.IntN(14) {
	case 0, 1:
		if len(alive) < 5 {
			w.start()
		}
	case 2, 3:
		a.stop()
	case 4:
		a.crash()
	case 5, 6, 7:
		until := time.Now().Add(time.Duration(w.random.IntN(40000)) * time.Millisecond)
		a.link.set(func(l *link) { l.frozen = until })
	case 8, 9:
		loss, delay := w.random.Float64(), time.Duration(1+w.random.IntN(8000))*time.Millisecond
		a.link.set(func(l *link) { l.loss, l.delay = loss, delay })
	case 10:
		a.link.set(func(l *link) { l.loss, l.delay = 0, 20*time.Millisecond })
	case 11:
		if len(w.members) > 1 {
			w.members = slices.Delete(slices.Clone(w.members), 0, 1)
		} else {
			w.members = []string{"member-5", "member-6", "member-7"}
		}
		for _, a := range alive {
			a.SetMembers(w.members)
		}
	case 12:
		w.meddle(func(lease *coordinationv1.Lease) { _ = w.server.remove(lease.Name, nil) })
	default:
		w.meddle(func(lease *coordinationv1.Lease) {
			lease.Annotations[assignmentAnnotation] = []string{"", "{", `{"owned": {"a": ["member-1"], "b": ["member-1"]}}`}[w.random.IntN(3)]
			_, _ = w.server.update(lease)
		})
	}
}

// meddle changes the record as a user might.
func (w *world) meddle(do func(*coordinationv1.Lease)) {
	if lease, err := w.server.get(membersName); err == nil {
		do(lease)
	}
}

// wait lets time pass, and looks regularly.
func (w *world) wait(d time.Duration) {
	for until := time.Now().Add(d); time.Now().Before(until); {
		<-time.After(50 * time.Millisecond)
		w.look()
	}
}

// settled returns an error unless each member has an owner and the replicas have equal shares.
func (w *world) settled() error {
	alive := w.alive()
	least, most := len(w.members), 0
	var owned int
	for _, a := range alive {
		n := 0
		for _, m := range w.members {
			if a.Owns(m) {
				n++
			}
		}
		owned += n
		least, most = min(least, n), max(most, n)
	}
	if owned != len(w.members) || most-least > 1 {
		return fmt.Errorf("of %d members %d have an owner; %d replicas have %d to %d", len(w.members), owned, len(alive), least, most)
	}
	return nil
}

// TestSimulation: in many histories, replicas come, go, crash and freeze, and the network delays and loses requests. No
// two replicas may work on one member at the same time, and all members must be worked on in the end. The whole package
// runs unchanged, with the clock of the simulation.
func TestSimulation(t *testing.T) {
	for i := range *seeds {
		seed := *firstSeed + uint64(i)
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { simulate(t, seed) })
		})
	}
}

func simulate(t *testing.T, seed uint64) {
	t.Helper()
	w := newWorld(seed)
	w.anarchy = seed%4 == 0
	for range 1 + w.random.IntN(4) {
		w.start()
	}
	for range 12 {
		w.wait(time.Duration(w.random.IntN(12000)) * time.Millisecond)
		w.mishap()
	}
	// From here on there are no more faults.
	for _, a := range w.alive() {
		a.link.set(func(l *link) { l.loss, l.delay, l.frozen = 0, 20*time.Millisecond, time.Time{} })
	}
	w.wait(4 * simulated) // Replicas that were too late have ended.
	if len(w.alive()) == 0 {
		w.start()
	}
	w.wait(2 * simulated)
	if err := w.settled(); err != nil {
		w.wrongf("in the end: %v", err)
		for _, lease := range w.server.list().Items {
			w.wrongf("%s: %v", lease.Name, lease.Annotations)
		}
	}
	for _, a := range w.actors {
		a.stop()
	}
	w.running.Wait()
	w.server.arriving.Wait()
	if w.writes == 0 {
		w.wrongf("nobody ever wrote")
	}
	for i, text := range w.wrong {
		if i == 10 {
			break
		}
		t.Errorf("seed %d: %s", seed, text)
	}
}
