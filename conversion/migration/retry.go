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

// negotiated is the serializer of clients that decode the answers themselves.
var negotiated = serializer.NewCodecFactory(runtime.NewScheme()).WithoutConversion()

// errUnknown means that the answering API server does not know the resource, although others do.
var errUnknown = errors.New("an API server does not know the resource")

// pace has the delays and time limits of a migration.
type pace struct {
	first, longest time.Duration // The first and the maximum delay between two attempts.
	away           time.Duration // The maximum time for which a server may be unreachable.
	tries          int           // Maximum number of attempts after server errors.
	request        time.Duration // Time limit of one request.
	look           time.Duration // Between two discovery requests.
	discover       time.Duration // Time limit for discovery to report the wanted storage version.
}

var usualPace = pace{
	first: 200 * time.Millisecond, longest: 8 * time.Second, away: time.Minute, tries: 5,
	request: 70 * time.Second, // Longer than the default request timeout of an API server.
	look:    500 * time.Millisecond, discover: time.Minute,
}

// persist calls f until f succeeds or a retry is useless. While the server is unreachable or overloaded, it retries for
// the duration away. After server errors it retries a few times, and after other errors not at all.
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

// code returns the HTTP status code in an error of the API server; 0 without an answer.
func code(err error) int {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return 0
	}
	return int(status.Status().Code)
}

// away reports whether the server was unreachable or overloaded, or does not know the resource.
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

// failing reports whether the answer is a server error. The cause may also be the object: a failed conversion is a
// server error as well.
func failing(err error) bool {
	return code(err) >= http.StatusInternalServerError
}

// pause waits for d. If ctx ends first, it returns the cause of the end.
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
