// Package follow has something done about one object of an API server whenever that
// may have changed, for as long as a program runs: it is for controllers of one
// object, whose errors pass.
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
	// often is the least time from one look to the next: two who want different things
	// must not keep the API server busy.
	often = 500 * time.Millisecond
	// atLeast is the longest: it is time that has certificates expire, and a watch may
	// be lost unnoticed.
	atLeast = 30 * time.Second
	// again is how long to wait after an error.
	again = 2 * time.Second
)

// Object calls do now, and whenever the object may have changed or one of the
// channels is sent to, until ctx ends: at most twice a second, and at least twice a
// minute. Errors are logged, each once while it stays the same, and do is called
// again in two seconds.
//
// List is an empty list of the object's kind; it is watched by name alone, so that
// the right to watch that one object is enough. Nil channels are never sent to.
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
			log.Error(err, "Cannot watch, and looks now and then instead", "name", key.Name, "every", atLeast.String())
			last = err.Error()
		}
		if !sleep(ctx, again) {
			return
		}
	}
}

// passEvents pokes for every event, the first of which is what is there, until
// the watch is closed, as it is now and then.
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

// sleep waits, and reports whether ctx has not ended.
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

// poke sends to a channel of one element, unless it is full: who receives then
// will see what there is.
func poke(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Signal tells all who listen that something may have changed. The zero value is
// ready for use, by several goroutines.
type Signal struct {
	mu   sync.Mutex
	told []chan<- struct{}
}

// Listen returns a channel of the caller's own, which is sent to after each Send
// from now on. Several that nobody has received yet count as one. It is kept for as
// long as the Signal is, and never closed.
func (s *Signal) Listen() <-chan struct{} {
	c := make(chan struct{}, 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, c)
	return c
}

// Send tells all who listen. It does not wait for them.
func (s *Signal) Send() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.told {
		poke(c)
	}
}
