package propagation

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// heldSpread is how much later each copy that waits for a member which does not answer is looked at than the one before. One
	// of them finds out for all that it answers again.
	heldSpread = 200 * time.Millisecond
	// betweenHurries is the least time between two moments in which all that waits for a member is looked at, as it answers again.
	betweenHurries = 10 * time.Second
)

// held knows whether copies wait for their member to answer. The zero value has none that do. It is safe for many goroutines.
type held struct {
	mu      sync.Mutex
	waiting bool
	hurried time.Duration // When all that waited was looked at last; the first time may be any.
	ever    bool
}

// wait returns when one of n copies is looked at again, which may be any time after left.
func (h *held) wait(left time.Duration, n int) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.waiting = true
	return left + rand.N(time.Duration(max(n, 1))*heldSpread) //nolint:gosec // No secret hangs on it.
}

// answered is told that the member has answered, by any clock. It reports whether all that waits is to be looked at now.
func (h *held) answered(now time.Duration) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.waiting || h.ever && now-h.hurried < betweenHurries {
		return false
	}
	h.waiting, h.hurried, h.ever = false, now, true
	return true
}
