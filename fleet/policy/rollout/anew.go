package rollout

import (
	"slices"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// enter assigns [Found] to clusters that joined with other content than their assigned one, and reports whether there
// are any. Such content comes from an earlier time or another writer, and is replaced in the wave of the cluster. The
// RolloutStatus has room for only one revision besides the target and the last good one. So Found replaces a superseded
// target, and the clusters at that target are at Found as well.
func (r *rollout) enter() (came bool) {
	var names []string
	for i := range r.in.Clusters {
		if c := &r.in.Clusters[i]; c.Keeps && Assigned(r.RolloutStatus, c.Name).Name != Found {
			names = append(names, c.Name)
		}
	}
	if len(names) == 0 {
		return false
	}
	is := func(name string) bool { return slices.Contains(names, name) }
	r.Done = slices.DeleteFunc(r.Done, is)
	r.Reverting = slices.DeleteFunc(r.Reverting, is)
	r.Current = slices.DeleteFunc(r.Current, func(c refractv1alpha1.ReleasedCluster) bool { return is(c.Name) })
	r.Failed = slices.DeleteFunc(r.Failed, func(c refractv1alpha1.FailedCluster) bool { return is(c.Name) })
	r.Superseded = &refractv1alpha1.Revision{Name: Found}
	r.OnSuperseded = slices.Concat(r.OnSuperseded, names)
	slices.Sort(r.OnSuperseded)
	r.OnSuperseded = slices.Compact(r.OnSuperseded)
	return true
}

// found begins the RolloutStatus of an object from the contents of its clusters. If all reachable clusters hold the
// newest content or no copy, the rollout is complete; otherwise it begins from these contents. Offline clusters stay at
// [Found] until their content is known.
func (r *rollout) found() {
	r.Target = r.in.Target
	var offline []string
	seen := false
	if len(r.in.Clusters) == 0 {
		r.Message = placedNowhere
		return
	}
	for i := range r.in.Clusters {
		switch c := &r.in.Clusters[i]; {
		case c.Offline:
			offline = append(offline, c.Name)
		case c.Unseen:
			r.Message = First(r.Target).Message
			return
		case c.Keeps:
			r.keepFound()
			return
		default:
			seen = true
		}
	}
	if !seen {
		r.Message = "no cluster can be reached, so their content is unknown"
		return
	}
	r.Phase, r.LastGood = refractv1alpha1.RolloutComplete, r.Target
	if len(offline) > 0 {
		r.Superseded, r.OnSuperseded = &refractv1alpha1.Revision{Name: Found}, offline
	}
}

// keepFound begins a rollout from the current contents of the clusters. The rollout releases nothing in this call,
// because only the input of the next call states which of these contents the target changes.
func (r *rollout) keepFound() {
	r.Target, r.LastGood = r.in.Target, refractv1alpha1.Revision{Name: Found}
	r.Superseded, r.OnSuperseded = nil, nil
	r.start()
}

// begin begins a rollout to a new target.
func (r *rollout) begin() {
	before := r.Target
	switch r.Phase {
	case refractv1alpha1.RolloutComplete:
		r.LastGood = before
		r.forgetSuperseded()
	case refractv1alpha1.RolloutReverting, refractv1alpha1.RolloutStalled, refractv1alpha1.RolloutReverted:
		r.forgetSuperseded()
	default:
		// Clusters with the previous target keep it until their wave. Clusters with an even older target return to the
		// last good revision, because at most three revisions are kept. If other clusters are at Found, clusters with
		// the previous target return as well, because Found is then the third revision. A later revert includes the
		// clusters that have not returned by then.
		if had := slices.DeleteFunc(r.holders(), r.holdsNot); len(had) > 0 && !r.unseen() {
			r.Reverting = append(r.Reverting, r.OnSuperseded...)
			slices.Sort(r.Reverting)
			r.Reverting = slices.Compact(r.Reverting)
			r.Superseded, r.OnSuperseded = &before, had
		}
	}
	r.Target = r.in.Target
	var kept []string
	if r.Superseded != nil && r.Superseded.Name == r.Target.Name {
		r.Superseded, r.OnSuperseded, kept = nil, nil, r.OnSuperseded
	}
	r.start()
	for _, name := range kept {
		r.release(name) // These clusters have the new target already, and must become ready like other clusters.
	}
}

// forgetSuperseded removes the previous target from the RolloutStatus. Clusters at [Found] stay there.
func (r *rollout) forgetSuperseded() {
	if !r.unseen() {
		r.Superseded, r.OnSuperseded = nil, nil
	}
}

// start begins with the first wave. The list of clusters that have not been reverted yet stays, because the new rollout
// may fail as well.
func (r *rollout) start() {
	r.begun = true
	r.again()
	r.Phase, r.Opened, r.Began = refractv1alpha1.RolloutProgressing, 0, at(r.in.Now)
	r.Waves, r.Current, r.Done, r.Failed = nil, nil, nil, nil
}

// prune removes clusters that must no longer have a copy, and restarts the times of offline clusters.
func (r *rollout) prune() {
	unseen := r.unseen()
	r.OnSuperseded = slices.DeleteFunc(r.OnSuperseded, func(name string) bool {
		c := r.clusters[name]
		return c != nil && unseen && !c.Offline && !c.Unseen && !c.Keeps // The cluster need not keep its content, which is known now.
	})
	leave(r.RolloutStatus, func(name string) bool { return r.clusters[name] == nil })
	r.Offline = nil
	for i := range r.in.Clusters {
		if r.in.Clusters[i].Offline && r.Phase != refractv1alpha1.RolloutComplete {
			r.Offline = append(r.Offline, r.in.Clusters[i].Name)
		}
	}
	for i := range r.Current {
		if entry := &r.Current[i]; r.clusters[entry.Name].Offline {
			restart(entry, nil) // When the cluster is back, its time begins again.
		}
	}
}

// leave removes the clusters that have left the object.
func leave(s *refractv1alpha1.RolloutStatus, gone func(name string) bool) {
	s.Done, s.OnSuperseded, s.Reverting = slices.DeleteFunc(s.Done, gone), slices.DeleteFunc(s.OnSuperseded, gone), slices.DeleteFunc(s.Reverting, gone)
	s.Current = slices.DeleteFunc(s.Current, func(c refractv1alpha1.ReleasedCluster) bool { return gone(c.Name) })
	s.Failed = slices.DeleteFunc(s.Failed, func(c refractv1alpha1.FailedCluster) bool { return gone(c.Name) })
	if len(s.OnSuperseded) == 0 {
		s.OnSuperseded, s.Superseded = nil, nil
	}
}
