package member

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

const (
	// breakerTrips is how many writes in a row must fail before the others wait.
	breakerTrips = 5
	// The wait doubles from the first to the last with each try that fails.
	firstPause = time.Second
	lastPause  = 30 * time.Second
)

// breaker keeps writers from a member that cannot take any writes at the moment:
// they would each wait for their own timeout, and add to what it suffers from.
type breaker struct {
	now    func() time.Time
	opened func(bool) // Told when it opens and closes.

	mu       sync.Mutex
	failures int       // In a row.
	until    time.Time // When the next may try.
	trying   time.Time // Until when the one who tries has the word.
}

// pause returns how long to wait; zero to go on. While the breaker is open, zero
// is for one caller alone.
func (b *breaker) pause() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	switch {
	case b.failures < breakerTrips:
		return 0
	case now.Before(b.until):
		return jitter(b.until.Sub(now))
	case now.Before(b.trying):
		return jitter(firstPause)
	}
	b.trying = now.Add(requestTimeout)
	return 0
}

// note is told how a write went.
func (b *breaker) note(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.failures >= breakerTrips
	switch {
	case err == nil:
		b.failures = 0
	case was && b.now().Before(b.until):
		// It was under way when the others began to wait: a try it was not.
	case ConcernsAll(err):
		b.failures++
		if b.failures >= breakerTrips {
			b.until = b.now().Add(jitter(min(firstPause<<min(b.failures-breakerTrips, 10), lastPause)))
		}
	}
	b.trying = time.Time{} // A refusal says nothing; the next may try.
	if is := b.failures >= breakerTrips; is != was {
		b.opened(is)
	}
}

// jitter returns d, give or take a fifth.
func jitter(d time.Duration) time.Duration {
	return d*4/5 + rand.N(d*2/5+1) //nolint:gosec // No secret hangs on it.
}

// ConcernsAll tells errors that concern the whole member, as one that is overloaded or cannot be reached, from those that
// concern one object, or one type of objects. That there is none, or that we gave up, concerns nobody.
func ConcernsAll(err error) bool {
	if err == nil {
		return false
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return !errors.Is(err, context.Canceled)
	}
	switch s := status.Status(); {
	case s.Code == http.StatusUnauthorized, s.Code == http.StatusTooManyRequests, s.Code == http.StatusRequestTimeout:
		return true
	case s.Code >= http.StatusInternalServerError:
		// A webhook that fails is one for some types; its API server is well.
		return !strings.Contains(s.Message, "webhook")
	default:
		return false
	}
}

// OutcomeUnknown reports whether a write that failed with the error may well have been done all the same: it was
// sent, and the answer did not come, or said that the API server gave up waiting itself. Of other errors that an API server
// answers with, the write is taken not to have been done.
func OutcomeUnknown(err error) bool {
	if err == nil || errors.As(err, new(*LimitError)) {
		return false
	}
	if dial := (*net.OpError)(nil); errors.As(err, &dial) && dial.Op == "dial" {
		return false // Nothing was sent.
	}
	if !errors.As(err, new(apierrors.APIStatus)) {
		return true
	}
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err)
}
