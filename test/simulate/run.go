package simulate

import (
	"io"
	"math/rand/v2"
	"slices"
	"time"
)

// Plan determines a run completely.
type Plan struct {
	// Seed is the seed of the initial world.
	Seed uint64
	// Steps are the seeds of the steps, in order.
	Steps []uint64
	// Even is for plans that are older than [ownOperations]: all operations have their original weights.
	Even bool
	// Focus is the number of the world's set of operations in [focuses], from 1; 0 means none.
	Focus int
}

const (
	// firstFocused is the first seed with a focus. These seeds use only the first five focuses, so that their histories
	// stay the same when focuses are added.
	firstFocused = 1001
	// firstOfSix is the first seed that may have one of the first six focuses.
	firstOfSix = 2001
	// firstOfAll is the first seed that may have any focus.
	firstOfAll = 10001
)

// NewPlan returns the plan of a seed.
func NewPlan(seed uint64, steps int) Plan {
	r := rand.New(rand.NewPCG(seed, 37))
	p := Plan{Seed: r.Uint64(), Steps: make([]uint64, steps)}
	for i := range p.Steps {
		p.Steps[i] = r.Uint64()
	}
	switch {
	case seed >= firstOfAll:
		p.Focus = 1 + int(seed%uint64(len(focuses)))
	case seed >= firstOfSix:
		p.Focus = 1 + int(seed%6)
	case seed >= firstFocused:
		p.Focus = 1 + int(seed%5)
	}
	return p
}

// with returns the plan with other steps.
func (p Plan) with(steps []uint64) Plan {
	p.Steps = steps
	return p
}

// Result is the result of a run.
type Result struct {
	Violation *Broken
	// Steps is the number of steps in the plan. Processes are Refract's processes, in the order of their starts.
	Steps      int
	Processes  []string
	Hash       string
	Entries    []Entry
	Requests   int
	Events     int
	Operations map[string]int
}

// operation is a possible action of a step.
type operation struct {
	name string
	// weight is the relative frequency of the operation.
	weight int
	// do performs the operation, and returns the actor and a sentence for the story. It returns an empty text if the
	// operation is currently impossible.
	do func(w *World) (actor, text string)
}

// Run runs a plan. It must be called in a bubble of testing/synctest. It prints every request to the writer unless the
// writer is nil.
func Run(p Plan, to io.Writer) *Result {
	w := newWorld(p.Seed, to)
	defer w.end()
	if p.Even {
		w.operations = slices.Concat(operations(), w.injectionOperations())
	}
	if p.Focus > 0 {
		w.operations = slices.Concat(focusedOn(w.operations, focuses[p.Focus-1].often), focuses[p.Focus-1].scenes)
	}
	w.begin()
	for i, seed := range p.Steps {
		if w.failed != nil {
			break
		}
		w.step = i + 1
		w.Rand = rand.New(rand.NewPCG(seed, 1))
		w.settle() // The processes handle the last response before the operation draws random numbers.
		w.operate()
		w.proceed()
		w.oracle.after(w)
	}
	if w.failed == nil {
		w.step = len(p.Steps) + 1
		w.Rand = rand.New(rand.NewPCG(p.Seed, 2))
		w.finish()
	}
	return w.result(len(p.Steps))
}

// result returns the result of a run.
func (w *World) result(steps int) *Result {
	r := &Result{
		Violation: w.failed, Steps: steps, Hash: w.Journal.Hash(), Entries: w.Journal.Entries,
		Requests: w.stats.requests, Events: w.stats.events, Operations: w.stats.operations,
	}
	for _, p := range w.Processes {
		r.Processes = append(r.Processes, p.Name)
	}
	return r
}

// operate performs one operation.
func (w *World) operate() {
	sum := 0
	for i := range w.operations {
		sum += w.operations[i].weight
	}
	for range mostChoices {
		o, began := chosen(w.operations, w.Rand.IntN(sum)), w.Journal.mark(w)
		if actor, text := o.do(w); text != "" {
			w.stats.operations[o.name]++
			w.Journal.addAt(w, began, actor, text)
			return
		}
	}
}

// ownOperations returns the operations of a world with the world's own weights. In every second world, some operations
// are missing, and some are four times as frequent. Some mistakes need many operations of one kind in sequence, or no
// operation of another kind in between; others need operations of many kinds.
func ownOperations(seed uint64, all []operation) []operation {
	r, own := rand.New(rand.NewPCG(seed, 4)), slices.Clone(all)
	if r.IntN(2) == 0 {
		return own
	}
	for i := range own {
		times := []int{0, 1, 1, 4}[r.IntN(4)]
		if mending[own[i].name] {
			times = max(times, 1)
		}
		own[i].weight *= times
	}
	return own
}

// focus is a set of operations that belong together.
type focus struct {
	// often are operations of all worlds that a world with the focus performs more often. scenes are operations that
	// only worlds with the focus have, with their weights.
	often  []string
	scenes []operation
}

