// Package reflector runs reflectors of client-go until the API server no longer serves their type. The loop in
// client-go itself ends only with its context: for a deleted type it sends a request every few seconds and logs an
// error each time.
package reflector

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"refract.dev/internal/jitter"
)

// calm is how long a reflector must work without an error until the next pause is again the shortest one.
const calm = 2 * time.Minute

// Run lets r list and watch until ctx ends, or until the API server responds that it does not serve the type. In the
// latter case unserved is true. The caller must then log this, and call Run again when the type is served.
//
// After an error, Run pauses. Each pause is longer than the one before. refused has the pauses after a forbidden
// request, because a missing permission may be missing for long. pauses has the pauses after other errors. The caller
// must also log forbidden requests. Run logs other errors as client-go does. The jitter depends on the name, so that
// reflectors with different names pause differently: see [jitter.Between].
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
	_ = pause.Until(ctx, true, true, func(ctx context.Context) (done bool, _ error) { // Until returns no other error than that of ctx.
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

// step returns the next pause, with jitter.
func step(name string, b *wait.Backoff) time.Duration {
	spread := b.Jitter
	b.Jitter = 0 // The jitter of Backoff is random.
	d := b.Step()
	b.Jitter = spread
	return jitter.Between(name, d, d+time.Duration(float64(d)*spread))
}
