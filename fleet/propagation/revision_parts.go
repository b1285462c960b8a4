package propagation

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// failedTries has the revisions that could not be stored a moment ago. The zero value is empty.
type failedTries struct {
	mu  sync.Mutex
	all map[Key]failedTry
}

type failedTry struct {
	revision string
	why      error
	until    time.Time
}

// of returns the error of the last attempt to store the revision of an object; nil if it was not tried, or may be
// tried again.
func (r *failedTries) of(key Key, revision string, now time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if is := r.all[key]; is.revision == revision && now.Before(is.until) {
		return is.why
	}
	return nil
}

// note records the result of an attempt to store a revision.
func (r *failedTries) note(key Key, revision string, why error, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if why == nil {
		delete(r.all, key)
		return
	}
	if r.all == nil || len(r.all) >= mostFailedTries {
		r.all = map[Key]failedTry{} // A forgotten revision is only tried again sooner.
	}
	r.all[key] = failedTry{revision, why, now.Add(refusedFor)}
}

// noted has the times when parts were last stored, or found on the hub. The zero value is empty.
type noted struct {
	mu    sync.Mutex
	times map[types.NamespacedName]time.Time
}

func (n *noted) note(at types.NamespacedName, now time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.times == nil {
		n.times = map[types.NamespacedName]time.Time{}
	}
	n.times[at] = now
}

// last returns the time of a part; the zero time if it is older than leastAge.
func (n *noted) last(at types.NamespacedName, now time.Time) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.times, func(_ types.NamespacedName, then time.Time) bool { return now.Sub(then) > leastAge })
	return n.times[at]
}

// parts caches the parts that were read or written, up to maxParts bytes. The zero value is empty.
type parts struct {
	mu    sync.Mutex
	items map[types.NamespacedName][]byte
	size  int
}

const maxParts = 64 << 20

func (p *parts) get(at types.NamespacedName) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.items[at]
}

func (p *parts) add(at types.NamespacedName, text []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.items == nil {
		p.items = map[types.NamespacedName][]byte{}
	}
	p.size += len(text) - len(p.items[at])
	p.items[at] = text
	for other, is := range p.items { // Any other part.
		if p.size <= maxParts {
			break
		}
		if other != at {
			p.size -= len(is)
			delete(p.items, other)
		}
	}
}

func (p *parts) drop(at types.NamespacedName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.size -= len(p.items[at])
	delete(p.items, at)
}
