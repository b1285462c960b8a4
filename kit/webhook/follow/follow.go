// Package follow calls a function whenever one object of an API server may have changed, for as long as a program runs.
// It is for controllers of one object, whose errors are temporary.
package follow

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// often is the minimum time between two calls, so that two writers who undo each other's changes do not overload
	// the API server.
	often = 500 * time.Millisecond
	// atLeast is the maximum time between two calls: certificates expire without an event, and a watch can be lost
	// unnoticed.
	atLeast = 30 * time.Second
	// again is the delay after an error.
	again = 2 * time.Second
)

// Object calls do at once, and then whenever the object may have changed or one of the channels receives a value, until
// ctx ends: at most twice a second, and at least twice a minute. Each error is logged once while it stays the same, and
// do is called again after two seconds.
//
// List is an empty list of the object's kind. Object watches only the name of the object, so the right to watch that
// one object is enough. Nil channels are allowed and never receive a value.
func Object(ctx context.Context, c client.WithWatch, list client.ObjectList, key types.NamespacedName,
	log logr.Logger, do func(context.Context) error, also ...<-chan struct{},
) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	changed := make(chan struct{}, 1)
	go watch(ctx, c, list, key, log, changed)
	for _, other := range also {
		go pass(ctx, other, changed)
	}
	last := ""
	for {
		wait := atLeast
		err := do(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			last = ""
		default:
			wait = again
			if err.Error() != last {
				log.Error(err, "Will try again")
				last = err.Error()
			}
		}
		if !sleep(ctx, often) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-time.After(wait):
		}
	}
}

// watch pokes when the object may have changed.
func watch(ctx context.Context, c client.WithWatch, list client.ObjectList, key types.NamespacedName, log logr.Logger, changed chan<- struct{}) {
	last := ""
	for {
		w, err := c.Watch(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name})
		switch {
		case err == nil:
			last = ""
			passEvents(ctx, w, changed)
		case ctx.Err() == nil && err.Error() != last:
			log.Error(err, "Cannot watch, and polls instead", "name", key.Name, "every", atLeast.String())
			last = err.Error()
		}
		if !sleep(ctx, again) {
			return
		}
	}
}

// passEvents pokes for every event until the watch is closed, which happens now and then. The first event is the
// present object.
func passEvents(ctx context.Context, w apiwatch.Interface, changed chan<- struct{}) {
	defer w.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, ok := <-w.ResultChan():
			if !ok {
				return
			}
			poke(changed)
		}
	}
}

func pass(ctx context.Context, from <-chan struct{}, to chan<- struct{}) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-from:
			poke(to)
		}
	}
}

// sleep waits, and returns false if ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// poke sends to a channel with room for one element, unless it is full: its receiver will then see this change as well.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Signal notifies all listeners that something may have changed. The zero value is ready for use. Several goroutines
// may use it.
type Signal struct {
	mu   sync.Mutex
	told []chan<- struct{}
}

// Listen returns a new channel for each caller. It receives a value after each later Send; values that are not yet
// received are merged into one. The channel lives as long as the Signal, and is never closed.
func (s *Signal) Listen() <-chan struct{} {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, c)
	return c
}

// Send notifies all listeners without waiting for them.
func (s *Signal) Send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.told {
		poke(c)
	}
}
