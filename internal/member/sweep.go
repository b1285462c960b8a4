package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/util/flowcontrol"

	"refract.dev/internal/rescue"
)

// Looking for copies that nobody has asked for takes a request for each type that a
// member serves, and there is no hurry. These bound what that takes from a large
// fleet's other work: how many members are looked through at once, one type after
// the other, and how many requests that makes per second, of all members together.
const (
	concurrentSweeps = 16
	sweepsPerSecond  = 500
	sweepBurst       = 250
)

// What could not be known is looked at again after these times: API groups that
// do not say which types they have, or have a type that was not served any more; and
// types that the credentials may not list.
const (
	doubtfulAfter = 30 * time.Second
	refusedAfter  = 10 * time.Minute
)

// served is a type that a member serves.
type served struct {
	schema.GroupVersionResource

	kind       string
	namespaced bool
	verbs      []string
}

// discover asks which types the member serves, and which API groups do not say.
func (m *Member) discover(ctx context.Context) (types []served, doubtful map[string]bool, err error) {
	var lists []*metav1.APIResourceList
	few := &paced{DiscoveryClient: m.discovery, excess: m.hooks.excess, slots: make(chan struct{}, discoveredAtOnce)}
	err = m.request(ctx, func(ctx context.Context) (err error) {
		lists, err = discovery.ServerPreferredResourcesWithContext(ctx, few)
		return err
	})
	if few.listed.Load() > mostListed {
		return nil, nil, fmt.Errorf("discovering types: %w", m.hooks.excess("types and subresources", mostListed))
	}
	doubtful = map[string]bool{}
	if partial, ok := errors.AsType[*discovery.ErrGroupDiscoveryFailed](err); ok {
		for gv := range partial.Groups {
			if len(gv.Group) <= mostName {
				doubtful[gv.Group] = true
			}
		}
	} else if err != nil {
		return nil, nil, fmt.Errorf("discovering types: %w", err)
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, nil, fmt.Errorf("discovering types: %w", err)
		}
		for i := range list.APIResources {
			r := &list.APIResources[i]
			if !isName(r.Name) || len(gv.Group) > mostName {
				continue // No API server has such a type.
			}
			types = append(types, served{gv.WithResource(r.Name), r.Kind, r.Namespaced, r.Verbs})
		}
		if len(types) > mostTypes {
			return nil, nil, fmt.Errorf("discovering types: %w", m.hooks.excess("types", mostTypes))
		}
	}
	return types, doubtful, nil
}

// paced has the library ask for a few API groups at a time, and for no more when too much
// was answered. By itself it asks for all that the API server says there are at once, and
// reads that many answers at the same time.
type paced struct {
	*discovery.DiscoveryClient

	excess func(what string, limit int) error
	slots  chan struct{}
	listed atomic.Int64
}

// GroupsAndMaybeResourcesWithContext is the client's, for as many versions as may be.
func (p *paced) GroupsAndMaybeResourcesWithContext(ctx context.Context) (
	groups *metav1.APIGroupList, resources map[schema.GroupVersion]*metav1.APIResourceList, failed map[schema.GroupVersion]error, err error,
) {
	groups, resources, failed, err = p.DiscoveryClient.GroupsAndMaybeResourcesWithContext(ctx)
	if err != nil {
		return nil, nil, nil, err
	}
	versions := 0
	for i := range groups.Groups {
		versions += len(groups.Groups[i].Versions)
	}
	if versions > mostVersions {
		return nil, nil, nil, p.excess("versions of API groups", mostVersions)
	}
	return groups, resources, failed, nil
}

// ServerResourcesForGroupVersionWithContext is the client's, when it is its turn.
func (p *paced) ServerResourcesForGroupVersionWithContext(ctx context.Context, version string) (*metav1.APIResourceList, error) {
	select {
	case p.slots <- struct{}{}:
		defer func() { <-p.slots }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if p.listed.Load() > mostListed {
		return nil, errUndiscovered // There is too much already.
	}
	list, err := p.DiscoveryClient.ServerResourcesForGroupVersionWithContext(ctx, version)
	if list != nil {
		p.listed.Add(int64(len(list.APIResources)))
	}
	return list, err
}

// sweeper looks through members, each of which is in it once. The zero sweeper is
// ready to use.
type sweeper struct {
	mu      sync.Mutex
	closed  bool
	queue   []*Member
	pending map[*Member]bool // In the queue, or being looked through.
	workers int
	running sync.WaitGroup
	limit   flowcontrol.RateLimiter
}

// add has a member looked through: before those that wait, if somebody waits for what
// comes of it.
func (s *sweeper) add(m *Member, urgent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if s.limit == nil {
		s.limit = flowcontrol.NewTokenBucketRateLimiter(sweepsPerSecond, sweepBurst)
		s.pending = map[*Member]bool{}
	}
	if s.pending[m] {
		i := slices.Index(s.queue, m)
		if i < 0 || !urgent {
			return
		}
		s.queue = slices.Delete(s.queue, i, i+1)
	}
	s.pending[m] = true
	if urgent {
		s.queue = slices.Insert(s.queue, 0, m)
	} else {
		s.queue = append(s.queue, m)
	}
	if s.workers < concurrentSweeps {
		s.workers++
		s.running.Go(s.run)
	}
}

// run looks through members until none waits.
func (s *sweeper) run() {
	for {
		s.mu.Lock()
		if len(s.queue) == 0 {
			s.workers--
			s.mu.Unlock()
			return
		}
		m := s.queue[0]
		s.queue = slices.Delete(s.queue, 0, 1)
		s.mu.Unlock()
		m.sweep(s.limit.Wait)
		s.mu.Lock()
		delete(s.pending, m)
		s.mu.Unlock()
	}
}

// close waits for what is under way, which ends soon when the members are closed.
func (s *sweeper) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
}

