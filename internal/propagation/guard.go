package propagation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"
)

// The guard lets at most this many copies, or this share of a member's copies, go
// in one pass unasked.
const (
	guardCopies = 10
	guardShare  = 0.3
)

const (
	// guardSettles is how long the guard waits for what else is to go.
	guardSettles = time.Second
	// guardWindow is how long what has gone counts for the share.
	guardWindow = time.Minute
)

// guard stands between a member and the removal of its copies. It collects what is
// to go, and when that is more than may go unasked, none of it goes until somebody
// has approved exactly this: a hub that was emptied by mistake, or was set back to
// an old state, must not empty the fleet. What is then to go from other namespaces
// is looked at by itself, so that one tenant does not stop the others.
type guard struct {
	mu      sync.Mutex
	pending map[Key]bool      // To go; it is not known yet what else is.
	changed time.Time         // When something was last added to pending.
	held    map[Key]bool      // To go, and more than may go unasked.
	token   string            // Names what is held; empty if nothing is.
	total   int               // Copies of the member when it was held.
	allowed map[Key]bool      // May go.
	gone    map[time.Time]int // How many went, by second.
	now     func() time.Time
}

func newGuard(now func() time.Time) *guard {
	return &guard{pending: map[Key]bool{}, held: map[Key]bool{}, allowed: map[Key]bool{}, gone: map[time.Time]int{}, now: now}
}

// answer is what the guard says of a removal.
type answer int

const (
	notYet answer = iota // Ask again after a while.
	pass                 // It may go now.
	hold                 // It may not go until that is approved.
)

// ask returns what to do with a copy that is to go. Total is the number of copies
// that the member holds, approved the token that somebody approved.
func (g *guard) ask(key Key, total int, approved string) (answer, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	switch {
	case g.allowed[key]:
		return pass, 0
	case g.held[key]:
		if approved != g.token && g.many(len(g.held), total, now) {
			return hold, 0
		}
		maps.Copy(g.allowed, g.held)
		clear(g.held)
		g.token = ""
		return pass, 0
	case g.holds(key.Namespace):
		g.hold(total, key)
		return hold, 0
	}
	if !g.pending[key] {
		g.pending[key] = true
		g.changed = now
	}
	if left := guardSettles - now.Sub(g.changed); left > 0 {
		return notYet, left
	}
	if g.many(len(g.pending), total, now) {
		g.hold(total, slices.Collect(maps.Keys(g.pending))...)
		clear(g.pending)
		return hold, 0
	}
	maps.Copy(g.allowed, g.pending)
	clear(g.pending)
	return pass, 0
}

// many reports whether n more copies are more than may go unasked.
func (g *guard) many(n, total int, now time.Time) bool {
	recent := g.recent(now)
	n += len(g.allowed) + recent
	return n > guardCopies && float64(n) > guardShare*float64(total+recent)
}

// holds reports whether something in the namespace is held.
func (g *guard) holds(namespace string) bool {
	for key := range g.held {
		if key.Namespace == namespace {
			return true
		}
	}
	return false
}

func (g *guard) hold(total int, keys ...Key) {
	for _, key := range keys {
		g.held[key] = true
	}
	g.total, g.token = total, g.fingerprint()
}

// went is told that a copy is gone.
func (g *guard) went(key Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.allowed[key] {
		g.gone[g.now().Truncate(time.Second)]++
	}
	g.drop(key)
}

// stays is told that a copy is not to go any more.
func (g *guard) stays(key Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(key)
}

func (g *guard) drop(key Key) {
	delete(g.allowed, key)
	delete(g.pending, key)
	if !g.held[key] {
		return
	}
	delete(g.held, key)
	g.token = ""
	if len(g.held) > 0 {
		g.token = g.fingerprint()
	}
}

// recent is how many copies went within the window.
func (g *guard) recent(now time.Time) int {
	n := 0
	for at, count := range g.gone {
		if now.Sub(at) > guardWindow {
			delete(g.gone, at)
			continue
		}
		n += count
	}
	return n
}

// waiting returns the keys that are held, and a message that says what to do;
// empty when nothing is.
func (g *guard) waiting(cluster string) (message string, keys []Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.token == "" {
		return "", nil
	}
	const format = "%d of %d copies are to go at once, which nobody has asked for yet: " +
		"`refract approve %s` shows them and lets them go, and what comes back to the hub stays; token=%s"
	return fmt.Sprintf(format, len(g.held), g.total, cluster, g.token), slices.Collect(maps.Keys(g.held))
}

// keys returns what is held.
func (g *guard) keys() []Key {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.held))
}

// fingerprint names what is held.
func (g *guard) fingerprint() string {
	digest := sha256.New()
	for _, key := range slices.SortedFunc(maps.Keys(g.held), compareKeys) {
		fmt.Fprintf(digest, "%s/%s/%s\n", key.GroupResource, key.Namespace, key.Name)
	}
	return hex.EncodeToString(digest.Sum(nil))[:12]
}
