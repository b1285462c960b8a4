package propagation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// DefaultGuard is the share of a member's copies that may go unasked, in percent.
const DefaultGuard = 30

// A member may lose at most guardCopies in one pass unasked, or the share. So that
// many small steps are as one big one, and what comes and goes all the time is none,
// what it lost of the most that it held within the window must not be more than
// the share either, once that is guardPasses.
const (
	guardCopies = 10
	guardPasses = 30
)

const (
	// guardSettles is how long the guard waits for what else is to go.
	guardSettles = time.Second
	// guardWindow is how long it counts how many copies a member held.
	guardWindow = time.Minute
)

// guard stands between a member and the removal of its copies. It collects what is
// to go, and when that is more than may go unasked, none of it goes until somebody
// has approved exactly this: a hub that was emptied by mistake, or was set back to
// an old state, must not empty the fleet. What is then to go from other namespaces
// is looked at by itself, so that one tenant does not stop the others.
type guard struct {
	share    float64
	mu       sync.Mutex
	pending  map[Key]removal // To go; it is not known yet what else is.
	since    time.Time       // When the first of them was added,
	changed  time.Time       // and when the last.
	held     map[Key]removal // To go, and more than may go unasked.
	token    string          // Names what is held; empty if nothing is.
	issued   []issue         // What tokens were given for, the newest last.
	total    int             // Copies of the member when it was held.
	allowed  map[Key]bool    // May go unasked.
	approved map[Key]bool    // May go, as somebody said so.
	peak     int             // The most copies that the member held,
	peaked   time.Time       // and when.
	now      func() time.Time
}

// removal is a copy that is to go.
type removal struct {
	Key

	uid types.UID
	// grave is whether more goes with it than itself.
	grave bool
}

// issue is what a token stands for.
type issue struct {
	token string
	held  map[Key]removal
}

// issues is for how many sets of copies a token is remembered: while somebody reads
// what is to go and approves it, more may be added.
const issues = 32

// guardCollects is how long the guard waits at most for what else is to go.
const guardCollects = 5 * guardSettles

func newGuard(percent int, now func() time.Time) *guard {
	return &guard{
		share:   float64(percent) / 100,
		pending: map[Key]removal{}, held: map[Key]removal{}, allowed: map[Key]bool{}, approved: map[Key]bool{},
		now: now,
	}
}

// answer is what the guard says of a removal.
type answer int

const (
	notYet answer = iota // Ask again after a while.
	pass                 // It may go now.
	hold                 // It may not go until that is approved.
)

// ask returns what to do with a copy that is to go. Total returns the number of
// copies that the member holds; approved is the token that somebody approved.
func (g *guard) ask(r removal, total func() int, approved string) (answer, time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.approve(approved)
	now, holds := g.now(), total()-len(g.approved)
	if holds >= g.peak || now.Sub(g.peaked) > guardWindow {
		g.peak, g.peaked = holds, now
	}
	_, isHeld := g.held[r.Key]
	switch {
	case g.allowed[r.Key], g.approved[r.Key]:
		return pass, 0
	case r.grave:
		delete(g.pending, r.Key)
		g.hold(holds, map[Key]removal{r.Key: r}) // Alone: it says nothing about others.
		return hold, 0
	case isHeld:
		g.held[r.Key] = r // It may be less grave by now.
		light := maps.Clone(g.held)
		maps.DeleteFunc(light, func(_ Key, r removal) bool { return r.grave })
		if g.many(light, holds) {
			return hold, 0
		}
		maps.DeleteFunc(g.held, func(_ Key, r removal) bool { return !r.grave })
		g.name()
		g.allow(light)
		return pass, 0
	case g.holds(r.Namespace):
		g.hold(holds, map[Key]removal{r.Key: r})
		return hold, 0
	}
	if _, there := g.pending[r.Key]; !there {
		if len(g.pending) == 0 {
			g.since = now
		}
		g.pending[r.Key] = r
		g.changed = now
	}
	until := g.changed.Add(guardSettles)
	if most := g.since.Add(guardCollects); most.Before(until) {
		until = most // A steady stream must not hold itself up.
	}
	if left := until.Sub(now); left > 0 {
		return notYet, left
	}
	if g.many(g.pending, holds) {
		g.hold(holds, g.pending)
		clear(g.pending)
		return hold, 0
	}
	g.allow(g.pending)
	return pass, 0
}

