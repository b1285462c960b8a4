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

// Run takes part until ctx ends, and then gives back the members and the leadership of this replica: it waits for the
// end of the work in flight, but no longer than the Lease certainly exists. It returns an error if the replica must end
// because others may have taken over: it lost the leadership, or its Lease. After Run has returned, the replica owns
// nothing, and Run must not be called again.
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
		s.options.Log.Error(err, "Cannot take over yet from the previous replica in this pod")
	}
	// The following goroutines end later than ctx, to give back members and leadership.
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

// loop takes steps until ctx ends or this replica must end.
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
			s.options.Log.Error(err, "Cannot take part in the distribution of members; trying again")
			next.Reset(s.client.period / 2)
		default:
			next.Reset(time.Until(s.lease.renewed.Add(s.client.period)))
		}
	}
}

// step does all work that is due.
func (s *Shards) step(ctx context.Context) error {
	buried := s.bury(ctx) // A failure is retried, and this replica continues; it only has to wait longer for its members.
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
		// The leader uses its own report without waiting for the next list.
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

// renew renews the Lease of this replica, and extends the time for its work.
func (s *Shards) renew(ctx context.Context) error {
	if err := s.lease.renew(ctx, s.owned.report()); err != nil {
		return err
	}
	s.owned.extend(s.lease.renewed.Add(s.options.LeaseDuration * 2 / 3))
	return nil
}

// list reads all Leases, and records their versions.
func (s *Shards) list(ctx context.Context) ([]coordinationv1.Lease, error) {
	leases, err := s.client.list(ctx)
	if err == nil {
		s.assigner.observe(leases, time.Now())
	}
	return leases, err
}

// adopt follows a version of the assignment from now on.
func (s *Shards) adopt(version string, members []string) {
	if gained, lost := s.owned.adopt(version, members); gained+lost > 0 {
		s.options.Log.Info("Members of this replica changed", "gained", gained, "lost", lost, "owned", len(members))
		s.changed()
	}
}

// leave gives back the members and the leadership of this replica, unless it has lost its Lease.
func (s *Shards) leave(ctx context.Context, cause error) {
	until := s.owned.end()
	s.changed()
	own := s.lease.lease
	if own == nil || errors.Is(cause, errLost) {
		return
	}
	if !s.drain(ctx, until) {
		s.options.Log.Info("Work in flight did not end; its members stay idle until the Lease expires", "replica", s.id)
		return
	}
	if err := s.client.remove(ctx, own.Name, metav1.Preconditions{UID: &own.UID}); err != nil {
		s.options.Log.Error(err, "Cannot release the members; they stay idle until the Lease expires", "replica", s.id)
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

// drain waits until no work is in flight, and reports whether this happened in time.
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
