// Package fair shares out a few places to work among many who want one, by whom they
// work for: one namespace may have all places that are free, but where others wait each
// gets its turn, however many of its own wait.
package fair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrFull is wrapped by the error for who finds no room to wait.
var ErrFull = errors.New("too many wait already")

// Options say what there is to share out. All are required.
type Options struct {
	// Places are how many work at the same time.
	Places int
	// Each is how much may wait for one key, and All for all keys together, by the weights
	// that [Places.Take] is given. One who is alone may be heavier. Where all wait that may,
	// whoever came last of the key with the most makes room for one of a key with less.
	Each, All int
	// Apart are places that are left to keys which have none, be others free or not; less
	// than Places. It is for work that takes so long that nobody can wait for it to end.
	Apart int
}

// Places are shared out. A place that becomes free goes to a key of those that have the
// fewest places now; among them to one for which the least time has been worked. So where
// all work takes as long, nobody waits for more than one piece of each other key's that
// waits, be there as many of them as may; and who has little to do does not wait for those
// with much. A key that had nothing to do has saved nothing up: it begins like the one
// that was served last. Of one key whoever came first goes first.
//
// It may be used by many goroutines.
type Places struct {
	options Options

	mu      sync.Mutex
	free    int
	waiting int             // Their weights.
	floor   time.Duration   // How much had been worked for the key that was served last.
	keys    map[string]*key // Those that work, wait, or have had more than floor.
	came    int             // How many have ever waited.
	served  int             // How many have ever had a place.
}

// key is one of those that places are shared out among.
type key struct {
	worked  time.Duration // With what it was given when it came.
	running int
	served  int // When it had a place last, as a number; 0 for never.
	weight  int // Of those that wait.
	queue   []*waiter
}

// waiter is somebody who waits for a place.
type waiter struct {
	weight int
	came   int
	turn   chan struct{} // Closed when it has a place, or has to go.
	gone   error         // Why it has to go.
}

// New returns places that are free.
func New(o Options) *Places {
	return &Places{options: o, free: o.Places, keys: map[string]*key{}}
}

// Take waits for a place for a key. It must be given back, once, by what Take returns.
//
// Take returns an error that wraps [ErrFull] if there is no room to wait, or none any more,
// and the cause if ctx ends first: nobody has a place or waits then.
func (p *Places) Take(ctx context.Context, name string, weight int) (done func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	w := &waiter{weight: weight, turn: make(chan struct{})}
	if err := p.join(name, w); err != nil {
		return nil, err
	}
	select {
	case <-w.turn:
		if w.gone != nil {
			return nil, w.gone
		}
	case <-ctx.Done():
		if p.leave(name, w) {
			return nil, context.Cause(ctx)
		}
	}
	begun := time.Now()
	return func() { p.giveBack(name, time.Since(begun)) }, nil
}

// join has somebody wait, and have a place at once if there is one.
func (p *Places) join(name string, w *waiter) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[name]
	if k == nil {
		k = &key{}
	}
	k.worked = max(k.worked, p.floor)
	if len(k.queue) > 0 && k.weight+w.weight > p.options.Each {
		return fmt.Errorf("%w in %q", ErrFull, name)
	}
	for p.waiting > 0 && p.waiting+w.weight > p.options.All {
		if !p.makeRoom(k.weight + w.weight) {
			return ErrFull
		}
	}
	p.came++
	w.came = p.came
	p.keys[name] = k
	k.queue = append(k.queue, w)
	k.weight += w.weight
	p.waiting += w.weight
	p.serve()
	return nil
}

// makeRoom has somebody go of the key for which the most waits, if that is more than this.
func (p *Places) makeRoom(than int) bool {
	var most *key
	for _, k := range p.keys {
		if k.weight > than && (most == nil || k.weight > most.weight || k.weight == most.weight && k.last().came > most.last().came) {
			most = k
		}
	}
	if most == nil {
		return false
	}
	w := most.last()
	most.queue = most.queue[:len(most.queue)-1]
	p.pass(most, w)
	w.gone = ErrFull
	close(w.turn)
	return true
}

func (k *key) last() *waiter { return k.queue[len(k.queue)-1] }

// leave has somebody wait no longer. It returns false for who has a place by now.
func (p *Places) leave(name string, w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-w.turn:
		return w.gone != nil
	default:
	}
	k := p.keys[name]
	k.queue = slices.DeleteFunc(k.queue, func(other *waiter) bool { return other == w })
	p.pass(k, w)
	p.tidy()
	return true
}

// pass counts somebody no longer among those who wait.
func (p *Places) pass(k *key, w *waiter) {
	k.weight -= w.weight
	p.waiting -= w.weight
}

// giveBack takes a place back that was had for so long.
func (p *Places) giveBack(name string, worked time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k := p.keys[name]
	k.worked += worked
	k.running--
	p.free++
	p.serve()
	p.tidy()
}

// serve gives places to those whose turn it is.
func (p *Places) serve() {
	for p.free > 0 {
		k := p.next()
		if k == nil {
			return
		}
		w := k.queue[0]
		k.queue = k.queue[1:]
		p.pass(k, w)
		k.running++
		p.free--
		p.served++
		k.served = p.served
		p.floor = max(p.floor, k.worked)
		close(w.turn)
	}
}

// next returns the key whose turn it is; nil if none waits that may have a place.
func (p *Places) next() *key {
	var best *key
	for _, k := range p.keys {
		if len(k.queue) > 0 && (k.running == 0 || p.free > p.options.Apart) && (best == nil || k.before(best)) {
			best = k
		}
	}
	return best
}

// before reports whether it is rather the turn of k than of another that waits, too.
func (k *key) before(other *key) bool {
	switch {
	case k.running != other.running:
		return k.running < other.running
	case k.worked != other.worked:
		return k.worked < other.worked
	case k.served != other.served:
		return k.served < other.served
	default:
		return k.queue[0].came < other.queue[0].came
	}
}

// tidy forgets keys that would begin anew as they are.
func (p *Places) tidy() {
	if p.free == p.options.Places && p.waiting == 0 {
		clear(p.keys)
		p.floor = 0
		return
	}
	for name, k := range p.keys {
		if k.running == 0 && len(k.queue) == 0 && k.worked <= p.floor {
			delete(p.keys, name)
		}
	}
}
