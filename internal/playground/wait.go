package playground

import (
	"context"
	"fmt"
	"time"
)

// patience is how long anything may take to become ready. It is much more than
// it needs, on purpose: slow machines are slow, and the user can interrupt.
const patience = 3 * time.Minute

// await tries until it succeeds. It gives up when the context ends or patience
// does, and says why the last try failed.
func await(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no success within %s", patience))
	defer cancel()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // Or else the try has failed because it was interrupted.
			last = err
		}
		if cause := pause(ctx, 50*time.Millisecond); cause != nil {
			return because(cause, last)
		}
	}
}

// because adds the reason for which something was still being waited for, if
// there is one, to the reason for which it no longer is.
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
