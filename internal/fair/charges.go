package fair

import (
	"sync"
	"time"
)

// forgiven determines how fast a debt decreases: by a quarter of the time that passes. So a namespace may permanently
// use a quarter of a processor.
const forgiven = 4

// mostCharged is the maximum number of remembered namespaces. A limit is necessary, because a client of a webhook may
// name any number of namespaces.
const mostCharged = 10_000

// Charges counts the time that was recently worked for each namespace, as a debt. A namespace with too much debt should
// wait for others, or get only necessary work. With the zero value, every debt is too much. It is safe for concurrent
// use.
type Charges struct {
	Most time.Duration // The largest debt that a namespace may have.

	mu   sync.Mutex
	owed map[string]charge
}

type charge struct {
	time time.Duration
	at   time.Time // When the debt had this size.
}

// Add increases the debt of a namespace by the time of work that has just ended. If namespace is empty, Add does
// nothing.
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
		clear(c.owed) // Without this, the debt of a new namespace could not be counted.
	}
	c.owed[namespace] = charge{time: c.left(namespace, now) + took, at: now}
}

// Over reports whether the debt of a namespace is too large.
func (c *Charges) Over(namespace string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left(namespace, now) > c.Most
}

// left returns the present debt of a namespace. It drops a namespace that has none.
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
