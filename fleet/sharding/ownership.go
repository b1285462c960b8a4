package sharding

import (
	"context"
	"slices"
	"sync"
	"time"
)

// ownership says which members this replica may work on: those that the assignment gives to it, while its Lease
// certainly exists. It is safe for concurrent use.
type ownership struct {
	changed func() // Called when members were lost or regained with the Lease.
	wake    func() // Called when work has ended that a handover waits for.

	mu      sync.Mutex
	version string // Of the assignment that the replica follows.
	owned   map[string]bool
	busy    map[string]int  // Work in flight on each member.
	until   time.Time       // The Lease certainly exists until then.
	term    context.Context //nolint:containedctx // The life of the Lease; work ends with it.
	lapse   context.CancelFunc
	timer   *time.Timer
	ending  bool
}

func newOwnership(changed, wake func()) *ownership {
	o := &ownership{changed: changed, wake: wake, busy: map[string]int{}}
	o.term, o.lapse = context.WithCancel(context.Background())
	o.lapse() // There is no Lease yet.
	return o
}

// owns reports whether this replica may work on the member now.
func (o *ownership) owns(member string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ownsNow(member)
}

func (o *ownership) ownsNow(member string) bool {
	return !o.ending && o.owned[member] && before(time.Now(), o.until)
}

// count returns how many members this replica may work on now.
func (o *ownership) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ending || !before(time.Now(), o.until) {
		return 0
	}
	return len(o.owned)
}

// begin implements [Shards.Begin].
func (o *ownership) begin(ctx context.Context, member string) (_ context.Context, end func(), ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.ownsNow(member) {
		return ctx, func() {}, false
	}
	o.busy[member]++
	ctx, cancel := context.WithCancel(ctx)
	unbind := context.AfterFunc(o.term, cancel)
	return ctx, sync.OnceFunc(func() {
		unbind()
		cancel()
		o.finish(member)
	}), true
}

func (o *ownership) finish(member string) {
	o.mu.Lock()
	o.busy[member]--
	done := o.busy[member] == 0
	if done {
		delete(o.busy, member)
	}
	awaited := done && (o.ending || !o.owned[member])
	o.mu.Unlock()
	if awaited {
		o.wake()
	}
}

// idle reports whether no work is in flight.
func (o *ownership) idle() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.busy) == 0
}

// report returns the current report of this replica.
func (o *ownership) report() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := report{Version: o.version}
	for m := range o.busy {
		if !o.owned[m] {
			r.Holding = append(r.Holding, m)
		}
	}
	slices.Sort(r.Holding)
	return encode(r)
}

// adopt follows a version of the assignment from now on, and returns how many members the replica gains and loses.
func (o *ownership) adopt(version string, members []string) (gained, lost int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	owned := make(map[string]bool, len(members))
	for _, m := range members {
		owned[m] = true
		if !o.owned[m] {
			gained++
		}
	}
	for m := range o.owned {
		if !owned[m] {
			lost++
		}
	}
	o.version, o.owned = version, owned
	return gained, lost
}

// extend sets the time until which the Lease certainly exists.
func (o *ownership) extend(until time.Time) {
	o.mu.Lock()
	was := before(time.Now(), o.until)
	o.until = until
	is := before(time.Now(), until)
	if is && o.term.Err() != nil {
		o.term, o.lapse = context.WithCancel(context.Background())
	}
	if o.timer == nil {
		o.timer = time.AfterFunc(time.Until(until), o.expire)
	} else {
		o.timer.Reset(time.Until(until))
	}
	o.mu.Unlock()
	if is && !was {
		o.changed()
	}
}

// expire ends the work if the Lease was not renewed in time.
func (o *ownership) expire() {
	o.mu.Lock()
	late := !before(time.Now(), o.until)
	if late {
		o.lapse()
	}
	o.mu.Unlock()
	if late {
		o.changed()
	}
}

// end prevents new work, and returns until when the Lease certainly exists.
func (o *ownership) end() (until time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ending = true
	return o.until
}

// ended reports whether new work is prevented.
func (o *ownership) ended() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ending
}

// before compares by the wall clock as well, as the monotonic clock stands still while a virtual machine is suspended.
func before(now, then time.Time) bool {
	return now.Before(then) && now.Round(0).Before(then.Round(0))
}
