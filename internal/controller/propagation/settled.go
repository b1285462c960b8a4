package propagation

import refractv1alpha1 "refract.dev/api/refract/v1alpha1"

// count counts anew.
func (e *objectState) count(own func(string) bool) {
	e.behind, e.wrong, e.awaited, e.own = 0, 0, 0, 0
	for name := range e.desired.targets {
		r := e.statuses[name]
		e.add(&r, 1)
		switch { // To ask whose it is costs a lock, which whoever writes to a member takes, too.
		case r.seq == e.desired.seq && r.foreign == nil, r.seq != e.desired.seq && own(name):
			e.own++
		case r.seq != e.desired.seq:
			e.awaited++
		}
	}
}

// settled reports whether all clusters have reported on the desired state that this replica writes to.
func (e *objectState) settled() bool {
	if e.desired.gone {
		return len(e.statuses)+len(e.previous.placed) == 0
	}
	return e.ownBehind() == 0
}

// ownBehind is how many of the clusters are behind that this replica writes to.
func (e *objectState) ownBehind() int { return max(e.behind-e.awaited, 0) }

// nearlySettled reports whether so few clusters are behind that they are not waited for: they may never report.
func (e *objectState) nearlySettled() bool { return e.ownBehind()*oneIn <= e.own }

// add counts the status of a cluster that is to have a copy, n times.
func (e *objectState) add(r *clusterStatus, n int) {
	if r.seq != e.desired.seq {
		e.behind += n
	}
	if r.seq != e.desired.seq || r.state != refractv1alpha1.StateSynced {
		e.wrong += n
	}
}

// settled reports whether all clusters have reported on the desired state, whoever writes to them, so that nothing more is to be
// waited for.
func (s *state) settled(key Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	return e == nil || e.settled() && e.behind == 0
}

// underway is how far it has come that an object's copies are written.
type underway struct {
	// behind are the clusters that have not reported on the desired state and that this replica writes to. Of an object that went these are all that may
	// still have a copy.
	behind int
	few    bool // Whether they are too few to be waited for.
	own    int  // How many clusters this replica writes to, at least one of which is behind unless they are few,
	of     int  // and how many there are in all.
	// fewOfAll is few of those that are behind of all.
	fewOfAll bool
}

// share is the part of the clusters that this replica writes to; 1 if it writes to none of them, and so has nothing to do with how long others
// take.
func (u underway) share() float64 {
	if u.own == 0 {
		return 1
	}
	return float64(u.own) / float64(u.of)
}

// underway returns how far an object has come.
func (s *state) underway(key Key) underway {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.objects[key]
	switch {
	case e == nil:
		return underway{few: true, fewOfAll: true}
	case e.desired.gone:
		n := max(len(e.statuses), len(e.previous.placed))
		return underway{behind: n, own: n, of: n, few: n == 0, fewOfAll: true} // Its namespace may wait for that.
	default:
		of := len(e.desired.targets)
		return underway{behind: e.ownBehind(), few: e.nearlySettled(), own: e.own, of: of, fewOfAll: e.behind*oneIn <= of}
	}
}
