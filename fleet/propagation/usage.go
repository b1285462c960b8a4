package propagation

import "refract.dev/tree"

// usage summarizes the objects that name a policy.
type usage struct {
	users    []Key
	clusters map[string]bool // The clusters with these objects.
	// behind is the number of users for which this generation of the policy is not in effect on all clusters. first is
	// the first of them by key.
	behind int
	first  Key
	// held is the number of users whose placement waits for approval. waiting is the first of them by key, and waits is
	// the change of its placement.
	held    int
	waiting Key
	waits   *heldPlacement
	// asked is the number of waiting users, by the token that approves the change for all of them. open is the question
	// that further users may join.
	asked map[string]int64
	open  asking
}

// usage summarizes the users of the policy at this generation.
func (s *state) usage(ref tree.Policy, generation int64) usage {
	s.mu.Lock()
	defer s.mu.Unlock()
	u := usage{clusters: map[string]bool{}, asked: map[string]int64{}, open: s.asking[ref]}
	for key := range s.users[ref] {
		e := s.objects[key]
		u.users = append(u.users, key)
		if h := e.desired.held; h != nil && e.desired.uses(ref, generation) {
			if u.held == 0 || compareKeys(key, u.waiting) < 0 {
				u.waiting, u.waits = key, h
			}
			u.held++
			if token := h.asked.Shared; token != "" && policyOf(e.desired) == ref {
				u.asked[token]++
			}
		}
		inEffect := e.desired.blocked == "" && e.desired.held == nil && e.wrong == 0 && e.desired.uses(ref, generation) && e.desired.governed.settled()
		for i := range e.desired.placed {
			u.clusters[e.desired.placed[i].Cluster] = true
		}
		if !inEffect {
			if u.behind == 0 || compareKeys(key, u.first) < 0 {
				u.first = key
			}
			u.behind++
		}
	}
	return u
}
