package sharding

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/klog/v2"
)

// The names of the Leases, and the annotations on them.
const (
	leaderName    = "refract-leader"
	membersName   = "refract-members"
	replicaPrefix = "refract-replica-"

	assignmentAnnotation = "refract.dev/assignment"
	reportAnnotation     = "refract.dev/report"
)

// Run takes part until ctx ends, and then gives back what this replica has: it
// waits for the end of the work in flight, no longer than the Lease is certain
// to be there. It returns an error if the replica must end because others may
// have taken over: it lost leadership, or its Lease. Nothing is owned after Run
// has returned, and it cannot be run again.
func (s *Shards) Run(ctx context.Context) error {
	if s.alone {
		<-ctx.Done()
		return nil
	}
	elector, err := s.elector()
	if err != nil {
		return fmt.Errorf("preparing the election of a leader: %w", err)
	}
	// What follows ends later than ctx, to give back what there is.
	inner, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), s.options.Log))
	var running sync.WaitGroup
	deposed := make(chan struct{})
	running.Go(func() {
		defer close(deposed)
		elector.Run(inner)
	})
	running.Go(func() { s.watch(inner) })
	err = s.loop(ctx, deposed)
	s.leave(inner, err)
	cancel()
	running.Wait()
	return err
}

// period is the time between two renewals, and the most that a request may take.
func (s *Shards) period() time.Duration { return s.options.LeaseDuration / 5 }

// loop looks at how things are until ctx ends or this replica must end.
func (s *Shards) loop(ctx context.Context, deposed <-chan struct{}) error {
	next := time.NewTimer(0)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-deposed:
			return errors.New("leadership was lost, as it was not renewed in time")
		case <-next.C:
		case <-s.poke:
		}
		err := s.step(ctx)
		switch {
		case errors.Is(err, errLost):
			return err
		case err != nil && ctx.Err() == nil:
			s.options.Log.Error(err, "Cannot take part in sharing out the members; trying again")
			next.Reset(s.period() / 2)
		default:
			next.Reset(time.Until(s.renewed.Add(s.period())))
		}
	}
}

// step does all that is to be done now.
func (s *Shards) step(ctx context.Context) error {
	if time.Since(s.renewed) >= s.period() {
		if err := s.renew(ctx); err != nil {
			return err
		}
	}
	leases, err := s.list(ctx)
	if err != nil {
		return err
	}
	if record, a := recordIn(leases); a != nil {
		s.adopt(record.ResourceVersion, a)
	}
	if s.report() != s.said {
		if err := s.renew(ctx); err != nil {
			return err
		}
		// The leader need not wait for its own report to come back.
		for i := range leases {
			if leases[i].Name == s.lease.Name {
				leases[i] = *s.lease
			}
		}
	}
	if !s.Leads() {
		return nil
	}
	return s.lead(ctx, leases)
}

// leave gives back what this replica has, unless it has lost it.
func (s *Shards) leave(ctx context.Context, cause error) {
	s.mu.Lock()
	s.ending = true
	until := s.until
	s.mu.Unlock()
	s.changed()
	if s.lease == nil || errors.Is(cause, errLost) {
		return
	}
	if !s.drain(ctx, until) {
		s.options.Log.Info("Work in flight did not end; its members rest until the Lease has run out", "replica", s.id)
		return
	}
	if err := s.remove(ctx, s.lease.Name, metav1.Preconditions{UID: &s.lease.UID}); err != nil {
		s.options.Log.Error(err, "Cannot give back the members; they rest until the Lease has run out", "replica", s.id)
		return
	}
	s.mu.Lock()
	leads := s.leadsNow()
	s.mu.Unlock()
	if !leads {
		return
	}
	leases, err := s.list(ctx)
	if err == nil {
		err = s.lead(ctx, leases)
	}
	if err != nil {
		s.options.Log.Error(err, "Cannot hand over the members; the next leader does")
	}
}

// drain waits until nothing is in flight, and reports whether that came about
// in time.
func (s *Shards) drain(ctx context.Context, until time.Time) bool {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	for {
		s.mu.Lock()
		busy := len(s.busy)
		s.mu.Unlock()
		if busy == 0 {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.poke:
		}
	}
}

