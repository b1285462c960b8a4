package propagation

import "time"

// leaderGrace is the time for which the copies of a follower stay after its leader, the object that it travels with, is
// gone. `kubectl replace --force`, a sync with Replace and a reinstallation delete the leader and create it again.
const leaderGrace = time.Minute

// departures are the leaders that are gone, with the times when they went. Each is remembered for at least twice
// [leaderGrace]. The owner of the departures locks them.
//
// A leader counts as present until this process finds it gone. After a restart, its time starts again.
type departures struct {
	now   func() time.Time
	byKey map[Key]departure
	queue []departed // The oldest is first.
}

// departure describes a leader that is gone.
type departure struct {
	at    time.Time
	asked bool // Whether the leader was deleted by a call.
	// known is whether this process knew the leader before; orphan is the last value of the leader's annotation.
	known  bool
	orphan orphaning
}

type departed struct {
	key Key
	at  time.Time
}

func newDepartures(now func() time.Time) departures {
	return departures{now: now, byKey: map[Key]departure{}}
}

// add records that a leader is gone.
func (d *departures) add(key Key, is departure) {
	is.at = d.now()
	d.byKey[key] = is
	d.queue = append(d.queue, departed{key, is.at})
	for len(d.queue) > 0 && is.at.Sub(d.queue[0].at) > 2*leaderGrace {
		if oldest := d.queue[0]; d.byKey[oldest.key].at.Equal(oldest.at) {
			delete(d.byKey, oldest.key)
		}
		d.queue = d.queue[1:]
	}
}

// remove records that a leader exists.
func (d *departures) remove(key Key) { delete(d.byKey, key) }

// left returns the rest of the time for which the followers of a departed leader stay.
func (d *departures) left(is departure) time.Duration { return leaderGrace - d.now().Sub(is.at) }
