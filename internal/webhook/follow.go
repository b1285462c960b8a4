package webhook

import (
	"context"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
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
	go watch(ctx, c, list, key, changed)
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
func watch(ctx context.Context, c client.WithWatch, list client.ObjectList, key types.NamespacedName, changed chan<- struct{}) {
	for {
		w, err := c.Watch(ctx, list, client.InNamespace(key.Namespace), client.MatchingFields{"metadata.name": key.Name})
		if err == nil {
			for range w.ResultChan() { // Begins with what is there, and is closed now and then.
				poke(changed)
			}
			w.Stop()
		}
		if !sleep(ctx, again) {
			return
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
