package leadership

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
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// server stores the Lease like an API server.
type server struct {
	arriving sync.WaitGroup // Requests that are under way.

	mu      sync.Mutex
	version int
	lease   *coordinationv1.Lease // Nil if there is none.
}

func (s *server) get() (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), LeaseName)
	}
	return s.lease.DeepCopy(), nil
}

func (s *server) create(lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease != nil {
		return nil, apierrors.NewAlreadyExists(coordinationv1.Resource("leases"), LeaseName)
	}
	lease.UID = types.UID(fmt.Sprint("uid-", s.version+1))
	return s.put(lease), nil
}

func (s *server) update(lease *coordinationv1.Lease) (*coordinationv1.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.lease == nil:
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), LeaseName)
	case s.lease.UID != lease.UID || s.lease.ResourceVersion != lease.ResourceVersion:
		return nil, apierrors.NewConflict(coordinationv1.Resource("leases"), LeaseName, errors.New("it is another version"))
	}
	return s.put(lease), nil
}

func (s *server) put(lease *coordinationv1.Lease) *coordinationv1.Lease {
	s.version++
	lease = lease.DeepCopy()
	lease.ResourceVersion = strconv.Itoa(s.version)
	s.lease = lease
	return lease.DeepCopy()
}

// change edits or deletes the Lease like a user.
func (s *server) change(edit func(*coordinationv1.Lease) *coordinationv1.Lease) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lease == nil {
		return
	}
	if now := edit(s.lease.DeepCopy()); now != nil {
		s.put(now)
		return
	}
	s.lease = nil
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
	read   bool // Whether the replica has read the Lease.
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

func (l *link) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	lease, err := call(ctx, l, l.get)
	l.set(func(l *link) { l.read = l.read || err == nil })
	return lease, err
}

func (l *link) Create(ctx context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	lease = lease.DeepCopy()
	return call(ctx, l, func() (*coordinationv1.Lease, error) { return l.create(lease) })
}

func (l *link) Update(ctx context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	lease = lease.DeepCopy()
	return call(ctx, l, func() (*coordinationv1.Lease, error) { return l.update(lease) })
}
