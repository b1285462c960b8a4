package propagation

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/fleet/member"
	"refract.dev/fleet/policy/match"
	"refract.dev/fleet/policy/override"
	"refract.dev/fleet/policy/placement"
	variants "refract.dev/fleet/variant"
	"refract.dev/tree"
)

// Limits of the request bodies in memory, which are the JSON of copies before their writes. A body beyond a limit is
// rendered again when its copy is written.
const (
	// maxPlanBodies is the maximum for one object, in bytes.
	maxPlanBodies = 8 << 20
	// maxBodies is the maximum for all objects together, in bytes.
	maxBodies = 128 << 20
)

// Copies of more than largeBody bytes are large. One member gets one large copy at a time, and all members together get
// at most maxLarge, because each request holds its whole copy in memory.
const (
	largeBody = 256 << 10
	maxLarge  = 64
)

// largeAtOnce is the number of workers of a member that may handle large copies: one writes, and one prepares the next.
// At least one of the member's own workers remains for other copies.
const largeAtOnce = ownAtOnce - 1

// largeDelay is the delay before a large copy is tried again while largeAtOnce workers handle others.
const largeDelay = 250 * time.Millisecond

// largeWrites bounds the number of concurrent writes of large copies. The zero value permits none; see
// [newLargeWrites].
type largeWrites struct {
	workers chan struct{} // Has an entry for each worker of the member that handles a large copy.
	member  chan struct{} // Has an entry while a large copy is being written to the member.
	all     chan struct{} // Has an entry for each write of a large copy to any member; all members share it.
}

// newLargeWrites returns the bound of one member.
func newLargeWrites(all chan struct{}) largeWrites {
	return largeWrites{workers: make(chan struct{}, largeAtOnce), member: make(chan struct{}, 1), all: all}
}

// enter reserves a worker for a large copy, if one is free. Workers with large copies wait for each other. Their number
// is limited, so that small copies need not wait for them.
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

// begin waits until a copy of this size may be written. ok is false if ctx ends first. The caller calls end after the
// write.
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

// outdatedDelay is the delay before the retry of a copy whose desired state is being decided again.
const outdatedDelay = 100 * time.Millisecond

// errOutdated is the error for a desired state that is outdated. The key is being decided again.
var errOutdated = errors.New("the desired state is outdated")

// keepBodies counts the size of the bodies in a new desired state. It drops the bodies that no cluster needs and those
// beyond the limit. The lock must be held.
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

// dropBodies releases the bodies of a desired state. The lock must be held.
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

// keep keeps a body that was rendered again, if more clusters need it and it fits into the limits.
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

// renderer renders objects again for members, because the decision keeps only some of the bodies.
type renderer struct {
	hub      string // UID of the hub.
	sources  *sources
	policies *policies
	members  *member.Set
	state    *state
	// outdated enqueues a key for a new decision.
	outdated func(Key)
}

// bodyOf returns the body of the copy on a cluster; nil if the desired state is outdated.
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

// encodeAgain repeats the rendering of a decision for one cluster, from the present object and policies. It returns nil
// if these have certainly changed.
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

// encodeKept is encodeAgain for a cluster that gets an earlier revision.
func (r *renderer) encodeKept(key Key, p *desiredState, from *material, cluster string) *content {
	clusters := r.members.Clusters()
	at, found := slices.BinarySearchFunc(clusters, cluster, func(c placement.Cluster, name string) int { return strings.Compare(c.Name, name) })
	if !found || from.err != nil {
		return nil
	}
	return p.encodeFor(from.object, &clusters[at].Cluster, from.policies, sourceOf(r.hub, p.uid, p.gvr.GroupResource(), key.Namespace, key.Name))
}

// encodeFor renders and encodes the object of the desired state for one of its clusters; nil if that fails.
func (p *desiredState) encodeFor(obj *unstructured.Unstructured, cluster *match.Cluster, policies []*override.Policy, source string) *content {
	at, placed := placement.Find(p.placed, cluster.Name)
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
