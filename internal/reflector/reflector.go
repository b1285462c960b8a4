// Package reflector runs the reflectors of client-go until an API server does not serve
// their type any more. client-go's own loop ends with its context alone: it asks for a
// type that is gone every few seconds, and logs an error each time.
package reflector

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
)

// calm is after how long without a pause pauses are as short as at first.
const calm = 2 * time.Minute

// Run has r list and watch until ctx ends, or until the API server answers that it has no
// such type, and reports whether it did: it is the caller's to say so, and to call Run again
// when it has. What failed is done again after one of these pauses, which grow: of refused for
// what is forbidden, which may be so for good. That is the caller's to say, too; other errors are
// logged as client-go does it.
func Run(ctx context.Context, r *cache.Reflector, pauses, refused wait.Backoff) (unserved bool) {
	next, nextRefused, last, forbidden := pauses, refused, time.Now(), false
	pause := wait.DelayFunc(func() time.Duration {
		if forbidden {
			return nextRefused.Step()
		}
		now := time.Now()
		if now.Sub(last) > calm {
			next = pauses
		}
		last, nextRefused = now, refused
		return next.Step()
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
