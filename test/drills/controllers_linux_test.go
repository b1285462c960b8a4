package drills

import (
	"context"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"refract.dev/test/harness"
)

// TestKilledAtRandom kills the controllers again and again during changes.
func TestKilledAtRandom(t *testing.T) {
	kills, each := size.kills, size.changesByKill
	d := start(t)
	random := rand.New(rand.NewPCG(seed, uint64(kills)))
	k := d.work("--leader-elect=false") // With a lease, the drill would spend most of the time waiting for its expiration.
	s := d.tell(size.objects)
	for range kills {
		s.removals = few
		at, delay := random.IntN(each), time.Duration(random.IntN(150))*time.Millisecond
		for i := range each {
			if i == at {
				d.pause(delay)
				d.must(k.replica().Signal(syscall.SIGKILL))
			}
			s.change()
		}
		d.wait("ready again", func(ctx context.Context) error { return k.replica().Ready(ctx) })
	}
	d.settle()
	if got := k.restarts(); got != kills {
		t.Errorf("The controllers were started again %d times; want %d, once for each kill.", got, kills)
	}
}

// TestRestartWritesNothing: controllers write nothing after a restart without changes.
func TestRestartWritesNothing(t *testing.T) {
	d := start(t)
	k := d.work(briefLease)
	s := d.tell(size.restarted)
	s.changes(20)
	d.settle()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		before := map[string]int{}
		for _, m := range d.Members {
			before[m] = len(d.writes(m))
		}
		d.must(k.replica().Stop(signal))
		d.wait("a new process", func(context.Context) error {
			if k.replica().Ended() {
				return errors.New("there is none")
			}
			return nil
		})
		d.atWork(k)
		// When a new change has arrived, the controllers have processed all existing objects.
		beat := s.pulse(d.Members...)
		d.settle()
		d.Logf("the first change after the restart took %s", round(beat))
		for _, m := range d.Members {
			var odd []harness.Write
			for _, w := range d.writes(m)[before[m]:] {
				if w.Name != "pulse" {
					odd = append(odd, w)
				}
			}
			if len(odd) > 0 {
				t.Errorf("%s: want no write after a restart (%s), got %d writes, the first: %s", m, signal, len(odd), odd[0])
			}
		}
	}
}

// writes returns the previous writes of Refract to a cluster.
func (d *drill) writes(cluster string) []harness.Write {
	d.Helper()
	all, err := d.Writes(cluster)
	d.must(err)
	return all
}
