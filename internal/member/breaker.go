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
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// breakerTrips is how many writes in a row must fail before the others wait.
	breakerTrips = 5
	// The wait doubles from the first to the last with each try that fails.
	firstPause = time.Second
	lastPause  = 30 * time.Second
	// breakerTries is how many writes may try after the member was found to be well.
	breakerTries = 4
	// askPause is how long others wait while the member is asked whether it is well.
	askPause = 250 * time.Millisecond
	// doubtPause is the time between two such questions while nobody waits.
	doubtPause = 2 * time.Second
	// placesFor is for how long failures that may be those of one type count together, and mostPlaces how many places of them are known.
	placesFor  = 30 * time.Second
	mostPlaces = 64
)

// breaker keeps writers from a member that cannot take any writes at the moment:
// they would each wait for their own timeout, and add to what it suffers from.
type breaker struct {
	now    func() time.Time
	opened func(bool) // Told when it opens and closes.
	// ask finds out whether the member is well, by requests that no copy is part of, and has [breaker.answered] told. It must not block.
	ask func()

	mu       sync.Mutex
	failures int       // In a row.
	until    time.Time // When the member is asked next.
	asking   time.Time // Until when it is not asked again.
	tries    int       // How many writes may still try.
	trying   time.Time // Until when the others wait for those that try.
	places   places
}

// writeScope is where a write goes.
type writeScope struct {
	namespace string
	resource  schema.GroupResource
}

// places are where writes failed for reasons that may be those of one type, since one succeeded.
type places struct {
	failures int
	since    time.Time
	all      map[writeScope]struct{}
}

// pause returns how long to wait; zero to go on. While the breaker is open, the member is asked whether it is well, and zero
// is for a few callers alone after it was.
func (b *breaker) pause() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	switch {
	case !b.isOpen():
		return 0
	case now.Before(b.until):
		return jitter(b.until.Sub(now))
	case now.Before(b.asking):
		return jitter(askPause)
	case b.tries > 0:
		b.tries--
		b.trying = now.Add(requestTimeout)
		return 0
	case now.Before(b.trying):
		return jitter(firstPause)
	}
	b.doubt(now)
	return jitter(askPause)
}

// doubt has the member asked whether it is well. The lock must be held.
func (b *breaker) doubt(now time.Time) {
	b.asking = now.Add(requestTimeout)
	b.ask()
}

func (b *breaker) isOpen() bool { return b.failures >= breakerTrips }

// answered is told whether the member is well; the error is why it is not.
func (b *breaker) answered(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was, now := b.isOpen(), b.now()
	b.asking = time.Time{}
	switch {
	case !was && err == nil: // What fails are copies: each waits by itself, and the others go on.
		b.places, b.asking = places{}, now.Add(doubtPause)
	case !was && b.places.failures == 0, was && now.Before(b.until): // A write has succeeded meanwhile; it was asked for what was before.
	case err != nil:
		b.failures, b.places = max(b.failures, breakerTrips-1), places{}
		b.fail()
	default:
		b.tries, b.trying = breakerTries, time.Time{}
	}
	b.tell(was)
}

// fail counts a failure that concerns the whole member. The lock must be held.
func (b *breaker) fail() {
	b.failures++
	b.tries, b.trying = 0, time.Time{}
	if b.isOpen() {
		b.until = b.now().Add(jitter(min(firstPause<<min(b.failures-breakerTrips, 10), lastPause)))
	}
}

// note is told how a write went.
func (b *breaker) note(at writeScope, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.isOpen()
	switch {
	case err == nil:
		b.failures, b.places = 0, places{}
		b.until, b.tries, b.trying = time.Time{}, 0, time.Time{}
	case was && b.now().Before(b.until):
		// It was under way when the others began to wait: a try it was not.
	case ConcernsAll(err):
		b.fail()
	case was: // A refusal says nothing, and neither does what may be wrong with one type; the next may try.
		b.tries, b.trying = min(b.tries+1, breakerTries), time.Time{}
	case ConcernsType(err):
		if now := b.now(); b.places.add(at, now) && !now.Before(b.asking) {
			b.doubt(now)
		}
	}
	b.tell(was)
}

// tell says if it has opened or closed. The lock must be held.
func (b *breaker) tell(was bool) {
	if is := b.isOpen(); is != was {
		b.opened(is)
	}
}

// add counts a failure, and reports whether these are not those of one type, nor those of one namespace.
func (p *places) add(at writeScope, now time.Time) bool {
	if p.all == nil || now.Sub(p.since) > placesFor {
		*p = places{since: now, all: map[writeScope]struct{}{}}
	}
	p.failures++
	if len(p.all) < mostPlaces {
		p.all[at] = struct{}{}
	}
	types, namespaces := map[schema.GroupResource]struct{}{}, map[string]struct{}{}
	for known := range p.all {
		types[known.resource], namespaces[known.namespace] = struct{}{}, struct{}{}
	}
	return p.failures >= breakerTrips && len(types) > 1 && len(namespaces) > 1
}

// jitter returns d, give or take a fifth.
func jitter(d time.Duration) time.Duration {
	return d*4/5 + rand.N(d*2/5+1) //nolint:gosec // No secret hangs on it.
}

// whose says what fails by an error.
type whose int

const (
	ofNobody whose = iota // There is no error, or we gave up.
	ofObject
	ofType // Or of a webhook, or of the member: an API server does not say.
	ofMember
)

// ConcernsAll tells errors that concern the whole member, as one that is overloaded or cannot be reached, from those that
// concern one object, or one type of objects. That there is none, or that we gave up, concerns nobody.
func ConcernsAll(err error) bool { return concern(err) == ofMember }

// ConcernsType tells errors of an API server that is well for other types, as far as it says: one that stands behind it may serve the type.
// Errors of webhooks, which have names, are not among them.
func ConcernsType(err error) bool { return concern(err) == ofType }

// isDenial reports whether admission has denied an object, by a webhook or a policy.
func isDenial(message string) bool {
	return strings.HasPrefix(message, deniedByWebhook) || strings.Contains(message, deniedByPolicy)
}

// isUntyped reports whether an object is none of its type's schema on the cluster, as one with two items of one name in a list. An API server
// that applies it fails with status 500, and quotes it.
func isUntyped(message string) bool {
	return strings.HasPrefix(message, "failed to create typed patch object") || strings.HasPrefix(message, "failed to convert new ")
}

func concern(err error) whose {
	if err == nil || errors.Is(err, context.Canceled) {
		return ofNobody
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		if errors.As(err, new(*SizeError)) {
			return ofObject
		}
		return ofMember
	}
	s := status.Status()
	switch {
	case isDenial(s.Message):
		return ofObject // Its status is what a webhook or a policy says it is.
	case s.Code == http.StatusUnauthorized, s.Code == http.StatusTooManyRequests, s.Code == http.StatusRequestTimeout:
		return ofMember
	case s.Code < http.StatusInternalServerError, isTooLarge(s.Message), isUntyped(s.Message):
		return ofObject
	case ofStorage(s.Message) != "":
		return ofMember
	case strings.Contains(s.Message, "webhook"):
		return ofObject // A webhook that fails is one for some types; its API server is well.
	default:
		return ofType
	}
}

// OutcomeUnknown reports whether a write that failed with the error may well have been done all the same: it was
// sent, and the answer did not come, or said that the API server gave up waiting itself. Of other errors that an API server
// answers with, the write is taken not to have been done.
func OutcomeUnknown(err error) bool {
	if err == nil || errors.As(err, new(*LimitError)) || errors.As(err, new(*SizeError)) {
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
