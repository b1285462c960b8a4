package member

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/flowcontrol"

	"refract.dev/internal/rescue"
)

// A sweep searches a member for copies of types that are not watched yet. It needs a request for each type that the
// member serves, and is not urgent. These bounds limit its effect on other work in a large fleet: the number of members
// that are searched at the same time, one type after the other, and the requests per second for all members together.
const (
	concurrentSweeps = 16
	sweepsPerSecond  = 500
	sweepBurst       = 250
)

// sweeper searches members for copies. Each member is in the queue at most once. The zero sweeper is ready to use.
type sweeper struct {
	mu      sync.Mutex
	closed  bool
	queue   []*sweep
	pending map[*sweep]bool // In the queue, or being searched.
	workers int
	running sync.WaitGroup
	limit   flowcontrol.RateLimiter
}

// add enqueues the search of a member. If urgent is set, because a caller waits for the result, the search is the next
// one.
func (s *sweeper) add(m *sweep, urgent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if s.limit == nil {
		s.limit = flowcontrol.NewTokenBucketRateLimiter(sweepsPerSecond, sweepBurst)
		s.pending = map[*sweep]bool{}
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

// run searches members until the queue is empty.
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
		m.run(s.limit.Wait)
		s.mu.Lock()
		delete(s.pending, m)
		s.mu.Unlock()
	}
}

// close waits for searches under way, which end soon after the members are closed.
func (s *sweeper) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.running.Wait()
}

// sweep begins to watch every type that has copies on a member. So it also finds copies whose source was deleted while
// Refract did not watch. This includes at most mostStrays types that the hub does not have. A type that may not be
// listed is watched only when a copy is needed or missing. A type whose list fails for another reason is watched, too,
// so that the watch repeats the list. Known types are not requested again.
type sweep struct {
	api    *connection
	copies *Copies
	served hubTypes // Nil if the hub has all types.
	log    logr.Logger
}

// run searches the member once. It calls turn before each request.
func (s *sweep) run(turn func(context.Context) error) {
	unwatched := &s.copies.unwatched
	asked := unwatched.sweepsAsked()
	err := s.try(asked, turn)
	unwatched.sweptUpTo(asked, err)
	s.copies.watches.observer.listed(AllTypes, err == nil)
}

func (s *sweep) try(asked int, turn func(context.Context) error) (err error) {
	defer rescue.To(&err, s.log, "searching a cluster for copies")
	return s.types(s.api.lifetime.ctx, asked, turn)
}

func (s *sweep) types(ctx context.Context, asked int, turn func(context.Context) error) error {
	if err := turn(ctx); err != nil {
		return err
	}
	found, doubtful, err := s.api.discover(ctx)
	if err != nil {
		return err
	}
	s.copies.unwatched.setDoubtful(doubtful)
	hub, err := s.hubHas(ctx)
	if err != nil {
		return err
	}
	if s.copies.versions.set(found, hub, doubtful) {
		s.copies.watches.observer.versions()
	}
	for _, strays := range []bool{false, true} { // Types that the hub does not have come last, because there may be too many of them.
		for _, t := range found {
			kind := schema.GroupKind{Group: t.Group, Kind: t.Kind}
			if _, has := hub(t.GroupResource()); has == strays || !Propagates(kind, t.Verbs) {
				continue
			}
			s.copies.watches.resume(t.GroupVersionResource) //nolint:contextcheck // The watch lives as long as the member.
			if s.copies.known(t.GroupResource()) {
				continue
			}
			if err := turn(ctx); err != nil {
				return err
			}
			if err := s.oneType(ctx, t.GroupVersionResource, asked, strays); err != nil {
				return err
			}
		}
	}
	return nil
}

// hubHas waits until the types of the hub are known, and returns the function that reports them.
func (s *sweep) hubHas(ctx context.Context) (func(schema.GroupResource) (version string, has bool), error) {
	if s.served == nil {
		return func(schema.GroupResource) (string, bool) { return "", true }, nil
	}
	return s.served(ctx)
}

// oneType watches a type if it has copies. A stray is a type that the hub does not have. The error is a [LimitError] if
// too many strays are watched.
func (s *sweep) oneType(ctx context.Context, gvr schema.GroupVersionResource, asked int, stray bool) error {
	var found *metav1.PartialObjectMetadataList
	err := s.api.request(ctx, func(ctx context.Context) (err error) {
		found, err = s.api.metadata.list(ctx, gvr, "", metav1.ListOptions{LabelSelector: managed, Limit: 1})
		return err
	})
	var status apierrors.APIStatus
	switch {
	case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
		return nil // The type was removed after the discovery.
	case apierrors.IsForbidden(err):
		s.copies.unwatched.refuse(gvr, err)
		s.copies.watches.observer.listed(gvr.GroupResource(), false)
		return nil
	case errors.As(err, &status), err == nil && len(found.Items) > 0:
		if stray && !s.copies.unwatched.admit() {
			return s.api.limits.excess.over("types of copies that the hub does not have", mostStrays)
		}
		s.copies.Watch(gvr) //nolint:contextcheck // The watch lives as long as the member.
		return nil
	case err != nil:
		return fmt.Errorf("listing %s: %w", gvr.GroupResource(), err)
	}
	if s.copies.unwatched.hasNone(gvr.GroupResource(), asked) {
		s.copies.watches.observer.listed(gvr.GroupResource(), true)
	}
	return nil
}
