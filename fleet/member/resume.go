package member

import (
	"context"
	"errors"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

const (
	// watchSpacing is the minimum time between the starts of two watches of a type. It applies separately to watches
	// that continue an earlier one and to watches that begin with a list. Without it, a reflector repeats a request for
	// an expired version without a pause.
	watchSpacing = time.Second
	// longAway is the length of an outage after which a member is listed completely. A restore from a backup hardly
	// takes less time.
	longAway = 5 * time.Minute
)

// resumption lets the watch of a type continue where it was interrupted. Without it, a reflector lists everything after
// any error except a refused connection. If a short overload of this process interrupted a thousand watches, the
// process would then request all copies of these members at once. A resumption belongs to one reflector, and is not
// safe for concurrent use.
type resumption struct {
	began  time.Time // The start of the last watch.
	listed time.Time // The last request for a watch that begins with a list.
	lost   time.Time // When the first of the failed requests for a watch failed; zero if the last one succeeded.
}

// pace waits until another watch may be requested. Lists is whether the watch begins with a list.
func (r *resumption) pace(ctx context.Context, lists bool) error {
	last := r.began
	if lists && r.listed.After(last) {
		last = r.listed
	}
	left := max(0, watchSpacing-time.Since(last))
	if lists {
		r.listed = time.Now().Add(left)
	}
	if left == 0 {
		return nil
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// begun converts the result of a request for a watch into the result for the reflector. Words is the error that the
// reflector gets instead of err.
func (r *resumption) begun(events watch.Interface, err, words error) (watch.Interface, error) {
	switch {
	case err == nil && !r.lost.IsZero() && time.Since(r.lost) > longAway:
		events.Stop()
		r.lost = time.Time{}
		return nil, errLongAway
	case err == nil:
		r.began, r.lost = time.Now(), time.Time{}
		return events, nil
	case !unreachable(err):
		return nil, words
	case r.lost.IsZero():
		r.lost = time.Now()
	}
	return nil, unreached{words}
}

var errLongAway = errors.New("the watch was interrupted for a long time: listing again")

// unreachable reports whether a request had no answer or an incomplete one.
func unreachable(err error) bool {
	return errors.As(err, new(*url.Error)) && !errors.As(err, new(*redirected)) && !errors.As(err, new(*LimitError))
}

// unreached is the error of a watch that did not begin because there was no answer. A reflector treats it as a refused
// connection.
type unreached struct{ error }

// Unwrap returns the error of a refused connection, in addition to the cause.
func (e unreached) Unwrap() []error { return []error{syscall.ECONNREFUSED, e.error} }

type resumableKey struct{}

// watchMark marks the requests of a watch.
type watchMark struct {
	// goesOn is whether another watch continues this one after an interruption. A watch that begins with a list cannot
	// be continued before the list has ended.
	goesOn *atomic.Bool
	// broke is set by an interruption: see [identity.replaced].
	broke *atomic.Bool
}

// resumable marks the requests of a watch. If the watch is interrupted while goesOn is true, it ends like a watch that
// has timed out, and the next watch continues.
func resumable(ctx context.Context, goesOn, broke *atomic.Bool) context.Context {
	return context.WithValue(ctx, resumableKey{}, watchMark{goesOn, broke})
}

// resumes notes an interruption of a watch, and reports whether another watch continues it.
func resumes(ctx context.Context) bool {
	m, ok := ctx.Value(resumableKey{}).(watchMark)
	if !ok {
		return false
	}
	if ctx.Err() == nil { // Refract has not ended the watch itself.
		m.broke.Store(true)
	}
	return m.goesOn.Load()
}
