package sharding

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// mostID is how many bytes an id may have.
const mostID = 253

// errRuns says that a process has a file locked.
var errRuns = errors.New("another process that runs has it")

// succession is a file that names a replica, and that this replica keeps locked for as long as its process lives. The
// kernel gives a lock back when the process has ended, however that came about: so whoever has the lock knows that the
// replica named before has ended.
type succession struct {
	file   *os.File // It is never closed: that would give the lock back.
	before string   // Id of the replica that had the file before; empty if there was none.
}

// succeed locks the file, which it makes if there is none, has it name this replica, and returns which one it named before.
// It returns errRuns if that one runs.
func succeed(path, id string) (*succession, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := lock(file); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	text, err := io.ReadAll(io.LimitReader(file, mostID+1))
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	// A crash between the two leaves a file that names nobody, which says nothing.
	if err := file.Truncate(0); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if _, err := file.WriteAt([]byte(id+"\n"), 0); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	before, whole := strings.CutSuffix(string(text), "\n")
	if !whole {
		before = ""
	}
	return &succession{file, before}, nil
}

// bury takes the Leases of the replica before away, which has ended: nobody need wait for them.
func (s *Shards) bury(ctx context.Context) error {
	if s.succession == nil || s.succession.before == "" {
		return nil
	}
	before := s.succession.before
	s.options.Log.Info("The replica that ran here before has ended: it is not waited for", "before", before, "replica", s.id)
	if err := s.client.remove(ctx, replicaPrefix+before, metav1.Preconditions{}); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.client.period)
	defer cancel()
	lease, err := s.client.leases.Get(ctx, leaderName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity != before) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading Lease %s: %w", leaderName, err)
	}
	lease.Spec.HolderIdentity = new("")
	if _, err := s.client.write(ctx, lease); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
		return fmt.Errorf("taking Lease %s from a replica that has ended: %w", leaderName, err)
	}
	return nil
}
