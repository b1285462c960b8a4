// Package fair lets many callers take turns at a few places to work. Each caller works for a key, such as a namespace.
// If callers for several keys wait, the keys take turns, whatever the number of their callers. If only one key has
// callers, it may use all places.
package fair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrFull is wrapped by the error for a caller that may not wait, because too many callers wait already.
var ErrFull = errors.New("too many wait already")

// Options are the options of [New]. Places, Each and All are required.
type Options struct {
	// Places is the maximum number of callers that work at the same time.
	Places int
	// Each is the maximum weight of all callers that wait for one key. All is the maximum weight of all waiting
	// callers. Callers pass their weights to [Places.Take]. A caller that waits alone may be heavier. If All is
	// exceeded, the key with the most waiting weight loses its last caller, provided that the new caller's key has less
	// weight.
	Each, All int
	// Apart is the number of places that only keys without a place may take. These places remain free if no such key
	// has callers. Apart must be less than Places. It is for work that takes so long that a new key should not have to
	// wait for it.
	Apart int
}

// Places are places to work. A free place goes to the waiting key that has the fewest places. Among several such keys
// it goes to the key with the least time worked. The callers for one key are served in their order of arrival.
//
// If all work takes equally long, a key waits for at most one piece of work of each other key, whatever the number of
// callers. A key with little work does not wait for keys with much work. A key gains nothing by a time without callers:
// when it returns, its time worked is at least that of the key that was served last.
//
// It is safe for concurrent use.
type Places struct {
	options Options

	mu      sync.Mutex
	free    int
	waiting int             // The weight of all waiting callers.
	floor   time.Duration   // The time worked of the key that was served last.
	keys    map[string]*key // Keys that work, that wait, or whose time worked exceeds floor.
	came    int             // The number of callers that have ever waited.
	served  int             // The number of places that were ever taken.
}

// key is the state of one key.
type key struct {
	worked  time.Duration // The time worked, including the floor from which the key started.
	running int
	served  int // The value of Places.served when the key last took a place; 0 if it never did.
	weight  int // Of its waiting callers.
	queue   []*waiter
}

// waiter is a caller that waits for a place.
type waiter struct {
	weight int
	came   int
	turn   chan struct{} // Closed when the caller has a place or must go. In the latter case gone is set.
	gone   error         // The reason why the caller must go.
}

// New returns Places that are all free.
func New(o Options) *Places {
	return &Places{options: o, free: o.Places, keys: map[string]*key{}}
}

// Take waits for a place. The caller must return the place by calling done exactly once.
//
// If too many callers wait, now or later, Take returns an error that wraps [ErrFull]. If ctx ends, it returns the
// cause. After an error, the caller has no place and does not wait.
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

// join adds a waiting caller. If a place is free, the caller may get it at once.
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

// makeRoom removes the last caller for the key with the largest waiting weight. It returns false if no key has more
// weight than the given one.
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

// leave removes a waiting caller. It returns false if the caller has got a place in the meantime.
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

// pass subtracts the weight of a caller that no longer waits.
func (p *Places) pass(k *key, w *waiter) {
	k.weight -= w.weight
	p.waiting -= w.weight
}

// giveBack frees a place for which a key has worked this long.
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

// serve gives free places to the keys whose turn it is.
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

// next returns the key that gets the next place; nil if no waiting key may have a place.
func (p *Places) next() *key {
	var best *key
	for _, k := range p.keys {
		if len(k.queue) > 0 && (k.running == 0 || p.free > p.options.Apart) && (best == nil || k.before(best)) {
			best = k
		}
	}
	return best
}

// before reports whether k is served before another waiting key.
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

// tidy drops keys that need not be remembered, because they would start in the same state anyway.
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
