package propagation

import (
	"crypto/sha256"
	"slices"
	"time"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// The leading replica and the replica of a member both write the row of that member, and each corrects the other. Two
// versions of Refract may never agree during an upgrade. Without a limit, both would then write the record every two
// seconds forever. So a replica that does not lead repeats the same statement at growing intervals, from
// leastInsisting to mostInsisting. It reports new facts at once.
const (
	leastInsisting = time.Second
	mostInsisting  = 2 * time.Minute
)

// insisting is the last statement that a replica without the lead wrote into a record.
type insisting struct {
	said [sha256.Size]byte // Digest of the statement and of the statement that it answers: see [reporter.against].
	at   time.Time
	// pause is the time before the same statement is repeated.
	pause time.Duration
}

// against returns the status to digest for [state.insists]: the status s, with only the rows of this replica, both
// the new ones and the rows in the record before the write. So the digest changes when this replica, its earlier rows
// or the statement of the leading replica about the object change. The rows of other replicas are left out, because
// these replicas write them at any time.
func (rep *reporter) against(before []refractv1alpha1.ClusterStatus, s *refractv1alpha1.PropagationStatus) *refractv1alpha1.PropagationStatus {
	is := *s
	is.Clusters = slices.DeleteFunc(slices.Concat(before, s.Clusters), func(row refractv1alpha1.ClusterStatus) bool { return !rep.shards.Owns(row.Name) })
	return &is
}

// insists returns how long a replica that does not lead waits before it repeats a statement about an object; zero if
// it may write now.
func (s *state) insists(key Key, said [sha256.Size]byte, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil || e.insisting == nil || e.insisting.said != said {
		return 0
	}
	return max(e.insisting.at.Add(e.insisting.pause).Sub(now), 0)
}

// insisted records that the replica wrote the statement. After a silence of 2 × mostInsisting, the pause starts again
// at leastInsisting.
func (s *state) insisted(key Key, said [sha256.Size]byte, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return
	}
	pause := leastInsisting
	if was := e.insisting; was != nil && was.said == said && now.Sub(was.at) < 2*mostInsisting {
		pause = min(2*was.pause, mostInsisting)
	}
	e.insisting = &insisting{said, now, pause}
}
