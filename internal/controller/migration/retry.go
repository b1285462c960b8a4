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

// persist calls f until it succeeds or there is no use in trying again: for a while if
// the server is away or has too much to do, a few times if it could not do it, and once
// if it refuses.
func (m *migration) persist(ctx context.Context, f func(context.Context) error) error {
	began, delay := time.Now(), m.pace.first
	for try := 1; ; try++ {
		attempt, cancel := context.WithTimeout(ctx, m.pace.request)
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
			if time.Since(began) >= m.pace.away {
				return err
			}
		case !failing(err) || try >= m.pace.tries:
			return err
		}
		wait := delay
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
			wait = max(wait, min(time.Duration(seconds)*time.Second, m.pace.away))
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		delay = min(2*delay, m.pace.longest)
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
