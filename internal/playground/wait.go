package playground

import (
	"context"
	"fmt"
	"time"
)

// patience bounds the time until any component becomes ready. It is deliberately much longer than needed, because
// machines can be slow and the user can interrupt.
const patience = 3 * time.Minute

// await calls try until it succeeds. It gives up when the context ends or patience is over, and returns the error of
// the last try too.
func await(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no success within %s", patience))
	defer cancel()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // Otherwise the interruption caused the error.
			last = err
		}
		if cause := pause(ctx, 50*time.Millisecond); cause != nil {
			return because(cause, last)
		}
	}
}

// because adds the last error of the tries, if any, to the cause of the end.
func because(cause, last error) error {
	if last == nil {
		return cause
	}
	return fmt.Errorf("%w (at last: %w)", cause, last)
}

// pause waits for d, or returns the context's cause if that ends first.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
