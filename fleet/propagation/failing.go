package propagation

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"refract.dev/fleet/member"
	"refract.dev/internal/jitter"
)

const (
	// Once failTogether copies of a type fail in a namespace, the other copies of the type there wait. Once copies of
	// the type fail in failEverywhere namespaces, the copies in all namespaces wait.
	failTogether   = 3
	failEverywhere = 4
	// mostFailing is the maximum number of pairs of namespace and type whose failures are counted.
	mostFailing = 1000
	// takenFor is the time after an accepted copy of a type during which failures of the type cannot stop all
	// namespaces.
	takenFor = 30 * time.Second
	// againPerSecond is the number of individually failing copies that are retried in a second. A copy that would wait
	// longer than mostAgain for its turn waits for one to two times mostAgain.
	againPerSecond = 20
	mostAgain      = 2 * time.Minute
)

// failing counts the copies for which a member returns server errors, for example while the API server behind an
// APIService is down. After a member has accepted a copy of a type, failures of other copies of the type count as
// individual failures. It is safe for concurrent use.
type failing struct {
	now   func() time.Time
	tries *rate.Limiter

	mu         sync.Mutex
	copies     map[gateScope]map[Key]struct{}               // The copies that failed since the last success in their namespace.
	namespaces map[schema.GroupResource]map[string]struct{} // The namespaces with failures since the last success.
	taken      map[schema.GroupResource]time.Time           // The time of the last success.
}

func newFailing() *failing {
	return &failing{
		now: time.Now, tries: rate.NewLimiter(againPerSecond, againPerSecond),
		copies: map[gateScope]map[Key]struct{}{}, namespaces: map[schema.GroupResource]map[string]struct{}{}, taken: map[schema.GroupResource]time.Time{},
	}
}

// again returns the delay before a copy is retried: the given one, or a longer one if too many copies fail.
func (f *failing) again(after time.Duration) time.Duration {
	now := f.now()
	turn := f.tries.ReserveN(now, 1)
	if wait := turn.DelayFrom(now); wait <= mostAgain {
		return max(after, wait)
	}
	turn.CancelAt(now)
	return jitter.Between("failing", mostAgain, 2*mostAgain)
}

// note counts a failed write. It returns the failure that the copy shares with others; nil for none.
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
	case len(in) >= failEverywhere && f.now().Sub(f.taken[key.GroupResource]) > takenFor: // Otherwise, only some tenants have failures.
		id.gateScope = gateScope{resource: gvr}
		return &failure{id, fmt.Sprintf("the cluster answers writes of %s with status %d", key.GroupResource, status.Code), remedy}
	case len(f.copies[scope]) >= failTogether:
		id.gateScope = scope
		return &failure{id, fmt.Sprintf("the cluster answers writes of %s in namespace %q with status %d: %s",
			key.GroupResource, key.Namespace, status.Code, status.Message), remedy}
	}
	return nil
}

// passed notes that the member has accepted a copy, or has rejected it for a reason that concerns this copy alone.
func (f *failing) passed(key Key) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.copies, gateScope{resource: key.WithVersion(""), namespace: key.Namespace})
	delete(f.namespaces, key.GroupResource)
	f.taken[key.GroupResource] = f.now()
}
