// Package member handles the member clusters: the connections to them, their readiness, and their copies of a hub's
// objects.
package member

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"refract.dev/internal/fair"
)

// Member is one member cluster. A [Set] creates it. It is safe for concurrent use.
type Member struct {
	Name string
	// Copies are the managed objects of the cluster. Objects and Namespaces give access to all others.
	Copies     *Copies
	Objects    *Objects
	Namespaces *Namespaces
	// Autoscalers are the autoscalers of the cluster's workloads.
	Autoscalers *Autoscalers

	api      *connection
	sweep    *sweep
	identity identity
	ready    atomic.Bool

	misses atomic.Int32 // Failed probes in a row.
	probes int          // Successful probes. Only the reconciler of the cluster uses it.

	renewal renewal // Of the token. Only the reconciler of the cluster uses it.
}

// observer has the functions that are called after changes on a member, and the queue of lists that members share. The
// functions must not block.
type observer struct {
	changed func(Key)         // A copy appeared, disappeared, was replaced, or has other content.
	readied func(Key)         // The readiness of a copy has changed.
	health  func(Key) *Health // Returns further criteria of a copy. The function is nil if no copy has any.
	awaited func()            // A caller waits for the search for types with copies.
	// versions is called when the member serves other versions than before.
	versions func()
	listed   listed       // Called when a list of copies ends; see the type.
	turns    *fair.Places // Gives lists their turns; nil if lists need not wait.
}

// listed is called when a list of the copies of a type ends. Known is false if the copies stay unknown; then
// [Copies.ListError] may have the reason. AllTypes means that the search for types with copies has ended.
type listed func(of schema.GroupResource, known bool)

// AllTypes stands for all types.
var AllTypes = schema.GroupResource{}

// hubTypes waits until the types of the hub are known. It returns a function that reports whether the hub has a type,
// and the version that the hub prefers.
type hubTypes func(context.Context) (hub func(schema.GroupResource) (version string, has bool), err error)

func newMember(name string, cfg *rest.Config, o observer, served hubTypes, log logr.Logger) (*Member, error) {
	api, err := newConnection(name, cfg)
	if err != nil {
		return nil, err
	}
	return memberBy(api, name, o, served, log), nil
}

// memberBy returns a member with this connection.
func memberBy(api *connection, name string, o observer, served hubTypes, log logr.Logger) *Member {
	decode := decoder{api.limits.account, log, o.health}
	m := &Member{
		Name:        name,
		Copies:      newCopies(name, api, decode, o),
		Objects:     &Objects{api, decode},
		Namespaces:  &Namespaces{api, decode},
		Autoscalers: &Autoscalers{api: api, now: time.Now},
		api:         api,
	}
	m.sweep = &sweep{api, m.Copies, served, log}
	m.identity.api, m.identity.newest = api, m.Copies.newest
	return m
}

// close refuses new requests, waits for those under way, and ends the watches.
func (m *Member) close() {
	m.api.close(m.Copies.watches.settle)
	ownerships.forget(m.api.limits.account)
}

// Answers reports whether the member answered the last probe.
func (m *Member) Answers() bool { return m.misses.Load() == 0 }

// Ready reports whether the member was ready to serve at the last examination.
func (m *Member) Ready() bool { return m.ready.Load() }

// Pause returns the wait before the next write; zero means no wait. If several consecutive writes fail for reasons that
// concern the whole member, all writers wait. The wait grows until a check finds the member healthy and a few writes
// have succeeded.
func (m *Member) Pause() time.Duration { return m.api.breaker.pause() }
