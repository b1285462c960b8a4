package propagation

import (
	"context"
	"sync"
	"time"
)

// A floor is in the labels of a namespace, and caches of types are not of one time: an edit of an object may be seen before a floor that
// was set before it. So what an edit changes on clusters is written only when the hub was asked, after the edit was seen, whether the
// namespace of the object has a floor. One answer does for all edits that were seen before.

// mostUnfloored is of how many namespaces it is kept when they had no floor.
const mostUnfloored = 10_000

// unfloored knows when namespaces had no floor.
type unfloored struct {
	// read reads from the hub whether a namespace has a floor.
	read func(ctx context.Context, namespace string) (bool, error)

	mu sync.Mutex
	// everywhere is when something was seen that may change objects of all namespaces; edited is when an object of a namespace was.
	everywhere time.Time
	edited     map[string]time.Time
	// asked is when it was asked for the last answer that there is no floor.
	asked map[string]time.Time
}

func newUnfloored(read func(ctx context.Context, namespace string) (bool, error)) *unfloored {
	return &unfloored{read: read, edited: map[string]time.Time{}, asked: map[string]time.Time{}}
}

// editedIn is told that an object of a namespace was seen to have changed.
func (u *unfloored) editedIn(namespace string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.edited) >= mostUnfloored {
		clear(u.edited)
		u.everywhere = time.Now()
	}
	u.edited[namespace] = time.Now()
}

// editedEverywhere is told that a policy was seen to have changed.
func (u *unfloored) editedEverywhere() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.everywhere = time.Now()
}

// holds reports whether a namespace had no floor after all that was seen so far.
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

// goBy has the decider go by what namespaces say of floors.
func (d *decider) goBy(namespaces *hubNamespaces) {
	namespaces.floorChanged, d.floor, d.unfloored = d.floorChanged, namespaces.floor, newUnfloored(namespaces.hasFloor)
}

// decideWithFloor decides about an object. Known is false while that is not known, or while an edit may not change the copies of an object
// that obeys no rollout policy, as its namespace has a floor by now: the cache of namespaces is about to say so.
func (d *decider) decideWithFloor(ctx context.Context, key Key, src source, was previous, in *inputs) (p *desiredState, known bool, err error) {
	if p, known = d.decideTogether(key, src, was, in); !known {
		return nil, false, nil
	}
	known, err = d.mayChange(ctx, key, p)
	return p, known, err
}

func (d *decider) mayChange(ctx context.Context, key Key, p *desiredState) (bool, error) {
	if p.gone || p.governed != nil || key.Namespace == "" || !p.changes(d.state.desired(key)) {
		return true, nil
	}
	return d.unfloored.holds(ctx, key.Namespace)
}

// changes reports whether a desired state gives a cluster another content than the one before. The first content that it gives disturbs nothing.
func (p *desiredState) changes(before *desiredState) bool {
	if before == nil {
		return false
	}
	if before.gone {
		return true // Its copies may be there still.
	}
	for name, t := range p.targets {
		if was := before.targets[name]; was != nil && was.variant != nil && t.variant != nil && was.variant.hash != t.variant.hash {
			return true
		}
	}
	return false
}
