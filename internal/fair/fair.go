// Package fair gives a few places to work to many callers in turn. Each caller works for a key, such as a namespace.
// One key may have all free places. When callers for several keys wait, each key gets its turn, however many of its
// callers wait.
package fair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ErrFull is wrapped by the error for a caller that finds no room to wait.
var ErrFull = errors.New("too many wait already")

// Options are the number of places and the room to wait. Places, Each and All are required.
type Options struct {
	// Places bounds the callers that work at the same time.
	Places int
	// Each bounds the weight of the callers that wait for one key, and All bounds the weight of all waiting callers
	// together. The callers give their weights to [Places.Take]. A caller that waits alone may exceed both. When All is
	// reached, the last caller for the key with the largest waiting weight must go, to make room for a caller of a key
	// with less weight.
	Each, All int
	// Apart is the number of places that are reserved for keys without a place, even while no such key waits. It is
	// less than Places. It is for work that takes so long that a new key should not wait for its end.
	Apart int
}

// Places are places to work. A free place goes to a key that has the fewest places, and among these to the key with the
// least time worked. So if all work takes equally long, a key waits for at most one piece of work of each other waiting
// key, however many callers these have. A key with little work does not wait for keys with much work. A key does not
// gain credit while it has no work: it begins with the time of the key that was last served. The callers for one key
// are served in their order of arrival.
//
// It is safe for concurrent use.
type Places struct {
	options Options

	mu      sync.Mutex
	free    int
	waiting int             // The weight of all waiting callers.
	floor   time.Duration   // The time that was worked for the key that was last served.
	keys    map[string]*key // Keys that work or wait, or whose time exceeds floor.
	came    int             // How many callers have ever waited.
	served  int             // How many places were ever given.
}

// key is one of the keys that share the places.
type key struct {
	worked  time.Duration // Including the time that the key began with.
	running int
	served  int // The number of its last place; 0 if it never had one.
	weight  int // Of its waiting callers.
	queue   []*waiter
}

// waiter is a caller that waits for a place.
type waiter struct {
	weight int
	came   int
	turn   chan struct{} // Closed when the caller gets a place or must go; see gone.
	gone   error         // The reason why the caller must go.
}

// New returns Places that are all free.
func New(o Options) *Places {
	return &Places{options: o, free: o.Places, keys: map[string]*key{}}
}

// Take waits for a place for a key. The caller must give the place back, once, by calling done.
//
// Take returns an error that wraps [ErrFull] if there is no room to wait, or if the caller had to make room for another
// one. It returns the cause if ctx ends first. After an error, the caller has no place and does not wait.
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

// join adds a waiting caller, which gets a place at once if one is free.
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

// makeRoom removes the last caller for the key with the largest waiting weight, if that weight exceeds than.
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

// leave removes a waiting caller. It returns false if the caller has a place by now.
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

// pass subtracts the weight of a caller that does not wait any more.
func (p *Places) pass(k *key, w *waiter) {
	k.weight -= w.weight
	p.waiting -= w.weight
}

// giveBack frees a place that was in use for the time worked.
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

// next returns the key whose turn it is; nil if no waiting key may have a place.
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

// tidy drops keys that would begin in the same state when they return.
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
