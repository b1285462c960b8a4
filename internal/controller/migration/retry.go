package migration

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// negotiated is for a client that decodes what it is answered by itself.
var negotiated = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()

// errUnknown says that a server does not know what it was asked for, though others do.
var errUnknown = errors.New("an API server does not know the resource")

// pace is how patient a migration is.
type pace struct {
	first, longest time.Duration // Between two tries: the first pause, and the longest.
	away           time.Duration // How long a server may be out of reach.
	tries          int           // How often something is tried that the server could not do.
	request        time.Duration // How long one request may take.
	look           time.Duration // Between two looks at what is discovered.
	discover       time.Duration // How long it may take until that is as wanted.
}

var usualPace = pace{
	first: 200 * time.Millisecond, longest: 8 * time.Second, away: time.Minute, tries: 5,
	request: 70 * time.Second, // More than an API server takes for anything by default.
	look:    500 * time.Millisecond, discover: time.Minute,
}

// persist calls f until it succeeds or there is no use in trying again: for a while if
// the server is away or has too much to do, a few times if it could not do it, and once
// if it refuses.
func (p pace) persist(ctx context.Context, f func(context.Context) error) error {
	began, delay := time.Now(), p.first
	for try := 1; ; try++ {
		attempt, cancel := context.WithTimeout(ctx, p.request)
		err := f(attempt)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		switch {
		case away(err):
			if time.Since(began) >= p.away {
				return err
			}
		case !failing(err) || try >= p.tries:
			return err
		}
		wait := delay
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			wait = max(wait, min(time.Duration(seconds)*time.Second, p.away))
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		delay = min(2*delay, p.longest)
	}
}

// code returns the HTTP status of an answer of the API server; 0 if there was none.
func code(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return int(status.Status().Code)
}

// away reports whether the server could not be asked, had no time, or was not the one
// to ask.
func away(err error) bool {
	if errors.Is(err, errUnknown) {
		return true
	}
	switch code(err) {
	case 0, http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	default:
		return false
	}
}

// failing reports whether the server was asked and could not do it, which may be its
// fault or that of the object: what cannot be converted is an error of the server's.
func failing(err error) bool {
	return code(err) >= http.StatusInternalServerError
}

// pause waits, and returns the cause if ctx ends first.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
