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
// an old state, must not empty the fleet.
type guard struct {
	mu      sync.Mutex
	pending map[Key]bool      // To go, and not allowed yet.
	allowed map[Key]bool      // May go.
	gone    map[time.Time]int // How many went, by second.
	changed time.Time         // When something was last added to pending.
	token   string            // Of what is held; empty if nothing is.
	total   int               // Copies of the member when it was held.
	now     func() time.Time
}

func newGuard(now func() time.Time) *guard {
	return &guard{pending: map[Key]bool{}, allowed: map[Key]bool{}, gone: map[time.Time]int{}, now: now}
}

// answer is what the guard says of a removal.
type answer int

const (
	wait answer = iota // Ask again after a while.
	pass               // It may go now.
	held               // It may not go until that is approved.
)

// ask returns what to do with a copy that is to go. Total is the number of copies
// that the member holds, approved the token that somebody approved.
func (g *guard) ask(key Key, total int, approved string) (answer, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.allowed[key] {
		return pass, 0
	}
	now := g.now()
	if !g.pending[key] {
		g.pending[key] = true
		g.changed = now
	}
	if left := guardSettles - now.Sub(g.changed); left > 0 && g.token == "" {
		return wait, left
	}
	recent := g.recent(now)
	if n := len(g.pending) + len(g.allowed) + recent; n > guardCopies && float64(n) > guardShare*float64(total+recent) {
		g.token, g.total = g.fingerprint(), total
		if approved != g.token {
			return held, 0
		}
	}
	maps.Copy(g.allowed, g.pending)
	clear(g.pending)
	g.token = ""
	return pass, 0
}

// went is told that a copy is gone.
func (g *guard) went(key Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.allowed[key] {
		delete(g.allowed, key)
		g.gone[g.now().Truncate(time.Second)]++
	}
	g.dropPending(key)
}

// stays is told that a copy is not to go any more.
func (g *guard) stays(key Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.allowed, key)
	g.dropPending(key)
}

func (g *guard) dropPending(key Key) {
	if !g.pending[key] {
		return
	}
	delete(g.pending, key)
	if g.token != "" {
		g.token = g.fingerprint()
	}
	if len(g.pending) == 0 {
		g.token = ""
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
	return fmt.Sprintf(format, len(g.pending), g.total, cluster, g.token), slices.Collect(maps.Keys(g.pending))
}

// keys returns what is to go and may not yet.
func (g *guard) keys() []Key {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Keys(g.pending))
}

// fingerprint names what is pending.
func (g *guard) fingerprint() string {
	digest := sha256.New()
	for _, key := range slices.SortedFunc(maps.Keys(g.pending), compareKeys) {
		fmt.Fprintf(digest, "%s/%s/%s\n", key.GroupResource, key.Namespace, key.Name)
	}
	return hex.EncodeToString(digest.Sum(nil))[:12]
}
