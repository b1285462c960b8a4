package simulate

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"refract.dev/test/apiserver"
)

// systemNamespace is the namespace of Refract on the hub.
const systemNamespace = "kube-admiral-system"

// World is one run: the hub, its clusters, the processes of Refract, and the users. Only the driver calls its methods.
type World struct {
	// Rand provides the random numbers of the present step.
	Rand *rand.Rand
	// Hub is the API server that users write to.
	Hub *Target
	// Clusters are all existing clusters, whether they are members or not.
	Clusters []*Cluster
	// Processes are all processes that run, or ran.
	Processes []*Process
	// Skews are the errors of the clocks of the replicas' machines, by replica.
	Skews map[string]time.Duration
	// Journal contains the events.
	Journal *Journal

	people     people      // Memory of users.
	injection  *injection  // Restarts for injection on eu-1; nil in three of four worlds.
	operations []operation // Possible operations of a step.

	gates   *gates
	targets map[string]*Target
	oracle  *oracle
	uids    int
	streams int
	step    int
	began   time.Time
	failed  *Broken
	calm    bool // True while no fault may begin, as at the start and at the end.
	stats   stats
	settled int           // Number of calls of settle.
	recent  int           // Number of requests and events after the time in since.
	since   time.Duration // Begin of the count in recent.
	changed time.Duration // Time of the last change by a request, except for Leases.
	// listable is the last time at which the right to list a type was restored on a cluster; zero if it never was.
	listable time.Duration
}

// Target is an API server with its address.
type Target struct {
	Name, Host string
	Server     *apiserver.Server
	// Skew is the error of its clock; positive values are ahead.
	Skew time.Duration
	// Down is true while the server answers no requests.
	Down bool
	// Weather describes its faults.
	Weather Weather
}

// Weather describes the faults of an API server, each as a percentage.
type Weather struct {
	// Refuse is the share of requests that fail with an error and without an effect.
	Refuse int
	// Lose is the share of requests that take effect but whose responses are lost.
	Lose int
	// Conflict is the share of writes that fail as if another write had come first.
	Conflict int
	// Slow is the share of requests that wait while other requests are answered.
	Slow int
	// Break is the share of events in place of which the watch ends. Half of these watches end with 410 Gone and lose
	// their events.
	Break int
}

// Cluster is a cluster with its API server and its controllers.
type Cluster struct {
	Target

	// Index is its index in World.Clusters.
	Index int
	// Backup is an earlier state of its etcd, or nil.
	Backup *apiserver.Snapshot
	// Lab has its differences from other clusters; see members.go.
	Lab Lab
}

// Broken is a broken promise.
type Broken struct {
	// Invariant is the short name of the promise, and Message describes the violation.
	Invariant, Message string
	// Step is the step of the violation.
	Step int
}

// String returns the promise, the step and the description.
func (v *Broken) String() string {
	return fmt.Sprintf("%s at step %d: %s", v.Invariant, v.Step, v.Message)
}

type stats struct {
	requests, events int
	operations       map[string]int
}

// Now returns the time without skew.
func (w *World) Now() time.Time { return time.Now() }

// Elapsed returns the simulated duration of the run.
func (w *World) Elapsed() time.Duration { return time.Since(w.began) }

// Failf records the first violation.
func (w *World) Failf(invariant, format string, args ...any) {
	if w.failed == nil {
		w.failed = &Broken{Invariant: invariant, Message: w.plain(fmt.Sprintf(format, args...)), Step: w.step}
		w.Journal.add(w, violated, invariant+": "+w.failed.Message)
	}
}

func (w *World) target(host string) *Target { return w.targets[host] }

func (w *World) uid() types.UID {
	w.uids++
	return types.UID(fmt.Sprintf("00000000-0000-4000-8000-%012d", w.uids))
}

// token matches the output of crypto/rand.Text, the form of approval tokens.
var token = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)

// plain replaces the random parts of a text.
func (w *World) plain(text string) string {
	return token.ReplaceAllString(text, "TOKEN")
}

// settle returns when all processes wait for events. Workers that only wait for their [turn] continue before that.
//
// Each call waits for a different duration. Otherwise a timer of a process might fire at the same time as another
// event, and Go's scheduler would decide the order.
func (w *World) settle() {
	w.settled++
	time.Sleep(20*turns + time.Duration(w.settled*7919%9973))
	synctest.Wait()
}

// grid is the unit to which times of the processes are rounded up: all events within such an interval happen at its
// end.
const grid = 50 * time.Millisecond

// pass lets time pass until a request arrives, at most for the duration.
func (w *World) pass(most time.Duration) {
	end := time.Now().Add(most)
	for {
		w.settle()
		if len(w.gates.waiting()) > 0 || len(w.gates.undelivered()) > 0 {
			return
		}
		left := time.Until(end)
		if left <= 0 {
			return
		}
		select {
		case <-w.gates.arrived: // An earlier arrival.
			continue
		default:
		}
		timer := time.NewTimer(left)
		select {
		case <-w.gates.arrived:
			timer.Stop()
		case <-timer.C:
		}
		if rest := time.Since(w.began) % grid; rest > 0 {
			time.Sleep(grid - rest)
		}
	}
}
