// Package follow calls a function whenever an object of an API server may have changed, until a context ends. It is for
// controllers of one object whose errors are temporary.
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
	// often is the minimum time between two calls. It protects the API server from two writers that undo each other's
	// changes.
	often = 500 * time.Millisecond
	// atLeast is the maximum time between two calls. Certificates expire without an event, and a watch can miss changes
	// without an error.
	atLeast = 30 * time.Second
	// again is the delay after an error.
	again = 2 * time.Second
)

// Object calls the function do at once. Until ctx ends, it calls do again whenever the object may have changed or one
// of the channels receives a value: at most twice a second, and at least twice a minute. After an error it calls do
// again after two seconds at the latest. It logs an error only if the error differs from the previous one.
//
// list is an empty list of the object's kind. Object watches only this one object by its name, so the right to watch
// that object is enough. A nil channel is allowed and never receives a value.
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

// watch sends to changed whenever the object may have changed.
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

// passEvents sends to changed for every event until the API server closes the watch, as it does from time to time. The
// first event is the present object.
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

// sleep waits for d. It returns false if ctx ends first.
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

// poke sends to a channel with a buffer of one value. If the buffer is full, nothing is sent: the receiver has not read
// the object yet, and will see this change as well.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Signal notifies all listeners that something may have changed. The zero value is ready for use. It is safe for
// concurrent use.
type Signal struct {
	mu   sync.Mutex
	told []chan<- struct{}
}

// Listen returns a new channel on each call. The channel receives a value after each later Send; several values that
// the listener has not received yet become one. The channel is never closed.
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
