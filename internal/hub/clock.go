package hub

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
)

const (
	// clockWindow is for how long an answer of the API server counts at least. The clock of a process may lose time meanwhile, as in a
	// machine that is suspended.
	clockWindow = 5 * time.Minute
	// clockPace is in which time a clock is brought nearer to that of the API server by one unit at most: by a minute in an hour.
	clockPace = 60
)

// Clock is the clock of a hub's API server, as its answers tell it. Replicas write times down that others compare with theirs: by their own
// clocks, one that is behind or ahead would end a wait too early. It is safe for many goroutines.
//
// It takes the time from the first answer, and runs by the time that passes in this process from there on. It follows the API server slowly: a hub
// may have several, of which one is wrong, and somebody may set the clock of a machine. No wait under way ends by that.
type Clock struct {
	began time.Time
	// elapsed is the time since then. It does not jump when somebody sets the clock of the machine.
	elapsed func() time.Duration

	mu sync.Mutex
	// leads are how far the API server is ahead of our time: the most in this window, and in the one before. An answer that
	// was long under way tells too little.
	leads [2]time.Duration
	known [2]bool
	since time.Duration // The begin of the window.
	// ahead is how far the clock is ahead of our time, as of followed.
	ahead, followed time.Duration
}

// NewClock returns a clock that has the time of this process until the API server has answered a request by way of [Clock.Follow].
func NewClock() *Clock {
	began := time.Now()
	return &Clock{began: began.Round(0), elapsed: func() time.Duration { return time.Since(began) }}
}

// Follow has the clock take its time from the answers to the requests that are made with the configuration.
func (c *Clock) Follow(cfg *rest.Config) {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &clocked{next, c} })
}

// Now is the time. It has no monotonic part, as it is compared with times of other processes.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.elapsed()
	c.follow(at)
	return c.began.Add(at + c.ahead)
}

// follow brings the clock nearer to that of the API server. The lock must be held.
func (c *Clock) follow(at time.Duration) {
	most := (at - c.followed) / clockPace
	c.ahead += min(max(c.lead()-c.ahead, -most), most)
	c.followed = at
}

// lead is how far the API server is ahead. The lock must be held.
func (c *Clock) lead() time.Duration {
	switch {
	case c.known[0] && c.known[1]:
		return max(c.leads[0], c.leads[1])
	case c.known[0]:
		return c.leads[0]
	default:
		return c.leads[1] // Zero if no answer has come.
	}
}

// note is told of an answer that was made at this time. It says so by whole seconds.
func (c *Clock) note(made time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.elapsed()
	lead := made.Sub(c.began.Add(at))
	c.follow(at) // What the answer says counts from now on.
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

// clocked tells a clock of the answers to requests.
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

// WrappedRoundTripper returns what makes the requests, for those who look for its connections.
func (t *clocked) WrappedRoundTripper() http.RoundTripper { return t.next }
