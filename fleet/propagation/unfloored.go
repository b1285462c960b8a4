package propagation

import (
	"context"
	"sync"
	"time"
)

// A floor is a label of a namespace that names a rollout policy for its objects. Caches differ in age, so this replica
// may see an edit of an object before a floor that was set earlier. Therefore, after an edit, it asks the hub whether
// the namespace has a floor, and changes copies only then. One answer covers all edits that were seen before the
// request.

// mostUnfloored bounds the namespaces in each map of unfloored.
const mostUnfloored = 10_000

// unfloored knows when namespaces had no floor.
type unfloored struct {
	// read reads from the hub whether a namespace has a floor.
	read func(ctx context.Context, namespace string) (bool, error)

	mu sync.Mutex
	// everywhere is the time of the last change that may affect objects of all namespaces; edited has the time of the
	// last change in each namespace.
	everywhere time.Time
	edited     map[string]time.Time
	// asked has, by namespace, the time of the last request whose answer was that there is no floor.
	asked map[string]time.Time
}

func newUnfloored(read func(ctx context.Context, namespace string) (bool, error)) *unfloored {
	return &unfloored{read: read, edited: map[string]time.Time{}, asked: map[string]time.Time{}}
}

// editedIn records that an object of a namespace has changed.
func (u *unfloored) editedIn(namespace string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.edited) >= mostUnfloored {
		clear(u.edited)
		u.everywhere = time.Now()
	}
	u.edited[namespace] = time.Now()
}

// editedEverywhere records that a policy has changed.
func (u *unfloored) editedEverywhere() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.everywhere = time.Now()
}

// holds reports whether a namespace had no floor after all changes that were seen so far.
func (u *unfloored) holds(ctx context.Context, namespace string) (bool, error) {
	now := time.Now()
	u.mu.Lock()
	asked, known := u.asked[namespace]
	fresh := known && asked.After(u.everywhere) && asked.After(u.edited[namespace])
	u.mu.Unlock()
	if fresh {
		return true, nil
	}
	if floor, err := u.read(ctx, namespace); err != nil || floor {
		return false, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.asked) >= mostUnfloored {
		clear(u.asked)
	}
	u.asked[namespace] = now
	return true, nil
}

// goBy connects the decider to the labels of namespaces.
func (d *decider) goBy(namespaces *hubNamespaces) {
	d.floor, d.unfloored = namespaces.floor, newUnfloored(namespaces.hasFloor)
}

// decideWithFloor decides an object. known is false while the decision is not possible. It is also false after an edit
// of an object without a rollout policy, if its namespace has a floor that the cache does not show yet: then the edit
// must not change copies.
func (d *decider) decideWithFloor(ctx context.Context, key Key, src source, was previous, in *inputs) (p *desiredState, known bool, err error) {
	if p, known = d.decideTogether(key, src, was, in); !known {
		return nil, false, nil
	}
	known, err = d.mayChange(ctx, key, p, len(was.placed) > 0)
	return p, known, err
}

func (d *decider) mayChange(ctx context.Context, key Key, p *desiredState, placed bool) (bool, error) {
	before := d.state.desired(key)
	// After a start, the content of existing copies is not known.
	changes := before == nil && placed || p.changes(before)
	if p.gone || p.governed != nil || key.Namespace == "" || !changes {
		return true, nil
	}
	return d.unfloored.holds(ctx, key.Namespace)
}

// changes reports whether a desired state gives a cluster other content than the one before. A first copy does not
// count.
func (p *desiredState) changes(before *desiredState) bool {
	if before == nil {
		return false
	}
	if before.gone {
		return true // The copies of the former object may still exist.
	}
	for name, t := range p.targets {
		if was := before.targets[name]; was != nil && was.variant != nil && t.variant != nil && was.variant.hash != t.variant.hash {
			return true
		}
	}
	return false
}
