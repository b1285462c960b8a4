package propagation

import (
	"errors"
	"fmt"
	"sync"

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
)

// failing are the copies that a member answers about with errors of its own, as for a type that is served by an API server which is down.
// If one copy of a type was taken, the others have failures of their own. The zero value has none. It is safe for many goroutines.
type failing struct {
	mu         sync.Mutex
	copies     map[gateScope]map[Key]struct{}               // That failed since one in their namespace was taken.
	namespaces map[schema.GroupResource]map[string]struct{} // In which some failed since one was taken.
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
	if f.copies == nil {
		f.copies, f.namespaces = map[gateScope]map[Key]struct{}{}, map[schema.GroupResource]map[string]struct{}{}
	}
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
	case len(in) >= failEverywhere:
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
}
