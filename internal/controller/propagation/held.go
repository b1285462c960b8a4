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
	// mostHeld is how many are known to wait. More do not wait longer than these, and each in its own time.
	mostHeld = 600
	// heldAtOnce is how many are looked at for each answer: what is written of them is answered in turn.
	heldAtOnce = 4
)

// held are copies that wait for their member to answer. The zero value has none. It is safe for many goroutines.
type held struct {
	mu      sync.Mutex
	answers int64 // How many there have been.
	keys    []Key // Those that came first are first; one may be there several times.
}

// answered is told that the member has answered, and returns what is to be looked at as it does.
func (h *held) answered() []Key {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers++
	n := min(heldAtOnce, len(h.keys))
	next := h.keys[:n:n]
	if h.keys = h.keys[n:]; len(h.keys) == 0 {
		h.keys = nil
	}
	return next
}

// pause asks how long to wait for the member, and returns when the copy is to be looked at: the later the more wait, unless it is
// told by [held.answered] before. Zero is to go on.
func (h *held) pause(key Key, ask func() time.Duration) time.Duration {
	h.mu.Lock()
	before := h.answers
	h.mu.Unlock()
	left := ask()
	if left <= 0 {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.answers != before {
		return left // There may be no other answer for a long time.
	}
	if len(h.keys) < mostHeld {
		h.keys = append(h.keys, key)
	}
	return left + rand.N(time.Duration(len(h.keys))*heldSpread) //nolint:gosec // No secret hangs on it.
}
