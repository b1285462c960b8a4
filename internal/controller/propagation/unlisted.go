package propagation

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/internal/member"
)

// unlistedRetry is when a copy is looked at again of which it is not known whether it is there, if nobody says before that it is known.
const unlistedRetry = time.Minute

// unlistedAgain is when it is if a list has ended just then.
const unlistedAgain = 20 * time.Millisecond

// unlisted are copies of a member of which it is not known yet whether they are there, as their type is being listed, or could not be. They
// are looked at when that is known: with a thousand members that begin at once, to look every now and then takes more than the lists. The
// zero value has none. It is safe for many goroutines.
type unlisted struct {
	mu    sync.Mutex
	lists int64 // How many have ended or failed.
	// waiting has, of each copy that waits, whether it was looked at since its list failed. It is not looked at again when that does once more.
	waiting map[schema.GroupResource]map[Key]bool
}

// look ends that a copy waits, as it is looked at now, and returns what [unlisted.wait] is to be told.
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

// wait has a copy wait until [unlisted.listed] is told of its type, and returns when it is looked at again at the latest. That is soon if a
// list has ended or failed since [unlisted.look]. Failed is whether the copy is known to be one whose list failed.
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

// listed is told that a list of a type, or of [member.AllTypes], has ended. Known is whether its copies are known now; if not, it has failed.
// It returns what is to be looked at, which does not wait any more.
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
