package propagation

import (
	"maps"
	"time"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

// report records the result of the desired state on the cluster. It returns whether all clusters have
// reported on the newest desired state, and whether a report is queued already that will include this result soon
// enough.
func (s *state) report(key Key, cluster string, r clusterStatus) (settled, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return false, true
	}
	target := e.desired.targets[cluster] != nil
	waited := !e.nearlySettled()
	if before := e.statuses[cluster]; target {
		e.add(&before, -1)
	}
	_, reported := e.statuses[cluster]
	if r.absent {
		delete(e.statuses, cluster)
		r = clusterStatus{}
		if !target {
			e.previous.placed = without(e.previous.placed, cluster)
		}
	} else {
		if now := e.statuses[cluster]; now.hash == r.hash {
			r.readySince = now.readySince // The readiness may have changed while the applier worked.
		}
		r.revision = ""
		if r.seq == e.desired.seq {
			r.revision = e.desired.governed.assigned(cluster)
		}
		e.statuses[cluster] = r
	}
	if _, reports := e.statuses[cluster]; reports != reported {
		s.copies.change(key.Namespace, cluster, target, reports)
	}
	if target {
		e.add(&r, 1)
	}
	if e.behind == 0 {
		s.dropBodies(e)
	}
	due = e.due && (!waited || e.settled() || !e.nearlySettled())
	e.due = true
	return e.settled(), due
}

// stray records an unknown copy of an object that is gone. Without this, the key could be forgotten before the
// applier of the cluster has checked the copy. The applier would then queue another decision, the key would be
// forgotten again, and so on.
func (s *state) stray(key Key, cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil || !e.desired.gone {
		return
	}
	if _, reported := e.statuses[cluster]; reported {
		return
	}
	e.statuses[cluster] = clusterStatus{state: refractv1alpha1.StateDeleting, reason: reasonSourceGone, message: e.desired.cause.of()}
	s.copies.change(key.Namespace, cluster, false, true)
}

// snapshot returns the desired state and the statuses of the key, and the facts from the last decision. Further
// changes will need another report.
func (s *state) snapshot(key Key) (p *desiredState, statuses map[string]clusterStatus, was previous, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return nil, nil, previous{}, false
	}
	e.due = false
	was = e.previous
	was.warned = e.warned
	return e.desired, maps.Clone(e.statuses), was, true
}

// emptied returns the time when a deleted object lost its last copy.
func (s *state) emptied(key Key, now time.Time) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return now
	}
	if e.emptied.IsZero() {
		e.emptied = now
	}
	return e.emptied
}

// warned records the reported warnings.
func (s *state) warned(key Key, warnings []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.objects[key]; e != nil {
		e.warned = warnings
	}
}

// correct records a correction for the next announcement.
func (s *state) correct(key Key, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	const most = 3 // More texts add no information to the next report.
	if e := s.objects[key]; e != nil && len(e.corrected) < most {
		e.corrected = append(e.corrected, text)
	}
}

// corrections returns the corrections since its last call.
func (s *state) corrections(key Key) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	if e == nil {
		return nil
	}
	texts := e.corrected
	e.corrected = nil
	return texts
}

// policiesOf returns the policies that the object names.
func (s *state) policiesOf(key Key) []tree.Policy {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.objects[key]; e != nil {
		return e.names
	}
	return nil
}
