package propagation

import (
	"maps"
	"slices"

	"refract.dev/fleet/policy/placement"
)

// unsaid returns the clusters on which the followers of the object are unknown, sorted. There are two kinds. On the
// first, the object cannot be rendered, or the cluster keeps the content that it was found with. The second are not
// ready, and may have a copy outside the placement: an object that was deleted and created again is new to them, and is
// placed there when they are ready. If follower is not nil, the second kind counts only if the cluster may also have a
// copy of the follower.
func (e *objectState) unsaid(follower *objectState) (names []string) {
	if e.desired.gone {
		return nil
	}
	for name, t := range e.desired.targets {
		if t.err != nil || e.desired.governed.keeps(name) {
			names = append(names, name)
		}
	}
	for i := range e.desired.among {
		c := &e.desired.among[i]
		if !c.Ready && e.desired.targets[c.Name] == nil && e.concerns(c.Name) && (follower == nil || follower.concerns(c.Name)) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}

// setFollowers records the followers of the key. It returns the added, removed and changed ones.
func (s *state) setFollowers(key Key, e *objectState, follows map[Key][]string) (touched []Key) {
	for follower, clusters := range e.followers {
		if now, still := follows[follower]; still && slices.Equal(now, clusters) {
			continue
		} else if !still {
			delete(s.leaders[follower], key)
			if len(s.leaders[follower]) == 0 {
				delete(s.leaders, follower)
			}
		}
		touched = append(touched, follower)
	}
	for follower := range follows {
		if _, before := e.followers[follower]; before {
			continue
		}
		if s.leaders[follower] == nil {
			s.leaders[follower] = map[Key]bool{}
		}
		s.leaders[follower][key] = true
		touched = append(touched, follower)
	}
	e.followers = follows
	return touched
}

// withhold records the followers that are withheld from the key. It returns the followers that were withheld before
// from other clusters.
func (e *objectState) withhold(withheld map[Key][]string) (touched []Key) {
	for follower, clusters := range e.withheld {
		if !slices.Equal(withheld[follower], clusters) {
			touched = append(touched, follower)
		}
	}
	e.withheld = withheld
	return touched
}

// followed returns the leaders of the key (the objects that it travels with) and their clusters. before are its last
// known leaders, perhaps from before a restart: while one of them is not decided, or is gone for less than
// [leaderGrace], the key loses no cluster. Copies of volumes do not need that time, because their deletion waits for
// approval.
func (s *state) followed(key Key, before []Key) followed {
	s.mu.Lock()
	defer s.mu.Unlock()
	clusters := map[string]bool{}
	var leaders followed
	for leader := range s.leaders[key] {
		e := s.objects[leader]
		for _, name := range e.followers[key] {
			clusters[name] = true
		}
		leaders.by = append(leaders.by, leader)
		leaders.orphan = max(leaders.orphan, e.desired.orphan)
		leaders.keep(e.unsaid(s.objects[key]))
		leaders.keep(e.withheld[key])
	}
	present := len(leaders.by)
	for _, leader := range before {
		if leader == key {
			continue // A Propagation of an earlier version may name the object itself.
		}
		e := s.objects[leader]
		d, departed := s.gone.byKey[leader]
		switch {
		case departed && (e == nil || e.desired.gone):
			if left := s.gone.left(d); left > 0 && !placement.IsVolume(key.GroupResource) {
				leaders.by = append(leaders.by, leader)
				leaders.blocked, leaders.unsure = true, leaders.unsure || !d.known
				leaders.orphan = max(leaders.orphan, d.orphan)
				leaders.until = max(leaders.until, left)
			}
		case e == nil:
			leaders.unknown = append(leaders.unknown, leader)
		case (e.desired.blocked != "" || e.desired.dryRun) && !s.leaders[key][leader]:
			leaders.blocked = true
			leaders.by = append(leaders.by, leader)
			leaders.orphan = max(leaders.orphan, e.desired.orphan)
			leaders.until = max(leaders.until, leaderGrace) // The key is no follower now, so the end of the block causes no decision about it.
		case s.leaders[key][leader]:
		default:
			unsaid, withheld := leaders.keep(e.unsaid(s.objects[key])), leaders.keep(e.withheld[key])
			if unsaid || withheld {
				leaders.by = append(leaders.by, leader)
				leaders.orphan = max(leaders.orphan, e.desired.orphan)
				leaders.until = max(leaders.until, leaderGrace)
			}
		}
	}
	leaders.unsure = leaders.unsure && present == 0
	leaders.clusters = slices.Sorted(maps.Keys(clusters))
	slices.SortFunc(leaders.by, compareKeys)
	return leaders
}

// keep adds clusters that the key does not lose, and reports whether there were any.
func (l *followed) keep(clusters []string) (some bool) {
	for _, name := range clusters {
		if l.failing == nil {
			l.failing = map[string]bool{}
		}
		l.failing[name] = true
	}
	return len(clusters) > 0
}

// dismiss records that the leader does not exist. It returns its followers.
func (s *state) dismiss(leader Key) (followers []Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, e := range s.objects {
		if slices.Contains(e.previous.follows, leader) {
			followers = append(followers, key)
		}
	}
	if _, departed := s.gone.byKey[leader]; !departed && len(followers) > 0 {
		s.gone.add(leader, departure{})
	}
	return followers
}

// follows reports whether the key has a leader.
func (s *state) follows(key Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.leaders[key]) > 0
}
