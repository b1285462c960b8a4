// Package reflector runs the reflectors of client-go until an API server does not serve their type any more.
// client-go's own loop ends only with its context: it requests a type that is gone every few seconds, and logs an error
// each time.
package reflector

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"refract.dev/internal/jitter"
)

// calm is how long a reflector must run without a pause before the pauses begin with the shortest again.
const calm = 2 * time.Minute

// Run makes r list and watch until ctx ends, or until the API server answers that it does not serve the type, and
// reports whether it has answered so. The caller must report this, and call Run again when the type is served. After an
// error, Run waits for a pause, which grows. The pauses come from refused if the request is forbidden, because that may
// last, and from pauses otherwise. The caller must also report forbidden requests; Run logs other errors like
// client-go. The name of the reflector spreads the pauses of many reflectors: see [jitter.Between].
func Run(ctx context.Context, name string, r *cache.Reflector, pauses, refused wait.Backoff) (unserved bool) {
	next, nextRefused, last, forbidden := pauses, refused, time.Now(), false
	pause := wait.DelayFunc(func() time.Duration {
		if forbidden {
			return step(name, &nextRefused)
		}
		now := time.Now()
		if now.Sub(last) > calm {
			next = pauses
		}
		last, nextRefused = now, refused
		return step(name, &next)
	})
	_ = pause.Until(ctx, true, true, func(ctx context.Context) (done bool, _ error) { // Its only error is that of ctx.
		err := r.ListAndWatchWithContext(ctx)
		forbidden = apierrors.IsForbidden(err)
		switch {
		case apierrors.IsNotFound(err):
			unserved = true
		case err != nil && !forbidden:
			cache.DefaultWatchErrorHandler(ctx, r, err)
		}
		return unserved, nil
	})
	return unserved
}

// step returns the next pause with its jitter.
func step(name string, b *wait.Backoff) time.Duration {
	spread := b.Jitter
	b.Jitter = 0 // The jitter of Backoff is random.
	d := b.Step()
	b.Jitter = spread
	return jitter.Between(name, d, d+time.Duration(float64(d)*spread))
}
