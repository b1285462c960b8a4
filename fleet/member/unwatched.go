package member

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Times after which types are checked again. doubtfulAfter is for API groups that could not be discovered, and for
// types that are no longer served. refusedAfter is for types that the credentials may not list. olderAfter is for types
// that the member does not serve in the version that the hub prefers.
const (
	doubtfulAfter = 30 * time.Second
	refusedAfter  = 10 * time.Minute
	olderAfter    = 2 * time.Minute
)

// unwatched records whether types without a watch may have copies. It is safe for concurrent use.
type unwatched struct {
	// await is called when a caller waits for the result of the next sweep, once for each sweep.
	await func()

	mu sync.Mutex
	// doubtful are API groups that could not be discovered. Their types may have copies.
	doubtful map[string]bool
	// refused are types that may not be listed. They may have copies. If a copy of such a type is needed or missing,
	// the type is watched and is no longer here.
	refused map[schema.GroupResource]refusal
	// without are the types for which the last search found no copies. Later, only this process can create a copy of
	// such a type, and it watches the type then.
	without map[schema.GroupResource]bool
	// strays is the number of watched types that the hub does not have.
	strays int
	// asked counts the requests to search all types. Swept is the number of the last completed request, sweptAt is the
	// time of its completion, and err is the error of the last search.
	asked, swept int
	sweptAt      time.Time
	err          error
	awaited      bool // Whether await was called for the next search.
}

// refusal is the error of a type that may not be listed, with the version in the request.
type refusal struct {
	gvr schema.GroupVersionResource
	err error
}

// doubt is the state of knowledge about the copies of a type without a watch.
type doubt struct {
	mayHave bool  // Whether the type may have copies.
	unswept bool  // Whether it may have copies because a search is pending.
	err     error // The error that prevented an answer; nil if nothing failed.
}

// of returns the state of knowledge about a type.
func (u *unwatched) of(resource schema.GroupResource) doubt {
	u.mu.Lock()
	defer u.mu.Unlock()
	d := doubt{unswept: u.unswept() && !u.without[resource], err: u.refused[resource].err}
	switch {
	case d.err != nil:
	case u.doubtful[resource.Group]:
		d.err = errUndiscovered
	case d.unswept:
		d.err = u.err
	}
	d.mayHave = d.unswept || u.refused[resource].err != nil || u.doubtful[resource.Group]
	return d
}

// unswept reports whether a search of all types without a watch is pending since the member became ready. The lock must
// be held.
func (u *unwatched) unswept() bool { return u.swept < u.asked }

// complete reports whether all types were searched for copies, and all API groups were discovered.
func (u *unwatched) complete() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.doubtful) == 0 && u.asked > 0 && !u.unswept()
}

// looked reports whether the last requested search of all types for copies has ended, even with an error.
func (u *unwatched) looked() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.asked > 0 && (!u.unswept() || u.err != nil)
}

// wait gives the search of the member priority, because a caller waits for the result.
func (u *unwatched) wait() {
	u.mu.Lock()
	was := u.awaited
	u.awaited = true
	u.mu.Unlock()
	if !was {
		u.await()
	}
}

// doubts reports whether the next search for copies is due, because types without a known result may have copies.
// Resting says that the watch of a type has ended because the member did not serve the type. Older says that a type is
// not served in the version that the hub prefers.
func (u *unwatched) doubts(resting, older bool) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	ago := time.Since(u.sweptAt)
	return u.unswept() || ((len(u.doubtful) > 0 || resting) && ago > doubtfulAfter) || (len(u.refused) > 0 && ago > about("refused", refusedAfter)) ||
		(older && ago > about("older", olderAfter))
}

// askSweep requests a search, because the member is new, or has become ready again and may be another cluster. So
// nothing is known about types without a watch.
func (u *unwatched) askSweep() {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.asked++
	u.awaited = false
	clear(u.without)
}

// sweepsAsked returns the number of requests for a search so far. A search that begins now completes all of them.
func (u *unwatched) sweepsAsked() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.asked
}

// sweptUpTo records the end of a search.
func (u *unwatched) sweptUpTo(asked int, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.err = err
	if err == nil {
		u.swept, u.sweptAt = asked, time.Now()
	}
}

// setDoubtful records the API groups that could not be discovered.
func (u *unwatched) setDoubtful(groups map[string]bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.doubtful = groups
}

// admit counts another watched type that the hub does not have. It returns false if there are too many.
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
func (u *unwatched) refuse(gvr schema.GroupVersionResource, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.refused[gvr.GroupResource()] = refusal{gvr, err}
}

// refusedIn returns the version of a type that may not be listed; ok is false for other types.
func (u *unwatched) refusedIn(resource schema.GroupResource) (gvr schema.GroupVersionResource, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	r, ok := u.refused[resource]
	return r.gvr, ok
}

// accept records that a type is watched from now on.
func (u *unwatched) accept(resource schema.GroupResource) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.refused, resource)
}

// hasNone records that a search found no copies of a type, and reports whether the result counts. If another search was
// requested meanwhile, it does not count, because the member may now be another cluster.
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
