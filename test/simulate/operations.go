package simulate

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// operations returns all operations of a step. Users act in 45 % of the steps, clusters in 25 %; the others are faults
// and time.
//
//nolint:gochecknoglobals // It is made once.
var operations = sync.OnceValue(func() []operation {
	return slices.Concat(userOperations(), operatorOperations(), memberOperations(), faultOperations(), timeOperations())
})

func timeOperations() []operation {
	return []operation{
		{"seconds pass", 60, func(w *World) (actor, text string) { return w.wait(time.Duration(1+w.Rand.IntN(20)) * time.Second) }},
		{"minutes pass", 8, func(w *World) (actor, text string) { return w.wait(time.Duration(1+w.Rand.IntN(3)) * time.Minute) }},
		{"long time passes", 1, func(w *World) (actor, text string) { return w.wait(time.Duration(10+w.Rand.IntN(20)) * time.Minute) }},
		{"clear weather", 12, (*World).clearWeather},
	}
}

// mostWithoutHub limits a wait while a replica cannot reach the hub, because the replica only retries meanwhile.
const mostWithoutHub = 2 * time.Minute

func (w *World) wait(long time.Duration) (actor, text string) {
	if w.Hub.Down || slices.ContainsFunc(w.running(), func(p *Process) bool { return p.cut[w.Hub] }) {
		long = min(long, mostWithoutHub)
	}
	w.drain(long)
	return passing, fmt.Sprintf("%s pass", long)
}

func faultOperations() []operation {
	return []operation{
		{"weather", 40, (*World).changeWeather},
		{"api server down", 12, (*World).stopServer},
		{"api server up", 22, (*World).startServer},
		{"cut", 12, (*World).cutProcess},
		{"heal", 16, (*World).healProcess},
		{"kill", 14, (*World).killProcess},
		{"stop", 6, (*World).stopProcess},
		{"restart", 24, (*World).restartProcess},
		{"backup", 8, (*World).backUp},
		{"restore cluster", 4, (*World).restoreCluster},
		{"restore hub", 3, (*World).restoreHub},
		{"rebuild cluster", 3, (*World).rebuildCluster},
		{"compact", 8, (*World).compact},
		{"skew", 6, (*World).skewClock},
		{"skew machine", 3, (*World).skewMachine},
	}
}

// anyTarget returns a random API server: the hub in one of three cases.
func (w *World) anyTarget() *Target {
	if w.Rand.IntN(3) == 0 {
		return w.Hub
	}
	return &pick(w, w.Clusters).Target
}

// changeWeather lets a share of the requests to an API server fail.
func (w *World) changeWeather() (actor, text string) {
	t := w.anyTarget()
	some := []int{2, 5, 15, 40}
	what := Weather{}
	switch w.Rand.IntN(6) {
	case 0:
		what.Refuse, text = pick(w, some), "%d %% of requests to %s fail with 429, 500, 503 or 504"
		text = fmt.Sprintf(text, what.Refuse, t.Name)
	case 1:
		what.Lose = pick(w, some)
		text = fmt.Sprintf("%d %% of answers of %s are lost", what.Lose, t.Name)
	case 2:
		what.Conflict = pick(w, some)
		text = fmt.Sprintf("%d %% of updates on %s conflict", what.Conflict, t.Name)
	case 3:
		what.Slow = pick(w, []int{30, 60, 90})
		text = fmt.Sprintf("%s is slow: it does not come to %d %% of requests at once", t.Name, what.Slow)
	case 4:
		what.Break = pick(w, some)
		text = fmt.Sprintf("%d %% of events end their watch of %s", what.Break, t.Name)
	default:
		what = Weather{Refuse: w.Rand.IntN(10), Lose: w.Rand.IntN(10), Conflict: w.Rand.IntN(10), Slow: w.Rand.IntN(30), Break: w.Rand.IntN(10)}
		text = fmt.Sprintf("requests to %s fail in many ways: %d %% are refused, %d %% of answers are lost, %d %% conflict, %d %% of events end their watch",
			t.Name, what.Refuse, what.Lose, what.Conflict, what.Break)
	}
	t.Weather = what
	return fault, text
}

func (w *World) clearWeather() (actor, text string) {
	for _, t := range w.everyTarget() {
		if t.Weather != (Weather{}) {
			t.Weather = Weather{}
			return fault, "requests to " + t.Name + " do not fail any more"
		}
	}
	return "", ""
}

// breakWatches breaks the watches of an API server, as the end of its process does. Clients notice this at different
// times, because each pauses for a random time.
func (w *World) breakWatches(t *Target) {
	for _, s := range w.gates.open() {
		if s.target == t {
			s.broken = true
		}
	}
}

func (w *World) stopServer() (actor, text string) {
	t := w.anyTarget()
	if t.Down {
		return "", ""
	}
	t.Down = true
	if w.Rand.IntN(2) == 0 { // Otherwise connections hang.
		w.breakWatches(t)
	}
	return fault, "the API server of " + t.Name + " is down"
}

