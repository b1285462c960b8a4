package sharding

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// server stores Leases as an API server does.
type server struct {
	arriving sync.WaitGroup // Requests that are under way.

	mu       sync.Mutex
	version  int
	leases   map[string]*coordinationv1.Lease
	watchers map[chan watch.Event]bool
}

func newServer() *server {
	return &server{leases: map[string]*coordinationv1.Lease{}, watchers: map[chan watch.Event]bool{}}
}

var resource = coordinationv1.Resource("leases")

func (s *server) put(lease *coordinationv1.Lease, kind watch.EventType) *coordinationv1.Lease {
	s.version++
	lease = lease.DeepCopy()
	lease.ResourceVersion = strconv.Itoa(s.version)
	if lease.UID == "" {
		lease.UID = types.UID("uid-" + lease.ResourceVersion)
	}
	s.leases[lease.Name] = lease
	s.tell(kind, lease)
	return lease.DeepCopy()
}

func (s *server) tell(kind watch.EventType, lease *coordinationv1.Lease) {
	for w := range s.watchers {
		select {
		case w <- watch.Event{Type: kind, Object: lease.DeepCopy()}:
		default: // A watcher that is too slow is dropped.
			close(w)
			delete(s.watchers, w)
		}
	}
}

func (s *server) list() *coordinationv1.LeaseList {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := &coordinationv1.LeaseList{}
	for _, lease := range s.leases {
		list.Items = append(list.Items, *lease.DeepCopy())
	}
	return list
}

func (s *server) get(name string) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lease := s.leases[name]; lease != nil {
		return lease.DeepCopy(), nil
	}
	return nil, apierrors.NewNotFound(resource, name)
}

func (s *server) create(lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[lease.Name] != nil {
		return nil, apierrors.NewAlreadyExists(resource, lease.Name)
	}
	return s.put(lease, watch.Added), nil
}

func (s *server) update(lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.leases[lease.Name]
	switch {
	case old == nil && lease.UID == "": // A PUT creates a Lease.
		return s.put(lease, watch.Added), nil
	case old == nil || old.UID != lease.UID || old.ResourceVersion != lease.ResourceVersion:
		return nil, apierrors.NewConflict(resource, lease.Name, errors.New("it is another version"))
	}
	return s.put(lease, watch.Modified), nil
}

func (s *server) remove(name string, on *metav1.Preconditions) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.leases[name]
	switch {
	case old == nil:
		return apierrors.NewNotFound(resource, name)
	case on != nil && (*on.UID != old.UID || on.ResourceVersion != nil && *on.ResourceVersion != old.ResourceVersion):
		return apierrors.NewConflict(resource, name, errors.New("it is another version"))
	}
	delete(s.leases, name)
	s.tell(watch.Deleted, old)
	return nil
}

func (s *server) watch() chan watch.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := make(chan watch.Event, 1000)
	for _, lease := range s.leases {
		w <- watch.Event{Type: watch.Added, Object: lease.DeepCopy()}
	}
	s.watchers[w] = true
	return w
}

// link is the connection of one replica to the server. Requests and answers take time, are lost, or arrive after their
// timeout, and the replica may be frozen.
type link struct {
	coordinationclient.LeaseInterface // For the methods that are not called.

	*server

	mu     sync.Mutex
	random *rand.Rand
	loss   float64 // The share of lost requests, and of lost answers.
	delay  time.Duration
	frozen time.Time // The replica is frozen until then.
	dead   bool
}

func (l *link) Leases(string) coordinationclient.LeaseInterface { return l }

func (l *link) set(change func(*link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	change(l)
}

// chance decides the delays and losses of a request.
func (l *link) chance() (there, back time.Duration, lostThere, lostBack bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	took := func() time.Duration { return time.Millisecond + time.Duration(l.random.Int64N(int64(l.delay))) }
	return took(), took(), l.dead || l.random.Float64() < l.loss, l.random.Float64() < l.loss
}

// stand waits as long as the replica is frozen.
func (l *link) stand() {
	for {
		l.mu.Lock()
		frozen, dead := time.Until(l.frozen), l.dead
		l.mu.Unlock()
		if frozen <= 0 || dead {
			return
		}
		<-time.After(frozen)
	}
}

func call[T any](ctx context.Context, l *link, do func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	l.stand()
	there, back, lostThere, lostBack := l.chance()
	answers := make(chan answer, 1)
	l.arriving.Go(func() {
		<-time.After(there)
		if lostThere {
			return
		}
		value, err := do()
		<-time.After(back)
		if !lostBack {
			answers <- answer{value, err}
		}
	})
	var a answer
	select {
	case a = <-answers:
	case <-ctx.Done():
		a.err = fmt.Errorf("no answer: %w", ctx.Err())
	}
	l.stand()
	return a.value, a.err
}

func (l *link) List(ctx context.Context, _ metav1.ListOptions) (*coordinationv1.LeaseList, error) {
	return call(ctx, l, func() (*coordinationv1.LeaseList, error) { return l.list(), nil })
}

func (l *link) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	return call(ctx, l, func() (*coordinationv1.Lease, error) { return l.get(name) })
}

func (l *link) Create(ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	lease = lease.DeepCopy()
	return call(ctx, l, func() (*coordinationv1.Lease, error) { return l.create(lease) })
}

func (l *link) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	lease = lease.DeepCopy()
	return call(ctx, l, func() (*coordinationv1.Lease, error) { return l.update(lease) })
}

func (l *link) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	_, err := call(ctx, l, func() (struct{}, error) { return struct{}{}, l.remove(name, o.Preconditions) })
	return err
}

func (l *link) Watch(ctx context.Context, _ metav1.ListOptions) (watch.Interface, error) {
	from, err := call(ctx, l, func() (chan watch.Event, error) { return l.watch(), nil })
	if err != nil {
		return nil, err
	}
	return &follower{from: from, server: l.server}, nil
}

// follower is a watch.
type follower struct {
	*server

	from chan watch.Event
}

func (f *follower) ResultChan() <-chan watch.Event { return f.from }

func (f *follower) Stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watchers, f.from)
}