// approve lets go what the token was given for and is still held.
func (g *guard) approve(token string) {
	if token != "" && token == g.token {
		g.issue()
	}
	at := slices.IndexFunc(g.issued, func(i issue) bool { return i.token == token })
	if token == "" || at < 0 {
		return
	}
	for key, r := range g.issued[at].held {
		if is, still := g.held[key]; still && is.uid == r.uid {
			delete(g.held, key)
			g.approved[key] = true
			g.peak-- // It is no loss.
		}
	}
	g.issued = slices.Delete(g.issued, 0, at+1)
	g.name()
}

func (g *guard) allow(removals map[Key]removal) {
	for key := range removals {
		g.allowed[key] = true
	}
	clear(removals)
}

// many reports whether these are more than may go unasked from a member that holds so
// many copies.
func (g *guard) many(removals map[Key]removal, holds int) bool {
	n := len(removals) + len(g.allowed)
	return g.over(n, guardCopies, holds) || g.over(g.peak-holds+n, guardPasses, g.peak)
}

func (g *guard) over(n, least, of int) bool {
	return g.share < 1 && n > least && float64(n) > g.share*float64(of)
}

// holds reports whether something in the namespace is held because it is much.
func (g *guard) holds(namespace string) bool {
	for key, r := range g.held {
		if key.Namespace == namespace && !r.grave {
			return true
		}
	}
	return false
}

func (g *guard) hold(total int, removals map[Key]removal) {
	maps.Copy(g.held, removals)
	g.total = total
	g.name()
}

// name gives what is held a token.
func (g *guard) name() {
	g.token = ""
	if len(g.held) == 0 {
		return
	}
	g.token = g.fingerprint()
}

// issue remembers what the token stands for, as somebody may have read it.
func (g *guard) issue() {
	if g.token == "" || slices.ContainsFunc(g.issued, func(i issue) bool { return i.token == g.token }) {
		return
	}
	g.issued = append(g.issued, issue{g.token, maps.Clone(g.held)})
	if len(g.issued) > issues {
		g.issued = slices.Delete(g.issued, 0, 1)
	}
}

// done is told that a copy is gone, or is not to go any more, or could not go.
func (g *guard) done(key Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.drop(key)
}

func (g *guard) drop(key Key) {
	delete(g.allowed, key)
	delete(g.approved, key)
	delete(g.pending, key)
	if _, is := g.held[key]; is {
		delete(g.held, key)
		g.name()
	}
}

// waiting says what is held and what to do; empty when nothing is.
func (g *guard) waiting(cluster string) string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.message(cluster)
}

func (g *guard) message(cluster string) string {
	if g.token == "" {
		return ""
	}
	const format = "%d of %d copies are to go at once, which nobody has asked for yet: " +
		"`refract approve %s` shows them and lets them go, and what comes back to the hub stays; token=%s"
	return fmt.Sprintf(format, len(g.held), g.total, cluster, g.token)
}

// show is waiting for where people read it: what the token stands for now is
// remembered.
func (g *guard) show(cluster string) (message string, keys []Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.issue()
	return g.message(cluster), slices.Collect(maps.Keys(g.held))
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
		fmt.Fprintf(digest, "%s/%s/%s/%s\n", key.GroupResource, key.Namespace, key.Name, g.held[key].uid)
	}
	return hex.EncodeToString(digest.Sum(nil))[:12]
}
