package drills

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"refract.dev/test/harness"
)

// TestLeaderFrozen freezes the leader of two replicas during changes. The other replica takes over. When the frozen
// replica continues, it must notice that it has lost the lease.
func TestLeaderFrozen(t *testing.T) {
	d := start(t)
	one, two := d.work(briefLease), d.keep("two", briefLease)
	d.atWork(two)
	s := d.tell(size.objects)
	d.settle()
	leader, other := one, two
	if d.leader() == "refract/two" {
		leader, other = two, one
	}
	d.Logf("%s decides", leader.name)

	// Changes are in progress when the leader freezes, so it could write again when it continues without the lease.
	s.removals = few
	for range 20 {
		s.change()
	}
	frozen, lost := leader.replica(), leader.restarts()+other.restarts()
	d.must(frozen.Signal(syscall.SIGSTOP))
	from := time.Now()
	for range size.frozenChanges {
		s.change()
	}
	took := s.pulse(d.Members...)
	d.Logf("%s took over within %s", other.name, round(took))
	d.settle()

	thawed := time.Now()
	d.must(frozen.Signal(syscall.SIGCONT))
	s.removals = few
	for range size.frozenChanges {
		s.change()
		s.pulse(d.Members...)
	}
	d.settle()
	// The frozen replica must end once. More restarts mean that the machine was too busy to renew leases; each may
	// cause two more turns.
	turns := 2 + 2*max(0, leader.restarts()+other.restarts()-lost-1)
	for _, m := range d.Members {
		d.oneWriter(m, turns, "refract/"+leader.name, "refract/"+other.name, from, thawed)
	}
	d.Logf("the replica that was frozen was started again %d times", leader.restarts())

	// After the end of one replica, the other one takes over.
	other.mu.Lock()
	other.stopped = true
	other.mu.Unlock()
	d.must(other.replica().Stop(syscall.SIGKILL))
	s.changes(30)
	s.pulse(d.Members...)
	d.settle()
}

// leader returns the user agent of the leading replica: the one that writes conditions.
func (d *drill) leader() string {
	d.Helper()
	all := d.writes("hub")
	for i := range all {
		if w := all[len(all)-1-i]; w.Resource == "propagations" && w.Verb == "create" {
			return w.Agent
		}
	}
	d.Fatal("no replica has written a Propagation")
	return ""
}

// oneWriter fails the drill if both replicas have written to a member at the same time. After the takeover, the frozen
// replica may write only when it continues. most is the maximum number of turns of the two replicas.
func (d *drill) oneWriter(member string, most int, frozen, other string, from, thawed time.Time) {
	d.Helper()
	var takeover time.Time
	var turns []harness.Write // The first write of each turn since the takeover.
	for _, w := range d.writes(member) {
		if w.Time.Before(from) || (w.Agent != frozen && w.Agent != other) {
			continue
		}
		if takeover.IsZero() && w.Agent == other {
			takeover = w.Time
		}
		if takeover.IsZero() {
			continue
		}
		if w.Agent == frozen && w.Time.Before(thawed) {
			d.Errorf("%s: the frozen replica has written after the takeover by the other one at %s: %s", member, takeover, w)
		}
		if len(turns) == 0 || turns[len(turns)-1].Agent != w.Agent {
			turns = append(turns, w)
		}
	}
	if len(turns) > most {
		d.Errorf("%s has two writers at a time; their turns begin with\n%s", member, fmt.Sprint(turns))
	}
	d.Logf("%s: %d turns after the takeover", member, len(turns))
}