// list reads all Leases at one moment, and not an old one.
func (s *Shards) list(ctx context.Context) ([]coordinationv1.Lease, error) {
	ctx, cancel := context.WithTimeout(ctx, s.period())
	defer cancel()
	list, err := s.leases.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing Leases: %w", err)
	}
	s.observe(list.Items, time.Now())
	return list.Items, nil
}

// recordIn returns the Lease with the assignment, and that, or nil if it is not
// there, or damaged.
func recordIn(leases []coordinationv1.Lease) (*coordinationv1.Lease, *assignment) {
	for i := range leases {
		if leases[i].Name != membersName {
			continue
		}
		a, err := parse(leases[i].Annotations[assignmentAnnotation])
		if err != nil {
			return &leases[i], nil
		}
		return &leases[i], a
	}
	return nil, nil
}

// watch wakes the loop when a Lease comes, goes or says something new.
func (s *Shards) watch(ctx context.Context) {
	for ctx.Err() == nil {
		s.follow(ctx)
		select { // Looking from time to time does without a watch, if more slowly.
		case <-ctx.Done():
		case <-time.After(s.period() / 4):
		}
	}
}

// follow watches for a while: a connection may be dead without a sign.
func (s *Shards) follow(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 20*s.period())
	defer cancel()
	w, err := s.leases.Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	defer w.Stop()
	said := map[string]string{}
	for {
		select {
		case <-ctx.Done():
			return
		case e, open := <-w.ResultChan():
			if !open {
				return
			}
			lease, ok := e.Object.(*coordinationv1.Lease)
			if !ok || lease.Name != membersName && !strings.HasPrefix(lease.Name, replicaPrefix) {
				continue
			}
			text := lease.Annotations[assignmentAnnotation] + lease.Annotations[reportAnnotation]
			was, known := said[lease.Name]
			said[lease.Name] = text
			if e.Type == watch.Deleted {
				delete(said, lease.Name)
			}
			if e.Type == watch.Deleted || !known || was != text || lease.Name == membersName {
				s.wake()
			}
		}
	}
}

// elector takes part in the election of a leader.
func (s *Shards) elector() (*leaderelection.LeaderElector, error) {
	return leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: leaderName,
		Lock: &timedLock{
			Interface: &resourcelock.LeaseLock{
				LeaseMeta:  metav1.ObjectMeta{Namespace: s.options.Namespace, Name: leaderName},
				Client:     s.options.Leases,
				LockConfig: resourcelock.ResourceLockConfig{Identity: s.id},
			},
			within: s.period(),
			held: func(began time.Time) {
				s.mu.Lock()
				s.leadUntil = began.Add(s.options.LeaseDuration * 2 / 3)
				s.mu.Unlock()
			},
		},
		LeaseDuration:   s.options.LeaseDuration,
		RenewDeadline:   s.options.LeaseDuration * 2 / 3,
		RetryPeriod:     s.options.LeaseDuration / 10,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { s.lift(true) },
			OnStoppedLeading: func() { s.lift(false) },
		},
	})
}

func (s *Shards) lift(elected bool) {
	s.mu.Lock()
	same := s.elected == elected
	s.elected = elected
	s.mu.Unlock()
	if same {
		return
	}
	s.options.Log.Info("Leadership changed", "leads", elected, "replica", s.id)
	s.wake()
	s.changed()
}

// timedLock bounds each request, as one without an answer would never end, and
// says when the last one began that made this replica the leader
// or kept it so: a process that was frozen must not take itself for the leader.
type timedLock struct {
	resourcelock.Interface

	within time.Duration
	held   func(began time.Time)
}

// Get is that of the lock.
func (l *timedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	ctx, cancel := context.WithTimeout(ctx, l.within)
	defer cancel()
	return l.Interface.Get(ctx)
}

// Create is that of the lock.
func (l *timedLock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, r, l.Interface.Create)
}

// Update is that of the lock.
func (l *timedLock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, r, l.Interface.Update)
}

func (l *timedLock) write(ctx context.Context, r resourcelock.LeaderElectionRecord, do func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, l.within)
	defer cancel()
	if err := do(ctx, r); err != nil {
		return err
	}
	if r.HolderIdentity == l.Identity() {
		l.held(began)
	}
	return nil
}
