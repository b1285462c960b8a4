package propagation

import (
	"math/rand/v2"
	"sync"
	"time"
)

const (
	// heldSpread is how much later each copy that waits for a member which does not answer is looked at than the one before, and
	// mostHeld how many wait when more do not wait longer. One of them finds out for all that it answers again.
	heldSpread = 200 * time.Millisecond
	mostHeld   = 600
	// heldAtOnce is how many are looked at for each answer: what is written of them is answered in turn.
	heldAtOnce = 4
)

// held are copies that wait for their member to answer. The zero value has none. It is safe for many goroutines.
type held struct {
	mu      sync.Mutex
	answers int64 // How many there have been.
	waiting map[Key]struct{}
	line    []Key // In which they came. It may have some that do not wait any more.
}

// answered is told that the member has answered, and returns what is to be looked at as it does.
func (h *held) answered() (next []Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answers++
	for len(h.line) > 0 && len(next) < heldAtOnce {
		if _, waits := h.waiting[h.line[0]]; waits {
			next = append(next, h.line[0])
			delete(h.waiting, h.line[0])
		}
		h.line = h.line[1:]
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
		h.forget(key)
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.answers != before {
		return left // There may be no other answer for a long time.
	}
	if _, waits := h.waiting[key]; !waits {
		if h.waiting == nil {
			h.waiting = map[Key]struct{}{}
		}
		h.waiting[key] = struct{}{}
		h.line = append(h.line, key)
	}
	return left + rand.N(time.Duration(min(len(h.waiting), mostHeld))*heldSpread) //nolint:gosec // No secret hangs on it.
}

// forget is told that a copy does not wait any more.
func (h *held) forget(key Key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, key)
	if len(h.line) <= 2*len(h.waiting)+heldAtOnce {
		return
	}
	var line []Key
	seen := make(map[Key]struct{}, len(h.waiting))
	for _, key := range h.line {
		_, waits := h.waiting[key]
		if _, twice := seen[key]; waits && !twice {
			seen[key] = struct{}{}
			line = append(line, key)
		}
	}
	h.line = line
}