func (w *World) startServer() (actor, text string) {
	for _, t := range w.everyTarget() {
		if t.Down {
			t.Down = false
			return fault, "the API server of " + t.Name + " is up again"
		}
	}
	return "", ""
}

// running returns the running processes.
func (w *World) running() (all []*Process) {
	for _, p := range w.Processes {
		if p.Running() {
			all = append(all, p)
		}
	}
	return all
}

func (w *World) cutProcess() (actor, text string) {
	p, t := pick(w, w.running()), w.anyTarget()
	if p == nil || p.cut[t] {
		return "", ""
	}
	p.cut[t] = true
	return fault, p.Name + " cannot reach " + t.Name
}

func (w *World) healProcess() (actor, text string) {
	for _, p := range w.running() {
		for _, t := range w.everyTarget() {
			if p.cut[t] {
				delete(p.cut, t)
				return fault, p.Name + " reaches " + t.Name + " again"
			}
		}
	}
	return "", ""
}

func (w *World) killProcess() (actor, text string) {
	p := pick(w, w.running())
	if p == nil {
		return "", ""
	}
	w.kill(p)
	text = p.Name + " is killed"
	if w.Rand.IntN(2) == 0 {
		text += fmt.Sprintf(", and starts again as %s", w.begun(p.Replica).Name)
	}
	return fault, text
}

func (w *World) stopProcess() (actor, text string) {
	p := pick(w, w.running())
	if p == nil {
		return "", ""
	}
	w.stop(p)
	return operator, "stops " + p.Name
}

// restartProcess starts a replica that is not running.
func (w *World) restartProcess() (actor, text string) {
	for _, p := range w.Processes {
		if w.revive(p.Replica) {
			return operator, "starts " + w.Processes[len(w.Processes)-1].Name
		}
	}
	return "", ""
}

// skewMachine sets the clock of the machine on which the next process of a replica will run.
func (w *World) skewMachine() (actor, text string) {
	replica := pick(w, replicasOfHub)
	w.Skews[replica] = time.Duration(w.Rand.IntN(31)-15) * time.Minute
	return fault, fmt.Sprintf("the machine on which %s starts the next time has a clock that is off by %s", replica, w.Skews[replica])
}

func (w *World) backUp() (actor, text string) {
	if w.Rand.IntN(3) == 0 {
		w.people.backup, w.people.hadWidgets = w.Hub.Server.Snapshot(), w.hubWidgets()
		return operator, "makes a backup of the hub"
	}
	c := pick(w, w.Clusters)
	c.Backup, c.Lab.then = c.Server.Snapshot(), served{c.Lab.Autoscaling, c.Lab.Widgets}
	return c.Name + "'s admin", "makes a backup of the cluster"
}

func (w *World) restoreCluster() (actor, text string) {
	c := pick(w, w.Clusters)
	if c.Backup == nil {
		return "", ""
	}
	w.breakWatches(&c.Target)
	c.Lab.served = c.Lab.then
	c.Server.SetTypes(w.typesOf(c))
	c.Server.Restore(c.Backup)
	return c.Name + "'s admin", "restores the cluster from the backup"
}

func (w *World) restoreHub() (actor, text string) {
	if w.people.backup == nil {
		return "", ""
	}
	w.breakWatches(w.Hub)
	w.Hub.Server.SetTypes(hubTypes(w.people.hadWidgets))
	w.Hub.Server.Restore(w.people.backup)
	return operator, "restores the hub from the backup"
}

// rebuildCluster removes all objects of a random cluster.
func (w *World) rebuildCluster() (actor, text string) { return w.rebuild(pick(w, w.Clusters)) }

func (w *World) rebuild(c *Cluster) (actor, text string) {
	if c.Down {
		return "", ""
	}
	w.breakWatches(&c.Target)
	c.Server.Wipe()
	c.Server.SetTypes(w.typesOf(c))
	c.Lab.Ailments = nil // Objects of the former cluster caused these faults.
	w.furnish(&c.Target)
	c.Backup = nil
	return c.Name + "'s admin", "builds the cluster anew: it is empty, and answers at the same address to the same credentials"
}

func (w *World) compact() (actor, text string) {
	t := w.anyTarget()
	t.Server.Compact()
	return fault, t.Name + " forgets old events: watches that begin there are refused with 410 Gone"
}

// skewClock sets the clock of a cluster's API server. The clock of the hub is set only at the beginning, because all
// times that Refract stores come from the hub's clock.
func (w *World) skewClock() (actor, text string) {
	c := pick(w, w.Clusters)
	c.Skew = time.Duration(w.Rand.IntN(31)-15) * time.Minute
	return fault, fmt.Sprintf("the clock of %s is off by %s", c.Name, c.Skew)
}
