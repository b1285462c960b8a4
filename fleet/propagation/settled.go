package propagation

import refractv1alpha1 "refract.dev/api/refract/v1alpha1"

// count computes all counts from the statuses.
func (e *objectState) count(own func(string) bool) {
	e.behind, e.wrong, e.awaited, e.own = 0, 0, 0, 0
	for name := range e.desired.targets {
		r := e.statuses[name]
		e.add(&r, 1)
		switch { // The function own takes a lock that appliers take, too, so it is called only if necessary.
		case r.seq == e.desired.seq && r.foreign == nil, r.seq != e.desired.seq && own(name):
			e.own++
		case r.seq != e.desired.seq:
			e.awaited++
		}
	}
}

// settled reports whether all clusters of this replica have reported on the desired state.
func (e *objectState) settled() bool {
	if e.desired.gone {
		return len(e.statuses)+len(e.previous.placed) == 0
	}
	return e.ownBehind() == 0
}

// ownBehind returns how many clusters of this replica have not reported on the desired state.
func (e *objectState) ownBehind() int { return max(e.behind-e.awaited, 0) }

// nearlySettled reports whether so few clusters are behind that a report does not wait for them: they may never
// report.
func (e *objectState) nearlySettled() bool { return e.ownBehind()*oneIn <= e.own }

// add adds n to the counts for the status of a cluster that is to have a copy.
func (e *objectState) add(r *clusterStatus, n int) {
	if r.seq != e.desired.seq {
		e.behind += n
	}
	if r.seq != e.desired.seq || r.state != refractv1alpha1.StateSynced {
		e.wrong += n
	}
}

// settled reports whether all clusters, those of other replicas included, have reported on the desired state, so that
// a report need not wait.
func (s *state) settled(key Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	return e == nil || e.settled() && e.behind == 0
}

// underway is the progress of the writes of an object's copies.
type underway struct {
	// behind is the number of this replica's clusters that have not reported on the desired state. For a deleted
	// object, it counts all clusters that may still have a copy.
	behind int
	few    bool // Whether they are too few to wait for.
	own    int  // The number of clusters that this replica writes to; unless few is true, at least one of them is behind,
	of     int  // and the number of all clusters.
	// fewOfAll is the same as few for the clusters of all replicas.
	fewOfAll bool
}

// share returns the fraction of the clusters that this replica writes to. It returns 1 if it writes to none, as it
// does not share the work then.
func (u underway) share() float64 {
	if u.own == 0 {
		return 1
	}
	return float64(u.own) / float64(u.of)
}

// underway returns the progress of an object's copies.
func (s *state) underway(key Key) underway {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	switch {
	case e == nil:
		return underway{few: true, fewOfAll: true}
	case e.desired.gone:
		n := max(len(e.statuses), len(e.previous.placed))
		return underway{behind: n, own: n, of: n, few: n == 0, fewOfAll: true} // The deletion of its namespace may wait for the copies.
	default:
		of := len(e.desired.targets)
		return underway{behind: e.ownBehind(), few: e.nearlySettled(), own: e.own, of: of, fewOfAll: e.behind*oneIn <= of}
	}
}
