package propagation

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/member"
)

// unlistedRetry is the delay before a copy whose existence is unknown is checked again, unless a list of its type ends
// first.
const unlistedRetry = time.Minute

// unlistedAgain is the delay if a list has ended during the check.
const unlistedAgain = 20 * time.Millisecond

// unlisted has the copies of a member whose existence is unknown, because their type is being listed or could not be
// listed. They are checked when the list ends: with a thousand members that start together, regular checks cost more
// than the lists. The zero value is empty. It is safe for concurrent use.
type unlisted struct {
	mu    sync.Mutex
	lists int64 // The number of lists that have ended or failed.
	// waiting has the waiting copies by type. The value of a copy is whether it was checked after its list failed. Such
	// a copy is not checked again if the list fails once more.
	waiting map[schema.GroupResource]map[Key]bool
}

// look ends the wait of a copy at the start of a check. It returns the argument for [unlisted.wait].
func (u *unlisted) look(key Key) (lists int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if of := u.waiting[key.GroupResource]; of != nil {
		delete(of, key)
		if len(of) == 0 {
			delete(u.waiting, key.GroupResource)
		}
	}
	return u.lists
}

// wait makes a copy wait for the end of the list of its type, see [unlisted.listed]. It returns the maximum delay
// before the next check. The delay is short if a list has ended or failed since [unlisted.look]. The argument failed is
// whether the list of the type is known to have failed.
func (u *unlisted) wait(key Key, lists int64, failed bool) time.Duration {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.lists != lists {
		return unlistedAgain
	}
	if u.waiting == nil {
		u.waiting = map[schema.GroupResource]map[Key]bool{}
	}
	if u.waiting[key.GroupResource] == nil {
		u.waiting[key.GroupResource] = map[Key]bool{}
	}
	u.waiting[key.GroupResource][key] = failed
	return unlistedRetry
}

// listed records the end of the list of a type, or of [member.AllTypes]. known is whether the copies of the type are
// known now; if not, the list has failed. It returns the copies to check, which no longer wait.
func (u *unlisted) listed(of schema.GroupResource, known bool) (next []Key) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lists++
	for resource, keys := range u.waiting {
		if of != member.AllTypes && of != resource {
			continue
		}
		for key, failed := range keys {
			if known || !failed {
				next = append(next, key)
				delete(keys, key)
			}
		}
		if len(keys) == 0 {
			delete(u.waiting, resource)
		}
	}
	return next
}
