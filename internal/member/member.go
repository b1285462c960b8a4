// Package member knows the member clusters: how they are reached, whether they
// are ready, and which objects they hold that came from a hub.
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

// Member is one member cluster. It is made by a [Set], and safe for many goroutines.
type Member struct {
	Name string
	// Copies are its managed objects, Objects and Namespaces what else is read and written there.
	Copies     *Copies
	Objects    *Objects
	Namespaces *Namespaces
	// Autoscalers are those of its workloads.
	Autoscalers *Autoscalers

	api      *connection
	sweep    *sweep
	identity identity
	ready    atomic.Bool

	misses atomic.Int32 // Probes in a row that failed.
	probes int          // That succeeded; its reconciler's alone, too.

	renewal renewal // Of its token; its reconciler's alone.
}

// observer is told what happens on a member, and has what members share. Its functions must not block.
type observer struct {
	changed func(Key)         // A copy appeared or is gone, was replaced, or has other content.
	readied func(Key)         // It is more, or less, ready than it was.
	health  func(Key) *Health // What is asked of a copy; nil if nothing is of any.
	awaited func()            // Somebody waits to know of which types there are copies.
	// versions is called when the member serves other versions than it was known to.
	versions func()
	listed   listed       // It may be known now which copies there are, or why that is not known.
	turns    *fair.Places // Lists take turns by it; nil if they need not.
}

// listed is told that it may be known now which copies of a type there are, or, if known is false, that there is an error which says why
// it is not. AllTypes stands for all: which of them have copies is known, or why that is not.
type listed func(of schema.GroupResource, known bool)

// AllTypes stands for all types.
var AllTypes = schema.GroupResource{}

// hubTypes says which types the hub has, as soon as that is known, and which version of each it prefers.
type hubTypes func(context.Context) (hub func(schema.GroupResource) (version string, has bool), err error)

func newMember(name string, cfg *rest.Config, o observer, served hubTypes, log logr.Logger) (*Member, error) {
	api, err := newConnection(name, cfg)
	if err != nil {
		return nil, err
	}
	return memberBy(api, name, o, served, log), nil
}

// memberBy returns a member that is reached by the connection.
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

// Answers reports whether the member has answered when it was last asked whether it is ready.
func (m *Member) Answers() bool { return m.misses.Load() == 0 }

// Ready reports whether the member was ready to serve when it was last asked.
func (m *Member) Ready() bool { return m.ready.Load() }

// Pause returns how long to wait before the next write; zero to go on. After some
// writes in a row that failed for reasons which concern the whole member, it makes
// all writers wait, longer and longer, and lets one of them try.
func (m *Member) Pause() time.Duration { return m.api.breaker.pause() }
