package propagation

import (
	"sync"
	"time"
)

// unlistedRetry is when a copy is looked at again of which it is not known whether it is there, if nobody says before that it is known.
const unlistedRetry = time.Minute

// unlistedAgain is when it is if a list has ended just then.
const unlistedAgain = 20 * time.Millisecond

// unlisted are copies of a member of which it is not known yet whether they are there, as their type is being listed. They are looked at when
// that has ended: with a thousand members that begin at once, to look every now and then takes more than the lists. The zero value has none. It is
// safe for many goroutines.
type unlisted struct {
	mu      sync.Mutex
	lists   int64 // How many have ended.
	waiting map[Key]struct{}
}

// seen is what [unlisted.wait] is to be told that was asked before it was looked at the copy.
func (u *unlisted) seen() int64 {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.lists
}

// wait has a copy wait until [unlisted.listed] is called, and returns when it is looked at again at the latest. That is soon if a list
// has ended since it was asked how many were seen.
func (u *unlisted) wait(key Key, seen int64) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lists != seen {
		return unlistedAgain
	}
	if u.waiting == nil {
		u.waiting = map[Key]struct{}{}
	}
	u.waiting[key] = struct{}{}
	return unlistedRetry
}

// listed is told that a list has ended, and returns what waits for it.
func (u *unlisted) listed() (next []Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lists++
	for key := range u.waiting {
		next = append(next, key)
	}
	u.waiting = nil
	return next
}
