package fair

import (
	"sync"
	"time"
)

// forgiven is the divisor of the decay: a debt decreases by a quarter of the time that passes, so that a namespace may
// use a quarter of a processor for an unlimited time.
const forgiven = 4

// mostCharged bounds the number of remembered namespaces, because a client of a webhook may name any number of them.
const mostCharged = 10_000

// Charges are the recent durations of work, by the namespace of the work. A namespace with too much debt comes after
// others, or gets only necessary work. The zero value has no charges, and permits no debt. It is safe for concurrent
// use.
type Charges struct {
	Most time.Duration // The debt that a namespace may have. A debt decreases by a quarter of each second that passes.

	mu   sync.Mutex
	owed map[string]charge
}

type charge struct {
	time time.Duration
	at   time.Time // When the debt was that long.
}

// Add charges a namespace for work that ended now. Work without a namespace is free.
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
		clear(c.owed) // Dropping all debts is better than charging no new namespace.
	}
	c.owed[namespace] = charge{time: c.left(namespace, now) + took, at: now}
}

// Over reports whether a namespace owes more than it may.
func (c *Charges) Over(namespace string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left(namespace, now) > c.Most
}

// left returns the remaining debt of a namespace, and drops a namespace without debt.
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
