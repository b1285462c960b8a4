package webhook

import (
	"context"
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

// follow calls do now, and whenever the object may have changed or one of the
// channels is sent to, until ctx ends. Errors are logged, each once while it stays
// the same, and do is called again soon.
func follow(ctx context.Context, c client.WithWatch, list client.ObjectList, key types.NamespacedName,
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
