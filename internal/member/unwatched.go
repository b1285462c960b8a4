package member

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// What could not be known is looked at again after these times: API groups that
// do not say which types they have, or have a type that was not served any more; and
// types that the credentials may not list. The same holds for types that the member serves in other versions
// than the hub prefers.
const (
	doubtfulAfter = 30 * time.Second
	refusedAfter  = 10 * time.Minute
	olderAfter    = 2 * time.Minute
)

// unwatched is what is known of copies of types that are not watched: whether there may be
// any. It is safe for many goroutines.
type unwatched struct {
	// await is called when somebody waits for what the next sweep finds, once for each sweep.
	await func()

	mu sync.Mutex
	// doubtful are groups that could not be discovered: there may be copies.
	doubtful map[string]bool
	// refused are types that may not be listed, and why. There may be copies, but
	// none that was wanted since.
	refused map[schema.GroupResource]error
	// without are types of which there were no copies. If there ever are,
	// it is this process that writes them, and watches.
	without map[schema.GroupResource]bool
	// strays is how many of the types that are watched were found although the hub does not
	// have them.
	strays int
	// asked counts how often all types were to be looked at; swept is up to which of
	// these that is done, sweptAt when it was, and err why it failed the last time.
	asked, swept int
	sweptAt      time.Time
	err          error
	awaited      bool // Whether somebody was told to wait for it.
}

// doubt is what is known of a type that is not watched.
type doubt struct {
	mayHave bool  // Whether there may be copies.
	unswept bool  // Whether it is so, among others, because a sweep is still to come.
	err     error // Why it is not known better; nil if nothing failed.
}

// of returns what is known of a type.
func (u *unwatched) of(resource schema.GroupResource) doubt {
	u.mu.Lock()
	defer u.mu.Unlock()
	d := doubt{unswept: u.unswept() && !u.without[resource], err: u.refused[resource]}
	switch {
	case d.err != nil:
	case u.doubtful[resource.Group]:
		d.err = errUndiscovered
	case d.unswept:
		d.err = u.err
	}
	d.mayHave = d.unswept || u.refused[resource] != nil || u.doubtful[resource.Group]
	return d
}

// unswept reports whether types that are not watched have not all been looked at
// since the member became ready. The lock must be held.
func (u *unwatched) unswept() bool { return u.swept < u.asked }

// complete reports whether all types were looked at for copies, and each API group said
// which types it has.
func (u *unwatched) complete() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.doubtful) == 0 && u.asked > 0 && !u.unswept()
}

// looked reports whether all types were looked at for copies, as far as they could be.
func (u *unwatched) looked() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.asked > 0 && (!u.unswept() || u.err != nil)
}

// wait has the member looked through before others: somebody waits for it.
func (u *unwatched) wait() {
	u.mu.Lock()
	was := u.awaited
	u.awaited = true
	u.mu.Unlock()
	if !was {
		u.await()
	}
}

// doubts reports whether there may be copies of types that are not known, and it
// is time to look. Resting is whether a type is not watched as the member did not serve it, and
// older whether one is served in other versions than the hub prefers.
func (u *unwatched) doubts(resting, older bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	ago := time.Since(u.sweptAt)
	return u.unswept() || ((len(u.doubtful) > 0 || resting) && ago > doubtfulAfter) || (len(u.refused) > 0 && ago > jitter(refusedAfter)) ||
		(older && ago > jitter(olderAfter))
}

// askSweep records that nothing is known of types that are not watched: the member
// is new, or has become ready again and may be another than it was.
func (u *unwatched) askSweep() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked++
	u.awaited = false
	clear(u.without)
}

// sweepsAsked is what a sweep that begins now answers to.
func (u *unwatched) sweepsAsked() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.asked
}

// sweptUpTo records that a sweep has ended.
func (u *unwatched) sweptUpTo(asked int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err = err
	if err == nil {
		u.swept, u.sweptAt = asked, time.Now()
	}
}

// setDoubtful records which API groups did not say which types they have.
func (u *unwatched) setDoubtful(groups map[string]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.doubtful = groups
}

// admit counts a type that the hub does not have, unless there are too many.
func (u *unwatched) admit() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.strays >= mostStrays {
		return false
	}
	u.strays++
	return true
}

// refuse records that a type may not be listed.
func (u *unwatched) refuse(resource schema.GroupResource, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refused[resource] = err
}

// accept records that a type is listed: it is watched.
func (u *unwatched) accept(resource schema.GroupResource) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.refused, resource)
}

// hasNone records that a sweep found no copies of a type, unless another was asked for since: the member may be another. It reports whether
// it is known now.
func (u *unwatched) hasNone(resource schema.GroupResource, asked int) (known bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.refused, resource)
	if u.asked != asked {
		return false
	}
	u.without[resource] = true
	return true
}

// knowsNone reports whether a type was found to have no copies.
func (u *unwatched) knowsNone(resource schema.GroupResource) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.without[resource]
}
