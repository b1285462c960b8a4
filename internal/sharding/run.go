package sharding

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
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
	elector, err := s.leadership.elector(&s.options, s.id)
	if err != nil {
		return fmt.Errorf("preparing the election of a leader: %w", err)
	}
	if err := s.bury(ctx); err != nil && ctx.Err() == nil {
		s.options.Log.Error(err, "Cannot take over yet from the replica that ran in this pod before")
	}
	// What follows ends later than ctx, to give back what there is.
	inner, cancel := context.WithCancel(klog.NewContext(context.WithoutCancel(ctx), s.options.Log))
	var running sync.WaitGroup
	deposed := make(chan struct{})
	running.Go(func() {
		defer close(deposed)
		elector.Run(inner)
	})
	running.Go(func() { s.client.watch(inner, s.wake) })
	err = s.loop(ctx, deposed)
	s.leave(inner, err)
	cancel()
	running.Wait()
	return err
}

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
			next.Reset(s.client.period / 2)
		default:
			next.Reset(time.Until(s.lease.renewed.Add(s.client.period)))
		}
	}
}

// step does all that is to be done now.
func (s *Shards) step(ctx context.Context) error {
	buried := s.bury(ctx) // If it fails it is tried again, and this replica goes on: it has to wait, and no more.
	if time.Since(s.lease.renewed) >= s.client.period {
		if err := s.renew(ctx); err != nil {
			return err
		}
	}
	leases, err := s.list(ctx)
	if err != nil {
		return err
	}
	if record, a := recordIn(leases); a != nil {
		s.adopt(record.ResourceVersion, a.Owned[s.id])
	}
	if s.owned.report() != s.lease.said {
		if err := s.renew(ctx); err != nil {
			return err
		}
		// The leader need not wait for its own report to come back.
		for i := range leases {
			if leases[i].Name == s.lease.lease.Name {
				leases[i] = *s.lease.lease
			}
		}
	}
	if !s.Leads() {
		return buried
	}
	return errors.Join(buried, s.assigner.assign(ctx, leases))
}

// renew renews the Lease of this replica, and with it the time that it may work.
func (s *Shards) renew(ctx context.Context) error {
	if err := s.lease.renew(ctx, s.owned.report()); err != nil {
		return err
	}
	s.owned.extend(s.lease.renewed.Add(s.options.LeaseDuration * 2 / 3))
	return nil
}

// list reads all Leases.
func (s *Shards) list(ctx context.Context) ([]coordinationv1.Lease, error) {
	leases, err := s.client.list(ctx)
	if err == nil {
		s.assigner.observe(leases, time.Now())
	}
	return leases, err
}

// adopt goes by a version of the assignment from here on.
func (s *Shards) adopt(version string, members []string) {
	if gained, lost := s.owned.adopt(version, members); gained+lost > 0 {
		s.options.Log.Info("Members changed hands", "gained", gained, "lost", lost, "owned", len(members))
		s.changed()
	}
}

// leave gives back what this replica has, unless it has lost it.
func (s *Shards) leave(ctx context.Context, cause error) {
	until := s.owned.end()
	s.changed()
	own := s.lease.lease
	if own == nil || errors.Is(cause, errLost) {
		return
	}
	if !s.drain(ctx, until) {
		s.options.Log.Info("Work in flight did not end; its members rest until the Lease has run out", "replica", s.id)
		return
	}
	if err := s.client.remove(ctx, own.Name, metav1.Preconditions{UID: &own.UID}); err != nil {
		s.options.Log.Error(err, "Cannot give back the members; they rest until the Lease has run out", "replica", s.id)
		return
	}
	if !s.leadership.holds() {
		return
	}
	leases, err := s.list(ctx)
	if err == nil {
		err = s.assigner.assign(ctx, leases)
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
		if s.owned.idle() {
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-s.poke:
		}
	}
}
