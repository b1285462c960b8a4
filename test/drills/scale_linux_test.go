package drills

import (
	"os"
	"time"
)

// scale is how long faults last and how often they come.
type scale struct {
	// members is how many members a fleet has.
	members int
	// stopped is how long an API server is away while it is to be found out.
	stopped time.Duration
	// frozen is how long an etcd does not answer.
	frozen time.Duration
	// misbehaves is how long a member behaves badly in each of the ways.
	misbehaves time.Duration
	// refused is how long a member refuses the credentials after that was found out.
	refused time.Duration
	// hubStopped is how long the API server of the hub is away.
	hubStopped time.Duration

	// objects is how many objects there are in the beginning.
	objects int
	// kills is how often controllers are killed, and between how many changes each time.
	kills, changesByKill int
	// restarted is how many objects there are when controllers with nothing to do restart.
	restarted int
	// hubChanges is how many changes are made while the hub restarts.
	hubChanges int
	// frozenChanges is how many changes are made while a replica is frozen, and again
	// when it goes on.
	frozenChanges int
}

// soak is for `make soak`: long enough that whatever backs off has backed off as far as
// it does, and that what comes about now and then does.
var soak = scale{
	members: 3,
	stopped: time.Minute, frozen: 15 * time.Second, misbehaves: 8 * time.Second, refused: 5 * time.Second, hubStopped: 2 * time.Second,
	objects: 60, kills: 20, changesByKill: 25, restarted: 300, hubChanges: 100, frozenChanges: 100,
}

// brief is for `make test`.
var brief = scale{
	members: 2, // One that a fault happens to, and one that is not to notice.
	// More than two probes of a member may take to fail, 2 × 6 s: changes are made before
	// it is given up, and after.
	stopped: 15 * time.Second,
	// More than until a probe is due and has failed, 6 s + 2 s, and far more than it takes
	// for all that write to the member to wait for it.
	frozen: 9 * time.Second,
	// More than it takes for the breaker to open and to let others try twice, 1 s + 2 s,
	// give or take a fifth.
	misbehaves: 4 * time.Second,
	// More than it takes to make a dozen changes.
	refused: 2 * time.Second,
	// More than requests take to be refused and tried again, and watches to break.
	hubStopped: time.Second,

	// More than are written at once.
	objects: 20,
	kills:   4, changesByKill: 20,
	// More than are decided about at once, and than are written to a member at once in the beginning.
	restarted:  70,
	hubChanges: 40,
	// Takes longer than it takes for whoever was frozen to end and to be back at work.
	frozenChanges: 60,
}

// size is the scale of this run.
var size = func() scale {
	if os.Getenv("REFRACT_SOAK") == "1" {
		return soak
	}
	return brief
}()
