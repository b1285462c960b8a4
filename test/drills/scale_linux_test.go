package drills

import (
	"os"
	"time"
)

// scale is the duration and the number of faults and changes.
type scale struct {
	// members is the number of members of a fleet.
	members int
	// stopped is the duration of an API server's outage that makes a member count as offline.
	stopped time.Duration
	// frozen is the time for which an etcd does not answer.
	frozen time.Duration
	// misbehaves is the duration of each kind of misbehavior of a member.
	misbehaves time.Duration
	// refused is the time for which a member continues to reject the credentials after the controllers have noticed it.
	refused time.Duration
	// hubStopped is the duration of an outage of the hub's API server.
	hubStopped time.Duration

	// objects is the number of objects at the beginning.
	objects int
	// kills is the number of kills of the controllers, changesByKill the number of changes between two kills.
	kills, changesByKill int
	// restarted is the number of objects for the restart of controllers without changes.
	restarted int
	// hubChanges is the number of changes during restarts of the hub.
	hubChanges int
	// frozenChanges is the number of changes while a replica is frozen, and again after it continues.
	frozenChanges int
}

// soak is for `make soak`: long enough for the longest backoff, and for rare events.
var soak = scale{
	members: 3,
	stopped: time.Minute, frozen: 15 * time.Second, misbehaves: 8 * time.Second, refused: 5 * time.Second, hubStopped: 2 * time.Second,
	objects: 60, kills: 20, changesByKill: 25, restarted: 300, hubChanges: 100, frozenChanges: 100,
}

// brief is for `make test`.
var brief = scale{
	members: 2, // The fault affects one, and must not affect the other.
	// Longer than two failing probes of a member, 2 × 6 s. Changes are made both before and after the member counts as
	// offline.
	stopped: 15 * time.Second,
	// Longer than the time until a probe fails, 6 s + 2 s, and much longer than the time until all workers of the
	// member wait for a response.
	frozen: 9 * time.Second,
	// Longer than the time until the circuit breaker has opened and has admitted two trial requests, 1 s + 2 s, each
	// ±20%.
	misbehaves: 4 * time.Second,
	// Longer than a dozen changes.
	refused: 2 * time.Second,
	// Longer than the rejection of requests, their retry, and the end of watches.
	hubStopped: time.Second,

	// More than the number of concurrent writes.
	objects: 20,
	kills:   4, changesByKill: 20,
	// More than the number of concurrent decisions, and of initial concurrent writes to a member.
	restarted:  70,
	hubChanges: 40,
	// Longer than the end and the restart of the frozen replica.
	frozenChanges: 60,
}

// size is the scale of this run.
var size = func() scale {
	if os.Getenv("REFRACT_SOAK") == "1" {
		return soak
	}
	return brief
}()
