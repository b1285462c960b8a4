package propagation

import (
	"sync"
	"time"

	"refract.dev/internal/jitter"
)

const (
	// heldSpread is the additional delay for each copy that waits for the same unanswering member. mostHeld is the
	// maximum number of copies that add to the delay. The retry of one copy shows for all that the member answers
	// again.
	heldSpread = 200 * time.Millisecond
	mostHeld   = 600
	// heldAtOnce is the number of copies that each answer releases. The answers to these copies release more.
	heldAtOnce = 4
)

// held are the copies that wait for their member to answer. The zero value is empty. It is safe for concurrent use.
type held struct {
	mu      sync.Mutex
	answers int64 // The number of answers so far.
	waiting map[Key]struct{}
	line    []Key // In the order of arrival. It may contain copies that no longer wait.
}

// answered notes an answer of the member, and returns the copies that are released.
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

// pause calls ask for the present delay of the member, and returns the delay of the copy, which grows with the number
// of waiting copies. [held.answered] may release the copy earlier. Zero means that the copy need not wait.
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
		return left // The next answer may take a long time.
	}
	if _, waits := h.waiting[key]; !waits {
		if h.waiting == nil {
			h.waiting = map[Key]struct{}{}
		}
		h.waiting[key] = struct{}{}
		h.line = append(h.line, key)
	}
	return jitter.Between(recordName(key), left, left+time.Duration(min(len(h.waiting), mostHeld))*heldSpread)
}

// forget notes that a copy no longer waits.
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
