package propagation

import (
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"refract.dev/placement"
)

const (
	// many is how many copies, and objects that are to be decided about, wait when reports yield to them.
	many = 64
	// mostYield is for how long a report yields at most, and yieldPerCluster how much longer for each cluster it has a status for: a
	// report of many costs as much as many of few.
	mostYield       = 10 * time.Second
	yieldPerCluster = 50 * time.Millisecond
	// yieldKept is for how long it is known since when a report has yielded that does not come again.
	yieldKept = 10 * time.Minute
	// yieldDelay is when a report that has yielded is looked at again.
	yieldDelay = time.Second
	// progress is what of reports a second does not yield, so that a large change shows how far it has come, in clusters: a report of
	// many takes the hub, and everybody who watches it, as much time as many of few. Each counts for leastProgress at least.
	progress      = 1000
	leastProgress = 100
	// looked is how often it is looked at how many copies wait.
	looked = 100 * time.Millisecond
)

// yielding has reports yield to copies, and to the decisions that they come of. When somebody changes a policy of many objects, what
// matters is that copies are written; each report costs the hub as much as a copy costs its member. It yields if nobody
// acts upon it: that it was written that the object is there, and where, and by what, and a rollout, are not for people
// alone.
type yielding struct {
	waiting func() int // How many copies and decisions wait.
	shown   *rate.Limiter

	mu   sync.Mutex
	busy bool
	at   time.Time // When that was looked at.
	// since is when each report began to yield that has not been written since.
	since map[Key]time.Time
}

func newYielding() *yielding {
	return &yielding{shown: rate.NewLimiter(progress, progress), waiting: func() int { return 0 }, since: map[Key]time.Time{}}
}

// yields reports whether the report on an object waits of which k is known. Share is the part of its clusters that this replica writes to, and
// so of the reports that show how far it has come.
func (y *yielding) yields(key Key, p *desiredState, k *known, share float64, now time.Time) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	if !y.isBusy(now) {
		delete(y.since, key)
		return false
	}
	switch {
	case k.version == "", k.deleting, k.source != p.uid, p.gone, p.governed != nil, k.rollout != nil:
	case !slices.EqualFunc(k.placed, p.placed, sameTarget), k.hash != p.hash, k.readBack != readBack(p.overrides, p.deleted, p.followed()):
	case y.long(key, now, len(p.targets)), y.shows(len(p.targets), share, now):
	default:
		return true
	}
	delete(y.since, key)
	return false
}

// shows reports whether the report on an object of so many clusters is one of those that do not yield. The lock must be held.
func (y *yielding) shows(clusters int, share float64, now time.Time) bool {
	y.shown.SetLimitAt(now, rate.Limit(progress*share))
	return y.shown.AllowN(now, min(max(clusters, leastProgress), progress))
}

func sameTarget(a, b placement.Target) bool {
	if a.Replicas == nil || b.Replicas == nil {
		return a.Cluster == b.Cluster && a.Replicas == b.Replicas
	}
	return a.Cluster == b.Cluster && *a.Replicas == *b.Replicas
}

// long reports whether a report on an object of so many clusters has yielded for long. The lock must be held.
func (y *yielding) long(key Key, now time.Time, clusters int) bool {
	since, yielded := y.since[key]
	if !yielded {
		y.since[key] = now
		return false
	}
	return now.Sub(since) > mostYield+time.Duration(clusters)*yieldPerCluster
}

// isBusy reports whether many copies wait. The lock must be held.
func (y *yielding) isBusy(now time.Time) bool {
	if now.Sub(y.at) >= looked {
		y.busy, y.at = y.waiting() >= many, now
		if !y.busy {
			maps.DeleteFunc(y.since, func(_ Key, since time.Time) bool { return now.Sub(since) > yieldKept })
		}
	}
	return y.busy
}