// askSweep records that nothing is known of types that are not watched: the member
// is new, or has become ready again and may be another than it was.
func (m *Member) askSweep() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked++
	m.awaited = false
	clear(m.without)
}

// sweep watches every type of which the member holds a copy, so that copies are found whose
// source was deleted unseen. Types that the hub does not have are among them, mostStrays at
// most. A type that may not be listed is watched only when a copy is wanted; a type whose list
// fails for other reasons is watched until it succeeds. Types that are known already are not
// asked for again. Turn is called before each request.
func (m *Member) sweep(turn func(context.Context) error) {
	m.mu.Lock()
	asked := m.asked
	m.mu.Unlock()
	err := m.trySweep(turn)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweepErr = err
	if err == nil {
		m.swept, m.sweptAt = asked, time.Now()
	}
}

func (m *Member) trySweep(turn func(context.Context) error) (err error) {
	defer rescue.To(&err, m.hooks.log, "looking through a cluster", "cluster", m.Name)
	return m.sweepTypes(m.ctx, turn)
}

func (m *Member) sweepTypes(ctx context.Context, turn func(context.Context) error) error {
	if err := turn(ctx); err != nil {
		return err
	}
	types, doubtful, err := m.discover(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	m.doubtful = doubtful
	m.mu.Unlock()
	has, err := m.hubHas(ctx)
	if err != nil {
		return err
	}
	for _, strays := range []bool{false, true} { // If these are too many, all else is known.
		for _, t := range types {
			kind := schema.GroupKind{Group: t.Group, Kind: t.kind}
			if has(t.GroupResource()) == strays || !Propagates(kind, t.verbs) {
				continue
			}
			m.resume(t.GroupVersionResource) //nolint:contextcheck // The watch lives as long as the member.
			if !m.unknown(t.GroupResource()) {
				continue
			}
			if err := turn(ctx); err != nil {
				return err
			}
			if err := m.sweepType(ctx, t.GroupVersionResource, strays); err != nil {
				return err
			}
		}
	}
	return nil
}

// hubHas waits until it is known which types the hub has, and returns what says so.
func (m *Member) hubHas(ctx context.Context) (func(schema.GroupResource) bool, error) {
	if m.hooks.served == nil {
		return func(schema.GroupResource) bool { return true }, nil
	}
	return m.hooks.served(ctx)
}

// unknown reports whether a type is not watched, and was not found to have no
// copies.
func (m *Member) unknown(resource schema.GroupResource) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.types[resource] == nil && !m.without[resource]
}

// sweepType watches a type if there are copies. It is a [LimitError] if the type is a stray,
// and too many are watched.
func (m *Member) sweepType(ctx context.Context, gvr schema.GroupVersionResource, stray bool) error {
	var found *metav1.PartialObjectMetadataList
	err := m.request(ctx, func(ctx context.Context) (err error) {
		found, err = m.client.Resource(gvr).List(ctx, metav1.ListOptions{LabelSelector: managed, Limit: 1})
		return err
	})
	var status apierrors.APIStatus
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
		return nil // The type went away since it was discovered.
	case apierrors.IsForbidden(err):
		m.refuse(gvr.GroupResource(), err)
		return nil
	case errors.As(err, &status), err == nil && len(found.Items) > 0:
		if stray && !m.admit() {
			return m.hooks.excess("types of copies that the hub does not have", mostStrays)
		}
		m.Watch(gvr) //nolint:contextcheck // The watch lives as long as the member.
		return nil
	case err != nil:
		return fmt.Errorf("listing %s: %w", gvr.GroupResource(), err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.without[gvr.GroupResource()] = true
	delete(m.refused, gvr.GroupResource())
	return nil
}

// admit counts a type that the hub does not have, unless there are too many.
func (m *Member) admit() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.strays >= mostStrays {
		return false
	}
	m.strays++
	return true
}

// refuse records that a type may not be listed.
func (m *Member) refuse(resource schema.GroupResource, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refused[resource] = err
}

// unswept reports whether types that are not watched have not all been looked at
// since the member became ready. The lock must be held.
func (m *Member) unswept() bool { return m.swept < m.asked }

// doubts reports whether there may be copies of types that are not known, and it
// is time to look.
func (m *Member) doubts() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	ago := time.Since(m.sweptAt)
	return m.unswept() || ((len(m.doubtful) > 0 || m.rests()) && ago > doubtfulAfter) || (len(m.refused) > 0 && ago > jitter(refusedAfter))
}

// rests reports whether a type is not watched as the member did not serve it. The lock must
// be held.
func (m *Member) rests() bool {
	for _, t := range m.types {
		if t.resting {
			return true
		}
	}
	return false
}
