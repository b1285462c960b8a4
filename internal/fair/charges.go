package fair

import (
	"sync"
	"time"
)

// forgiven is of how much time that passes as much is forgiven: a namespace may take a
// quarter of a processor for as long as it likes.
const forgiven = 4

// mostCharged is how many namespaces are remembered: whoever reaches a webhook may name as
// many as they like.
const mostCharged = 10_000

// Charges are how long work has taken lately, by the namespace that it was for. Who owes too
// much lets others go first, or gets what has to be and nothing else. The zero value has no
// charges, and lets nobody owe anything. They may be used by many goroutines.
type Charges struct {
	Most time.Duration // That a namespace may owe; of every second that passes a quarter is forgiven.

	mu   sync.Mutex
	owed map[string]charge
}

type charge struct {
	time time.Duration
	at   time.Time // When it was that.
}

// Add charges a namespace for work that ended now. What has none is nobody's, and free.
func (c *Charges) Add(namespace string, took time.Duration, now time.Time) {
	if namespace == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owed == nil {
		c.owed = map[string]charge{}
	}
	if len(c.owed) >= mostCharged {
		for other := range c.owed {
			c.left(other, now)
		}
	}
	if len(c.owed) >= mostCharged {
		clear(c.owed) // All are forgiven, rather than some who asked later.
	}
	c.owed[namespace] = charge{time: c.left(namespace, now) + took, at: now}
}

// Over reports whether a namespace owes more than it may.
func (c *Charges) Over(namespace string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left(namespace, now) > c.Most
}

// left returns what is not forgiven yet, and forgets who owes nothing.
func (c *Charges) left(namespace string, now time.Time) time.Duration {
	of, ok := c.owed[namespace]
	if !ok {
		return 0
	}
	left := of.time - now.Sub(of.at)/forgiven
	if left <= 0 {
		delete(c.owed, namespace)
		return 0
	}
	return left
}
