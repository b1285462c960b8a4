package propagation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/internal/member"
	variants "refract.dev/internal/variant"
	"refract.dev/match"
	"refract.dev/override"
	"refract.dev/placement"
	"refract.dev/tree"
)

// What is kept in memory of copies that are about to be written. What there is no room
// for is rendered again when its turn comes.
const (
	// maxPlanBodies is how many bytes of one object are kept.
	maxPlanBodies = 8 << 20
	// maxBodies is how many bytes of all objects are.
	maxBodies = 128 << 20
)

// Copies of more than largeBody bytes are written to each member one after the other, and
// to all together maxLarge at a time: every member has workers of its own, and a request
// holds all of a copy.
const (
	largeBody = 256 << 10
	maxLarge  = 64
)

// largeAtOnce is how many workers of a member see to large copies: one writes, one has the next ready, and one of those that the
// member has in any case is left for others.
const largeAtOnce = ownAtOnce - 1

// largeDelay is for how long a large copy waits when as many workers as may see to others.
const largeDelay = 250 * time.Millisecond

// largeWrites bounds how many large copies are written at a time. The zero value has no room
// for any; see [newLargeWrites].
type largeWrites struct {
	workers chan struct{} // Has one for each worker of the member that sees to a large copy.
	member  chan struct{} // Has one while a large copy is being written to the member.
	all     chan struct{} // Has as many as are being written to all members; shared by them.
}

// newLargeWrites returns the bound of one member.
func newLargeWrites(all chan struct{}) largeWrites {
	return largeWrites{workers: make(chan struct{}, largeAtOnce), member: make(chan struct{}, 1), all: all}
}

// enter takes a place among the workers that see to large copies, if there is one. They
// wait for each other, and others' small copies are not to wait for them.
func (w *largeWrites) enter(size int) (leave func(), ok bool) {
	if size <= largeBody {
		return func() {}, true
	}
	select {
	case w.workers <- struct{}{}:
		return func() { <-w.workers }, true
	default:
		return nil, false
	}
}

// begin waits until a copy of this size may be written, unless ctx ends before. The end of
// that is to be told.
func (w *largeWrites) begin(ctx context.Context, size int) (end func(), ok bool) {
	if size <= largeBody {
		return func() {}, true
	}
	select {
	case w.member <- struct{}{}:
	case <-ctx.Done():
		return nil, false
	}
	select {
	case w.all <- struct{}{}:
		return func() {
			<-w.all
			<-w.member
		}, true
	case <-ctx.Done():
		<-w.member
		return nil, false
	}
}

// outdatedDelay is for how long a copy waits for a desired state that is decided anew.
const outdatedDelay = 100 * time.Millisecond

// errOutdated says that a desired state is not what would be decided now, and is decided anew.
var errOutdated = errors.New("the desired state is outdated")

// keepBodies counts the bodies of a desired state that is new, and keeps those that there is room for
// and somebody needs. The lock must be held.
func (s *state) keepBodies(e *objectState) {
	for _, v := range e.desired.variants {
		switch {
		case v.body.Load() == nil:
		case e.behind == 0, e.desired.dryRun, s.bodies+v.size > maxBodies:
			v.body.Store(nil)
		default:
			s.bodies += v.size
			e.bodies += v.size
		}
	}
}

// dropBodies lets the bodies of a desired state go. The lock must be held.
func (s *state) dropBodies(e *objectState) {
	if e.bodies == 0 {
		return
	}
	for _, v := range e.desired.variants {
		v.body.Store(nil)
	}
	s.bodies -= e.bodies
	e.bodies = 0
}

// keep keeps a body that was made again, if there is room by now and more clusters wait.
func (s *state) keep(key Key, p *desiredState, v *variant, b *body) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil || e.desired != p || e.behind < 2 || e.bodies+v.size > maxPlanBodies || s.bodies+v.size > maxBodies {
		return
	}
	if v.body.CompareAndSwap(nil, b) {
		s.bodies += v.size
		e.bodies += v.size
	}
}

// renderer renders the objects of the hub for members once more: what was rendered when it
// was decided is kept for some only.
type renderer struct {
	hub      string // UID of the hub.
	sources  *sources
	policies *policies
	members  *member.Set
	state    *state
	// outdated has a key decided anew.
	outdated func(Key)
}

// bodyOf returns what the copy of a target is written with on a cluster; nil if what was
// decided is outdated.
func (r *renderer) bodyOf(key Key, p *desiredState, t *target, cluster string) *body {
	if b := t.variant.body.Load(); b != nil {
		return b
	}
	c := r.encodeAgain(key, p, cluster)
	if c == nil || c.hash != t.variant.hash {
		if r.state.desired(key) == p {
			r.outdated(key)
		}
		return nil
	}
	b := c.body.Load()
	r.state.keep(key, p, t.variant, b)
	return b
}

// encodeAgain renders an object for a cluster as was decided, of what is known now; nil
// if that cannot be what it was decided of.
func (r *renderer) encodeAgain(key Key, p *desiredState, cluster string) *content {
	src, known := r.sources.get(key)
	if !known || src.object == nil || src.object.GetUID() != p.uid {
		return nil
	}
	if t := p.targets[cluster]; t != nil && t.from != nil {
		return r.encodeKept(key, p, t.from, cluster)
	}
	var policies []*override.Policy
	for _, ref := range p.overrides {
		policy := r.policies.override(tree.Policy{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name})
		if policy == nil || *policyReference(policy.Ref) != ref {
			return nil
		}
		policies = append(policies, policy)
	}
	clusters := r.members.Clusters()
	at, found := slices.BinarySearchFunc(clusters, cluster, func(c placement.Cluster, name string) int { return strings.Compare(c.Name, name) })
	if !found {
		return nil
	}
	return p.encodeFor(src.object, &clusters[at].Cluster, policies, sourceOf(r.hub, p.uid, p.gvr.GroupResource(), key.Namespace, key.Name))
}

// encodeKept is encodeAgain for a revision that is not the newest.
func (r *renderer) encodeKept(key Key, p *desiredState, from *material, cluster string) *content {
	clusters := r.members.Clusters()
	at, found := slices.BinarySearchFunc(clusters, cluster, func(c placement.Cluster, name string) int { return strings.Compare(c.Name, name) })
	if !found || from.err != nil {
		return nil
	}
	return p.encodeFor(from.object, &clusters[at].Cluster, from.policies, sourceOf(r.hub, p.uid, p.gvr.GroupResource(), key.Namespace, key.Name))
}

// encodeFor renders and encodes the object of the desired state for one of its clusters; nil if it
// cannot be.
func (p *desiredState) encodeFor(obj *unstructured.Unstructured, cluster *match.Cluster, policies []*override.Policy, source string) *content {
	at, placed := find(p.placed, cluster.Name)
	if !placed {
		return nil
	}
	v := variants.Render(obj, []match.Cluster{*cluster}, p.placed[at:at+1], tree.Policy{}, policies...)[0]
	if v.Err != nil {
		return nil
	}
	c, err := encode(v.Object, p.gvr, source, &p.keeping, leftTo(&p.keeping, v.Changes))
	if err != nil {
		return nil
	}
	return c
}
