package propagation

import (
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"refract.dev/fleet/policy/placement"
)

const (
	// many is the number of waiting copies and decisions that makes reports yield.
	many = 64
	// mostYield is the maximum time that a report yields, and yieldPerCluster the additional time for each of its
	// clusters: a report of many clusters costs as much as many reports of few.
	mostYield       = 10 * time.Second
	yieldPerCluster = 50 * time.Millisecond
	// yieldKept is the time after which the entry of a report that does not come again is dropped.
	yieldKept = 10 * time.Minute
	// yieldDelay is the delay before a report that has yielded is checked again.
	yieldDelay = time.Second
	// progress is the rate of reports that do not yield, in clusters per second, so that a large change shows its
	// progress. It counts clusters because a report of many costs the hub and its watchers as much as many reports of
	// few. A report counts for leastProgress at least.
	progress      = 1000
	leastProgress = 100
	// looked is the interval between checks of the number of waiting copies.
	looked = 100 * time.Millisecond
)

// yielding makes reports yield to copies and to the decisions that produce them. When a user changes a policy of many
// objects, the writes of copies are more important, and each report costs the hub as much as a copy costs its member.
// Reports that controllers or users act on do not yield: the first report of an object, a changed placement, changed
// inputs of the copies, and rollouts.
type yielding struct {
	waiting func() int // Returns the number of waiting copies and decisions.
	shown   *rate.Limiter

	mu   sync.Mutex
	busy bool
	at   time.Time // The time of the last check.
	// since has the time when each report began to yield, until it is written.
	since map[Key]time.Time
}

func newYielding() *yielding {
	return &yielding{shown: rate.NewLimiter(progress, progress), waiting: func() int { return 0 }, since: map[Key]time.Time{}}
}

// yields reports whether the report on an object waits. k is the known part of its Propagation.
func (y *yielding) yields(key Key, p *desiredState, k *known, now time.Time) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	if !y.isBusy(now) {
		delete(y.since, key)
		return false
	}
	switch {
	case k.version == "", k.deleting, k.source != p.uid, p.gone, p.governed != nil, k.rollout != nil:
	case !slices.EqualFunc(k.placed, p.placed, sameTarget), k.hash != p.hash, k.readBack != readBack(p.overrides, p.deleted),
		!slices.Equal(k.follows, followedBy(key, p.followed())):
	case y.long(key, now, len(p.targets)), y.shows(len(p.targets), now):
	default:
		return true
	}
	delete(y.since, key)
	return false
}

// shows reports whether the report on an object with this number of clusters is written without yielding, to show the
// progress. The rate of such reports is limited. The lock must be held.
func (y *yielding) shows(clusters int, now time.Time) bool {
	return y.shown.AllowN(now, min(max(clusters, leastProgress), progress))
}

func sameTarget(a, b placement.Target) bool {
	if a.Replicas == nil || b.Replicas == nil {
		return a.Cluster == b.Cluster && a.Replicas == b.Replicas
	}
	return a.Cluster == b.Cluster && *a.Replicas == *b.Replicas
}

// long reports whether a report on an object with this number of clusters has yielded for the maximum time. The lock
// must be held.
func (y *yielding) long(key Key, now time.Time, clusters int) bool {
	since, yielded := y.since[key]
	if !yielded {
		y.since[key] = now
		return false
	}
	return now.Sub(since) > mostYield+time.Duration(clusters)*yieldPerCluster
}

// isBusy reports whether many copies and decisions wait. The lock must be held.
func (y *yielding) isBusy(now time.Time) bool {
	if now.Sub(y.at) >= looked {
		y.busy, y.at = y.waiting() >= many, now
		if !y.busy {
			maps.DeleteFunc(y.since, func(_ Key, since time.Time) bool { return now.Sub(since) > yieldKept })
		}
	}
	return y.busy
}
