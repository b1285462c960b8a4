package propagation

import "time"

// leaderGrace is for how long the copies of an object stay as they are after what it travelled with is gone: `kubectl
// replace --force`, a sync with Replace and a reinstallation delete that and create it again.
const leaderGrace = time.Minute

// departures are the objects that are gone and that others may have travelled with, since when they are. Each is
// remembered for some time after its followers were decided about again; with a lock of its owner.
//
// Every replica measures the minute itself, from when it found the leader gone. After a restart it begins anew.
type departures struct {
	now   func() time.Time
	byKey map[Key]departure
	queue []departed // The oldest first.
}

// departure is what is known of a leader that is gone.
type departure struct {
	at    time.Time
	asked bool // Whether it was deleted by a call.
	// known is whether this process knew the leader before it was gone; orphan is what it said then.
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

// add records that an object is gone.
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

// remove records that an object is there.
func (d *departures) remove(key Key) { delete(d.byKey, key) }

// left returns for how long the followers of an object that is gone stay as they are.
func (d *departures) left(is departure) time.Duration { return leaderGrace - d.now().Sub(is.at) }
