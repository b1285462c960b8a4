package hub

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// clockWindow is the minimum time for which an answer of the API server is taken into account. Older answers are
	// dropped, because the clock of a process may lose time, for example while its machine is suspended.
	clockWindow = 5 * time.Minute
	// clockPace limits corrections to 1/clockPace of the time that passes: one minute in an hour.
	clockPace = 60
)

// Clock is the clock of a hub's API server, derived from the answers of that server. Replicas write times that other
// replicas compare with their own. If they used the clocks of their machines, a wrong clock would end a wait too early.
// It is safe for concurrent use.
//
// The clock takes its time from the first answer, and then advances by the time that passes in this process. It follows
// the API server slowly, because one of several API servers of a hub may be wrong, and an administrator may set the
// clock of a machine. So a wrong clock does not end a wait too early.
type Clock struct {
	began time.Time
	// elapsed returns the time since began. It does not jump when the clock of the machine is set.
	elapsed func() time.Duration

	mu sync.Mutex
	// leads has the largest known difference between the API server's time and the time in this process, for this
	// window and the previous one. The largest difference counts, because a slow answer shows too small a difference.
	leads [2]time.Duration
	known [2]bool
	since time.Duration // The beginning of the window.
	// ahead is the lead of this clock over the time in this process (elapsed) at the last correction. followed is the
	// time of that correction.
	ahead, followed time.Duration
}

// NewClock returns a clock. It starts at the given time of the machine. The first answer to a request of a
// configuration that was passed to [Clock.Follow] sets the clock to the time of the API server.
func NewClock(machine time.Time) *Clock {
	began := time.Now()
	return &Clock{began: machine.Round(0), elapsed: func() time.Duration { return time.Since(began) }}
}

// Follow makes the clock use the answers to all requests made with this configuration.
func (c *Clock) Follow(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &clocked{next, c} })
}

// Now returns the time. The time has no monotonic part, since it is compared with times of other processes.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.elapsed()
	c.follow(at)
	return c.began.Add(at + c.ahead)
}

// follow moves the clock toward the clock of the API server. The lock must be held.
func (c *Clock) follow(at time.Duration) {
	most := (at - c.followed) / clockPace
	c.ahead += min(max(c.lead()-c.ahead, -most), most)
	c.followed = at
}

// lead returns how far the API server is ahead. The lock must be held.
func (c *Clock) lead() time.Duration {
	switch {
	case c.known[0] && c.known[1]:
		return max(c.leads[0], c.leads[1])
	case c.known[0]:
		return c.leads[0]
	default:
		return c.leads[1] // Zero before the first answer.
	}
}

// note records the time of an answer, which is in whole seconds.
func (c *Clock) note(made time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.elapsed()
	lead := made.Sub(c.began.Add(at))
	c.follow(at) // The new answer must not affect the time before now.
	if !c.known[0] && !c.known[1] {
		c.ahead = lead
	}
	if at-c.since >= clockWindow {
		c.since = at
		c.leads[1], c.known[1] = c.leads[0], c.known[0]
		c.known[0] = false
	}
	if !c.known[0] || lead > c.leads[0] {
		c.leads[0], c.known[0] = lead, true
	}
}

// clocked passes the times of answers to a clock.
type clocked struct {
	next  http.RoundTripper
	clock *Clock
}

// RoundTrip implements [http.RoundTripper].
func (t *clocked) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if made, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
		t.clock.note(made)
	}
	return resp, nil
}

// WrappedRoundTripper returns the inner transport, for callers that look for its connections.
func (t *clocked) WrappedRoundTripper() http.RoundTripper { return t.next }
