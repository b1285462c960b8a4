package propagation

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/internal/member"
)

const (
	// failTogether is how many copies of a type in a namespace must fail before the others wait, and failEverywhere in how many
	// namespaces before those of all namespaces do.
	failTogether   = 3
	failEverywhere = 4
	// mostFailing is how many namespaces and types are known in which copies fail.
	mostFailing = 1000
	// takenFor is for how long a type of which a copy was taken is not one that fails everywhere.
	takenFor = 30 * time.Second
	// againPerSecond is how many copies are tried again in a second that have failed by themselves, as long as none waits for longer
	// than mostAgain for that. If it would, it waits for one to two times as long.
	againPerSecond = 20
	mostAgain      = 2 * time.Minute
)

// failing are the copies that a member answers about with errors of its own, as for a type that is served by an API server which is down.
// If one copy of a type was taken, the others have failures of their own. It is safe for many goroutines.
type failing struct {
	now   func() time.Time
	tries *rate.Limiter

	mu         sync.Mutex
	copies     map[gateScope]map[Key]struct{}               // That failed since one in their namespace was taken.
	namespaces map[schema.GroupResource]map[string]struct{} // In which some failed since one was taken.
	taken      map[schema.GroupResource]time.Time           // When one was.
}

func newFailing() *failing {
	return &failing{
		now: time.Now, tries: rate.NewLimiter(againPerSecond, againPerSecond),
		copies: map[gateScope]map[Key]struct{}{}, namespaces: map[schema.GroupResource]map[string]struct{}{}, taken: map[schema.GroupResource]time.Time{},
	}
}

// again returns when a copy is tried again, which would be after a time if that were not too many.
func (f *failing) again(after time.Duration) time.Duration {
	now := f.now()
	turn := f.tries.ReserveN(now, 1)
	if wait := turn.DelayFrom(now); wait <= mostAgain {
		return max(after, wait)
	}
	turn.CancelAt(now)
	return mostAgain + rand.N(mostAgain) //nolint:gosec // No secret depends on it.
}

// note is told of a write that failed. It returns the failure that the copy shares with others; nil if there is none.
func (f *failing) note(key Key, gvr schema.GroupVersionResource, err error) *failure {
	if !member.ConcernsType(err) {
		if !member.ConcernsAll(err) {
			f.passed(key)
		}
		return nil
	}
	var said apierrors.APIStatus
	if !errors.As(err, &said) {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	scope := gateScope{resource: key.WithVersion(""), namespace: key.Namespace}
	if f.copies[scope] == nil {
		if len(f.copies) >= mostFailing {
			return nil
		}
		f.copies[scope] = map[Key]struct{}{}
	}
	if len(f.copies[scope]) < failTogether {
		f.copies[scope][key] = struct{}{}
	}
	in := f.namespaces[key.GroupResource]
	if in == nil {
		in = map[string]struct{}{}
		f.namespaces[key.GroupResource] = in
	}
	if len(in) < failEverywhere {
		in[key.Namespace] = struct{}{}
	}
	const remedy = "See the log of the API server of the cluster, and its APIServices"
	id := gateID{reason: reasonWriteFailed, name: "status of the API server"}
	switch status := said.Status(); {
	case len(in) >= failEverywhere && f.now().Sub(f.taken[key.GroupResource]) > takenFor: // Or some tenants have failures of their own.
		id.gateScope = gateScope{resource: gvr}
		return &failure{id, fmt.Sprintf("the cluster answers writes of %s with status %d", key.GroupResource, status.Code), remedy}
	case len(f.copies[scope]) >= failTogether:
		id.gateScope = scope
		return &failure{id, fmt.Sprintf("the cluster answers writes of %s in namespace %q with status %d: %s",
			key.GroupResource, key.Namespace, status.Code, status.Message), remedy}
	}
	return nil
}

// passed is told that the member has taken a copy, or has said what is wrong with it.
func (f *failing) passed(key Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.copies, gateScope{resource: key.WithVersion(""), namespace: key.Namespace})
	delete(f.namespaces, key.GroupResource)
	f.taken[key.GroupResource] = f.now()
}
