package propagation

import (
	"sync"
	"time"
)

// What decisions on the objects of a namespace may take, before they are made after all
// others'. It only orders what waits: a decision that takes long is made.
const (
	mostOwed = time.Second
	// forgiven is of how much time that passes as much is forgiven: a namespace may take a
	// quarter of a processor for as long as it likes.
	forgiven = 4
)

// charges are how long decisions have taken lately, by namespace. The zero value has none.
type charges struct {
	mu   sync.Mutex
	owed map[string]charge
}

type charge struct {
	time time.Duration
	at   time.Time // When it was that.
}

// add charges a namespace for a decision. What has none is nobody's, and free.
func (c *charges) add(namespace string, took time.Duration, now time.Time) {
	if namespace == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.owed == nil {
		c.owed = map[string]charge{}
	}
	c.owed[namespace] = charge{time: c.left(namespace, now) + took, at: now}
}

// over reports whether a namespace has to wait for the others.
func (c *charges) over(namespace string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.left(namespace, now) > mostOwed
}

// left returns what is not forgiven yet, and forgets who owes nothing.
func (c *charges) left(namespace string, now time.Time) time.Duration {
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
