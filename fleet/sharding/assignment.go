package sharding

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// An assignment says which replica has which members. It has a member at most once. A member that it does not have may
// be given to any replica.
type assignment struct {
	// Owned are the members by the replica that works on them.
	Owned map[string][]string `json:"owned,omitempty"`
	// Leaving are members by the replica that had them and must stop before another may have them.
	Leaving map[string][]string `json:"leaving,omitempty"`
	// Fence are replicas that may work on any member, as their assignment is not known: all replicas that existed when
	// the record had to be created again. No replica owns a member before these have stopped.
	Fence []string `json:"fence,omitempty"`
}

// A report is the statement of a replica that it works only on members that the assignment gives to it, except for work
// in flight.
type report struct {
	// Version is the resourceVersion of the assignment that the replica follows.
	Version string `json:"version,omitempty"`
	// Holding are members that the replica does not own and has writes in flight to.
	Holding []string `json:"holding,omitempty"`
}

// plan returns the assignment that follows the given one, which has this version. Have is nil if there is no valid
// assignment. The members and replicas are the current ones. A report counts only if it names this version. The
// arguments are not modified.
func plan(have *assignment, version string, members []string, replicas map[string]report) *assignment {
	ids := slices.Sorted(maps.Keys(replicas))
	if have == nil {
		return &assignment{Fence: ids}
	}
	next := &assignment{}
	leaving := map[string]string{} // From the member to the replica that must stop.
	next.Fence = have.await(version, replicas, leaving)
	owner := map[string]string{}
	for id, ms := range have.Owned {
		if _, alive := replicas[id]; !alive {
			continue // A replica without a Lease has stopped.
		}
		for _, m := range ms {
			owner[m] = id
		}
	}
	target := share(members, ids, owner)
	owned := map[string]string{}
	for m, id := range owner {
		if target[m] == id {
			owned[m] = id
		} else {
			leaving[m] = id
		}
	}
	for m, id := range target {
		if leaving[m] == "" && len(next.Fence) == 0 {
			owned[m] = id
		}
	}
	next.Owned, next.Leaving = byReplica(owned), byReplica(leaving)
	return next
}

// await adds to leaving the members that were taken from replicas which have not stopped yet, and returns the replicas
// that must still be fenced.
func (a *assignment) await(version string, replicas map[string]report, leaving map[string]string) []string {
	var fence []string
	for _, id := range a.Fence {
		r, alive := replicas[id]
		switch {
		case !alive:
		case r.Version != version:
			fence = append(fence, id)
		default:
			for _, m := range r.Holding {
				leaving[m] = id
			}
		}
	}
	for id, ms := range a.Leaving {
		r, alive := replicas[id]
		for _, m := range ms {
			if alive && (r.Version != version || slices.Contains(r.Holding, m)) {
				leaving[m] = id
			}
		}
	}
	return fence
}

func byReplica(of map[string]string) map[string][]string {
	out := map[string][]string{}
	for _, m := range slices.Sorted(maps.Keys(of)) {
		out[of[m]] = append(out[of[m]], m)
	}
	return out
}

// share returns the replica that should have each member. The numbers of members of two replicas differ by at most one,
// and as few members as possible change their owner. Rendezvous hashing decides the rest. The order of the arguments
// does not matter. The result has only members of the list.
func share(members, replicas []string, owner map[string]string) map[string]string {
	target := map[string]string{}
	if len(replicas) == 0 {
		return target
	}
	has := map[string][]string{}
	var free []string
	for _, m := range members {
		if id := owner[m]; slices.Contains(replicas, id) {
			has[id] = append(has[id], m)
		} else {
			free = append(free, m)
		}
	}
	// If the division leaves a remainder, the replicas with most members have one more.
	order := slices.Clone(replicas)
	slices.SortFunc(order, func(a, b string) int {
		return cmp.Or(len(has[b])-len(has[a]), cmp.Compare(a, b))
	})
	room := map[string]int{}
	for i, id := range order {
		quota := len(members) / len(order)
		if i < len(members)%len(order) {
			quota++
		}
		if len(has[id]) > quota {
			slices.SortFunc(has[id], func(a, b string) int { return compareScore(id, a, id, b) })
			free = append(free, has[id][quota:]...)
			has[id] = has[id][:quota]
		}
		for _, m := range has[id] {
			target[m] = id
		}
		room[id] = quota - len(has[id])
	}
	slices.Sort(free)
	for _, m := range free {
		best := ""
		for _, id := range order {
			if room[id] > 0 && (best == "" || compareScore(id, m, best, m) < 0) {
				best = id
			}
		}
		target[m] = best
		room[best]--
	}
	return target
}

// compareScore orders pairs of a replica and a member by rendezvous hashing, the best pair first.
func compareScore(replicaA, memberA, replicaB, memberB string) int {
	return cmp.Or(
		cmp.Compare(score(replicaB, memberB), score(replicaA, memberA)),
		cmp.Compare(replicaA, replicaB), cmp.Compare(memberA, memberB),
	)
}

func score(replica, member string) uint64 {
	sum := sha256.Sum256([]byte(replica + "\x00" + member))
	return binary.BigEndian.Uint64(sum[:])
}

// encode returns the unique text of an assignment or report.
func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // Strings, and lists and maps of strings, always have a text.
	}
	return string(text)
}

// parse reads an assignment. It rejects one that names a member twice.
func parse(text string) (*assignment, error) {
	a := &assignment{}
	if err := json.Unmarshal([]byte(text), a); err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for _, of := range []map[string][]string{a.Owned, a.Leaving} {
		for _, ms := range of {
			for _, m := range ms {
				if seen[m] {
					return nil, fmt.Errorf("duplicate member %q", m)
				}
				seen[m] = true
			}
		}
	}
	return a, nil
}
