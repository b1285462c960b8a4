package playground

import (
	"context"
	"fmt"
	"time"
)

// patience is the longest wait for a component to become ready. It is much longer than necessary, because a machine may
// be slow, and the user can interrupt the wait.
const patience = 3 * time.Minute

// await calls try until it succeeds. It gives up when ctx ends or after patience. The error then includes the error of
// the last try.
func await(ctx context.Context, try func(context.Context) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("no success within %s", patience))
	defer cancel()
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil { // An error after the end of ctx may be only a consequence of that end.
			last = err
		}
		if cause := pause(ctx, 50*time.Millisecond); cause != nil {
			return because(cause, last)
		}
	}
}

// because adds the error of the last try to the cause, if there is one.
func because(cause, last error) error {
	if last == nil {
		return cause
	}
	return fmt.Errorf("%w (at last: %w)", cause, last)
}

// pause waits for the duration d. If ctx ends first, it returns the cause of ctx.
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
