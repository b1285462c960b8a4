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
	// watchSpacing is the least time between the beginnings of two watches of a type that go on, however often they are cut, and between two
	// that begin with a list, whatever the answers: after one that says that a version has expired a reflector asks again without a pause.
	watchSpacing = time.Second
	// longAway is after what time everything is listed that a member has which could not be watched. Until then what is there can hardly
	// be another state of the same cluster, as from a backup.
	longAway = 5 * time.Minute
)

// resumption has the watch of a type go on from where it was when it is lost. After other errors than a refused connection a reflector
// lists everything: a thousand members that are lost for a moment, as by an overload, would be asked for all their copies at once by
// who has just been too slow for them. It is for one reflector, which calls one function at a time.
type resumption struct {
	began  time.Time // When the last watch began.
	listed time.Time // When one was asked for last that begins with a list.
	lost   time.Time // Since when none could begin; the zero time if the last one did.
}

// pace waits until another watch may be asked for; lists is whether that begins with a list.
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

// begun takes how a watch began, and returns that as it is to be told to the reflector; of an error there are other words.
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

var errLongAway = errors.New("it could not be watched for long: it is listed once more")

// unreachable reports whether a request was not answered, or its answer did not come.
func unreachable(err error) bool {
	return errors.As(err, new(*url.Error)) && !errors.As(err, new(*redirected)) && !errors.As(err, new(*LimitError))
}

// unreached is why a watch did not begin, without an answer. To a reflector it is a refused connection.
type unreached struct{ error }

// Unwrap has the error be that of a refused connection, beside what it is.
func (e unreached) Unwrap() []error { return []error{syscall.ECONNREFUSED, e.error} }

type resumableKey struct{}

// resumable is for the requests of a watch: if it is cut while goesOn is true it just ends, and the next one goes on. One that begins with
// a list cannot before that has ended.
func resumable(ctx context.Context, goesOn *atomic.Bool) context.Context {
	return context.WithValue(ctx, resumableKey{}, goesOn)
}

// isResumable reports whether the watch of this request goes on when it is cut.
func isResumable(ctx context.Context) bool {
	goesOn, ok := ctx.Value(resumableKey{}).(*atomic.Bool)
	return ok && goesOn.Load()
}
