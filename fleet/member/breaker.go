package member

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/internal/jitter"
)

const (
	// breakerTrips is the number of consecutive failed writes after which all writes wait.
	breakerTrips = 5
	// The pause doubles with each attempt that fails, from firstPause to lastPause.
	firstPause = time.Second
	lastPause  = 30 * time.Second
	// breakerTries is the number of trial writes that are permitted after a check has found the member healthy.
	breakerTries = 4
	// askPause is how long writers wait while the member is being checked.
	askPause = 250 * time.Millisecond
	// doubtPause is the time between two checks while the breaker is closed.
	doubtPause = 2 * time.Second
	// placesFor is the period in which [places] counts failures together. mostPlaces bounds the number of their scopes.
	placesFor  = 30 * time.Second
	mostPlaces = 64
)

// breaker makes writers wait while a member cannot accept writes. Otherwise each write would wait for its own timeout
// and add to the load of the member.
type breaker struct {
	member string
	now    func() time.Time
	opened func(bool) // Called when the breaker opens and closes.
	// ask starts a check of the member, and passes the result to [breaker.answered]. The requests of the check do not
	// depend on any copy. It must not block.
	ask func()

	mu       sync.Mutex
	failures int       // In a row.
	until    time.Time // When the next check may begin.
	asking   time.Time // No other check begins before this time: the deadline of a check under way, or the end of a pause.
	tries    int       // Number of trial writes that are still permitted.
	trying   time.Time // Other writers wait for the results of the trial writes until this time.
	places   places
}

// writeScope is the namespace and the type of a write.
type writeScope struct {
	namespace string
	resource  schema.GroupResource
}

// places counts the failed writes since the last successful write, and records their scopes. It takes only failures
// that may concern only one type: see [ConcernsType].
type places struct {
	failures int
	since    time.Time
	all      map[writeScope]struct{}
}

// pause returns the wait before the next write; zero means no wait. While the breaker is open, pause starts checks of
// the member. After a check has found the member healthy, the next breakerTries calls return zero.
func (b *breaker) pause() time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	switch {
	case !b.isOpen():
		return 0
	case now.Before(b.until):
		return about(b.member, b.until.Sub(now))
	case now.Before(b.asking):
		return about(b.member, askPause)
	case b.tries > 0:
		b.tries--
		b.trying = now.Add(requestTimeout)
		return 0
	case now.Before(b.trying):
		return about(b.member, firstPause)
	}
	b.doubt(now)
	return about(b.member, askPause)
}

// doubt starts a check of the member. The lock must be held.
func (b *breaker) doubt(now time.Time) {
	b.asking = now.Add(requestTimeout)
	b.ask()
}

func (b *breaker) isOpen() bool { return b.failures >= breakerTrips }

// answered takes the result of a check: an error says why the member is not healthy.
func (b *breaker) answered(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was, now := b.isOpen(), b.now()
	b.asking = time.Time{}
	switch {
	case !was && err == nil: // The failures concern copies, not the member. Only the failed copies wait for a retry.
		b.places, b.asking = places{}, now.Add(doubtPause)
	case !was && b.places.failures == 0, was && now.Before(b.until): // The check is outdated: a write has changed the state since the check began.
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
		b.until = b.now().Add(about(b.member, min(firstPause<<min(b.failures-breakerTrips, 10), lastPause)))
	}
}

// note takes the result of a write.
func (b *breaker) note(at writeScope, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	was := b.isOpen()
	switch {
	case err == nil:
		b.failures, b.places = 0, places{}
		b.until, b.tries, b.trying = time.Time{}, 0, time.Time{}
	case was && b.now().Before(b.until):
		// The write began before the breaker opened, so it was not a trial write.
	case ConcernsAll(err):
		b.fail()
	case was: // A refusal of one object or one type says nothing about the member, so another trial write is permitted.
		b.tries, b.trying = min(b.tries+1, breakerTries), time.Time{}
	case ConcernsType(err):
		if now := b.now(); b.places.add(at, now) && !now.Before(b.asking) {
			b.doubt(now)
		}
	}
	b.tell(was)
}

// tell calls opened if the breaker has opened or closed. The lock must be held.
func (b *breaker) tell(was bool) {
	if is := b.isOpen(); is != was {
		b.opened(is)
	}
}

// add counts a failure. It reports whether there are enough failures for a check of the member: at least breakerTrips,
// with more than one type and more than one namespace.
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

// about returns d, give or take a fifth; see [jitter.Between].
func about(name string, d time.Duration) time.Duration { return jitter.Between(name, d*4/5, d*6/5) }

// whose is the scope of an error: nothing, one object, one type or the whole member.
type whose int

const (
	ofNobody whose = iota // No error, or Refract canceled the request.
	ofObject
	ofType // The error concerns one type, one webhook or the member: the API server does not say which.
	ofMember
)

// ConcernsAll reports whether an error concerns the whole member, and not only one object or one type: the member is
// overloaded or unreachable, for example. It returns false for no error, and for a request that Refract canceled.
func ConcernsAll(err error) bool { return concern(err) == ofMember }

// ConcernsType reports whether an error may concern only one type, for example a type that an aggregated API server
// serves. It returns false for errors of webhooks, because their messages name the webhook.
func ConcernsType(err error) bool { return concern(err) == ofType }

// isDenial reports whether a webhook or an admission policy has denied an object.
func isDenial(message string) bool {
	return strings.HasPrefix(message, deniedByWebhook) || strings.Contains(message, deniedByPolicy)
}

// isUntyped reports whether an object violates the schema of its type on the cluster, for example with two list items
// of the same name. When an API server applies such an object, it answers with status 500 and quotes the object.
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
		return ofObject // The webhook or the policy has chosen the status code, not the API server.
	case s.Code == http.StatusUnauthorized, s.Code == http.StatusTooManyRequests, s.Code == http.StatusRequestTimeout:
		return ofMember
	case s.Code < http.StatusInternalServerError, isTooLarge(s.Message), isUntyped(s.Message):
		return ofObject
	case ofStorage(s.Message) != "":
		return ofMember
	case strings.Contains(s.Message, "webhook"):
		return ofObject // A webhook that fails concerns only some types. The API server is healthy.
	default:
		return ofType
	}
}

// OutcomeUnknown reports whether a write that failed with this error may have been carried out: the request was sent,
// and either no answer came, or the API server answered that it gave up waiting. After any other answer of an API
// server, the write counts as not carried out.
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
