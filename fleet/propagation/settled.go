package propagation

import refractv1alpha1 "refract.dev/api/refract/v1alpha1"

// count computes all counts from the statuses.
func (e *objectState) count() {
	e.behind, e.wrong = 0, 0
	for name := range e.desired.targets {
		r := e.statuses[name]
		e.add(&r, 1)
	}
}

// settled reports whether all clusters have reported on the desired state.
func (e *objectState) settled() bool {
	if e.desired.gone {
		return len(e.statuses)+len(e.previous.placed) == 0
	}
	return e.behind == 0
}

// nearlySettled reports whether so few clusters are behind that a report does not wait for them: they may never
// report.
func (e *objectState) nearlySettled() bool { return e.behind*oneIn <= len(e.desired.targets) }

// add adds n to the counts for the status of a cluster that is to have a copy.
func (e *objectState) add(r *clusterStatus, n int) {
	if r.seq != e.desired.seq {
		e.behind += n
	}
	if r.seq != e.desired.seq || r.state != refractv1alpha1.StateSynced {
		e.wrong += n
	}
}

// settled reports whether all clusters have reported on the desired state, so that a report need not wait.
func (s *state) settled(key Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	return e == nil || e.settled()
}

// underway is the progress of the writes of an object's copies.
type underway struct {
	// behind is the number of clusters that have not reported on the desired state. For a deleted object, it counts all
	// clusters that may still have a copy.
	behind int
	few    bool // Whether so few clusters are behind that a report does not wait for them.
	of     int  // The number of all clusters.
}

// underway returns the progress of an object's copies.
func (s *state) underway(key Key) underway {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	switch {
	case e == nil:
		return underway{few: true}
	case e.desired.gone:
		n := max(len(e.statuses), len(e.previous.placed))
		return underway{behind: n, of: n, few: n == 0} // The deletion of its namespace may wait for the copies.
	default:
		return underway{behind: e.behind, few: e.nearlySettled(), of: len(e.desired.targets)}
	}
}
