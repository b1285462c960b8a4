package drills

import (
	"context"
	"errors"
	"sync"
	"testing"

	"refract.dev/test/harness"
)

// atATime is the maximum number of drills at a time, each with a fleet. Drills wait half of the time.
const atATime = 2

// fleets are the fleets that drills share, one after the other.
var fleets = &pool{places: make(chan struct{}, atATime)}

type pool struct {
	places chan struct{}

	mu   sync.Mutex
	free []*harness.Env
	ours []*harness.Env // To be closed.
}

// enter waits for a place among the running drills.
func (p *pool) enter(t *testing.T) {
	t.Helper()
	p.places <- struct{}{}
	t.Cleanup(func() { <-p.places })
}

// take returns a fleet that no drill uses.
func (p *pool) take(t *testing.T) *harness.Env {
	t.Helper()
	p.mu.Lock()
	if n := len(p.free); n > 0 {
		defer p.mu.Unlock()
		env := p.free[n-1]
		p.free = p.free[:n-1]
		return env
	}
	p.mu.Unlock()
	env, err := harness.Open(context.WithoutCancel(t.Context()), topology)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ours = append(p.ours, env)
	return env
}

// add makes a fleet available to other drills.
func (p *pool) add(env *harness.Env) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, env)
}

// close ends the fleets that were started by take.
func (p *pool) close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for _, env := range p.ours {
		errs = append(errs, env.Close())
	}
	return errors.Join(errs...)
}