// focuses are the possible focuses. A world with a focus performs its operations most of the time, because some faults
// need several of them within a minute.
//
//nolint:gochecknoglobals // It is a constant.
var focuses = []focus{
	{ // A rollout and its end.
		often: []string{
			"edit", "approve rollout", "resume rollout", "edit rollout policy", "change lab", "controller", "kill", "restart", "minutes pass",
		},
	},
	{ // The stored content of a rollout.
		often: []string{
			"edit", "approve rollout", "refuse revisions", "delete revision", "change lab", "controller", "kill", "restart", "backup", "restore hub",
		},
	},
	{ // Objects and policies that come and go.
		often: []string{
			"create", "edit", "label", "edit namespace", "delete", "replace --force", "edit placement", "delete report", "kill", "restart",
		},
	},
	{ // Types and namespaces that come and go.
		often: []string{
			"create", "edit", "member type", "hub type", "right on the hub", "delete namespace", "create namespace", "delete copies' namespace", "stop", "restart",
		},
	},
	{ // Clusters and replicas that come and go.
		often: []string{
			"edit", "rename", "finish rename", "second name", "unjoin", "finish unjoin", "join", "cut", "heal", "kill", "restart", "restore cluster", "backup",
		},
	},
	{ // Floors that come and go, and edits right after.
		often: []string{
			"set floor", "edit", "create", "minutes pass",
		},
	},
	{ // Edits right after a floor was set.
		often: []string{"create", "label", "kill", "restart"}, scenes: floorScenes,
	},
	{ // Copies that are lost during a long wave.
		often: []string{"minutes pass", "controller", "controllers"}, scenes: lossScenes,
	},
}

// focusTimes is the factor for the weights of the operations in a world's focus.
const focusTimes = 6

// focusedOn returns the operations with higher weights for those with these names.
func focusedOn(all []operation, names []string) []operation {
	all = slices.Clone(all)
	for i := range all {
		if slices.Contains(names, all[i].name) {
			all[i].weight = max(all[i].weight, 1) * focusTimes
		}
	}
	return all
}

// mending are the operations that no world lacks. Without them a fault would last to the end, or other operations would
// be impossible.
var mending = map[string]bool{
	"seconds pass": true, "clear weather": true, "api server up": true, "heal": true, "restart": true, "no front": true, "create": true,
	"controller": true, "injection: controllers move": true, "injection: injector is started": true,
}

// mostChoices is the maximum number of random choices in a step until one is possible.
const mostChoices = 5

// chosen returns the operation at a number below the sum of all weights. Each operation has as many numbers as its
// weight.
func chosen(all []operation, place int) *operation {
	for i := range all {
		if place -= all[i].weight; place < 0 {
			return &all[i]
		}
	}
	panic("the place is beyond the sum of all weights")
}

// proceed performs pending events. In every second step it performs all of them and lets some time pass, because real
// clusters mostly work well.
func (w *World) proceed() {
	switch w.Rand.IntN(6) {
	case 0, 1, 2:
		w.drain(time.Duration(1+w.Rand.IntN(8)) * time.Second)
	case 3:
		w.drain(time.Duration(w.Rand.IntN(2000)) * time.Millisecond)
	default:
		for range w.Rand.IntN(40) {
			if !w.deliver() {
				w.pass(time.Duration(50+w.Rand.IntN(500)) * time.Millisecond)
			}
		}
	}
}

// finish ends all faults, waits until the world is at rest, and checks the final state.
func (w *World) finish() {
	w.Journal.add(w, passing, "the steps are over: all faults end, each replica runs, and people finish what they left half done; "+
		"then nobody acts until nothing changes any more")
	const round = 20 * time.Second
	w.changed = w.Elapsed()
	w.oracle.repeated = map[string]int{}
	for end := w.Elapsed() + longestRest; w.Elapsed() < min(end, w.restsAt()) && w.failed == nil; {
		w.heal() // A process may end even now, because the hub was restored from a backup without its Lease.
		w.mend()
		w.controllersRun()
		w.drain(round)
	}
	w.oracle.after(w)
	if w.failed == nil {
		w.Journal.add(w, atEnd, "the history is over: what the hub and the clusters have is compared with the promises")
	}
	w.oracle.atEnd(w)
	if w.failed == nil {
		w.try()
	}
}

// restsAt returns the time at which the world is at rest if nothing changes before. After the return of a missing right
// to list a type, Refract tries the type again within 12 minutes, and then needs more time for the resulting work.
func (w *World) restsAt() time.Duration {
	if w.listable == 0 {
		return w.changed + w.calmAfter()
	}
	const again = 12 * time.Minute
	return max(w.changed, w.listable+again) + w.calmAfter()
}

// calmAfter is the time without changes after which the world is at rest. It is longer than all pauses of Refract,
// except those that policies set. Refract checks the objects to which injection policies refer every five minutes.
func (w *World) calmAfter() time.Duration {
	if w.injection != nil {
		return 6 * time.Minute
	}
	return 3 * time.Minute
}

// heal ends all faults, and starts each replica that is not running.
func (w *World) heal() {
	for _, t := range w.everyTarget() {
		t.Weather, t.Down = Weather{}, false
	}
	w.mendInjection()
	for _, replica := range append([]string{"refract-a", "refract-b"}, w.injectors()...) {
		w.revive(replica)
	}
	for _, p := range w.Processes {
		clear(p.cut)
	}
}

// revive starts a replica that is not running.
func (w *World) revive(replica string) bool {
	for _, p := range w.Processes {
		if p.Replica == replica && p.Running() {
			return false
		}
	}
	w.begun(replica)
	return true
}

func (w *World) everyTarget() []*Target {
	all := []*Target{w.Hub}
	for _, c := range w.Clusters {
		all = append(all, &c.Target)
	}
	return all
}

// end kills all processes and waits for their end.
func (w *World) end() {
	for _, p := range w.Processes {
		w.kill(p)
	}
	for _, p := range w.Processes {
		<-p.done
	}
	w.gates.open() // This also removes the streams.
}
