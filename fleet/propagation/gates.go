package propagation

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/internal/jitter"
)

const (
	// firstProbe and lastProbe bound the time between requests at a gate. The time doubles after each failure.
	firstProbe = time.Second
	lastProbe  = 30 * time.Second
	// mostGates is the maximum number of closed gates of one member. Copies that meet other failures are tried again
	// one by one.
	mostGates = 1000
	// gateRest is the delay before a waiting copy is checked if its gate has not enqueued it earlier. This check makes
	// no request.
	gateRest = 10 * time.Minute
)

// gateID names a failure that many copies share on a member.
type gateID struct {
	reason string // The reason in the status of the copies.
	gateScope
	// name is the name of the webhook or of the quota.
	name string
	// creations is whether the failure concerns only copies that do not exist yet. large is whether it concerns only
	// copies of more than largeBody bytes.
	creations, large bool
}

// gateScope determines the copies that meet a failure.
type gateScope struct {
	// resource is the type of the copies; empty for all types. It has a version if the failure concerns one version only.
	resource schema.GroupVersionResource
	// namespace is the namespace of the copies. It is empty for all namespaces, and for copies without one.
	namespace string
}

// scopesOf returns the scopes of all failures that a copy may meet.
func scopesOf(key Key, version string) [3]gateScope {
	return [3]gateScope{
		{resource: key.WithVersion(version)},
		{namespace: key.Namespace},
		{resource: key.WithVersion(""), namespace: key.Namespace},
	}
}

// early reports whether the API server checks for this failure before all others. Any other error then proves that the
// failure is over.
func (id *gateID) early() bool { return id.name == "" }

// webhook reports whether the failure may concern only some copies of its scope. This is true of three failures: a
// webhook may select objects, an API server may not name the cause, and the limit of a size is unknown. Therefore a
// copy counts as failing only after its own request has failed.
func (id *gateID) webhook() bool {
	return id.reason == reasonWebhookFailed || id.reason == reasonWriteFailed || id.large
}

// gates hold the copies of one member that share a failure: a type that the member does not serve, a webhook that does
// not answer, a namespace that is being deleted. The copies wait at the gate of the failure, and one of them at a time
// is written as a probe. gates are safe for concurrent use. After a restart, all gates are open.
type gates struct {
	now func() time.Time
	// call enqueues a copy after the delay. It must not block.
	call func(Key, time.Duration)

	mu      sync.Mutex
	closed  map[gateScope][]*gate
	count   int
	waiting map[Key]*waiter
	probing map[Key][]*gate // The gates that a copy is the probe of.
	hooks   map[string]bool // The webhooks that have a probe.
}

// gate is the closed gate of one failure.
type gate struct {
	id     gateID
	since  time.Time
	met    string // The message of the last failure.
	remedy string
	pause  time.Duration // The time between probes.
	tried  time.Time     // The end of the last request.
	probe  Key           // The copy whose request is under way; zero for none.
	called Key           // The next probe; zero for none.
	// lenient is whether the gate lets copies pass until their own requests have failed. It is set only for failures of
	// kind [gateID.webhook].
	lenient bool
	copies  map[Key]*waiter
	// lines have the copies in order: first those whose own requests have not failed. A line may contain copies that have left.
	lines [2][]turn
}

// waiter is a copy that waits at a gate.
type waiter struct {
	gate   *gate
	number int    // The number of its newest turn.
	hash   string // The content of its own failed request; empty for none.
	stays  bool   // Whether it still waits after the current attempt.
}

// turn is the place of a copy in a line.
type turn struct {
	key    Key
	number int
}

// notice is the cluster status of a copy that waits.
type notice struct {
	state           refractv1alpha1.ClusterState
	reason, message string
}

// sinceMark divides a message: the part before it is the same after a restart.
const sinceMark = " Since "

func newGates(call func(Key, time.Duration)) *gates {
	return &gates{
		now: time.Now, call: call, closed: map[gateScope][]*gate{}, waiting: map[Key]*waiter{}, probing: map[Key][]*gate{}, hooks: map[string]bool{},
	}
}

func (is *gate) notice() *notice {
	state := refractv1alpha1.StateFailed
	if is.id.reason == reasonBeingDeleted {
		state = refractv1alpha1.StatePending
	}
	return &notice{state, is.id.reason, fmt.Sprintf("%s.%s%s all copies with this failure wait, and one at a time is tried. %s",
		is.met, sinceMark, is.since.UTC().Format(time.RFC3339), is.remedy)}
}

// rest is the delay before a waiting copy is checked if no gate calls it.
func (*gates) rest(key Key) time.Duration {
	return jitter.Between(recordName(key), gateRest, 2*gateRest)
}

// enter returns a notice for a copy that waits; nil if the copy may be written now. In that case the copy is the probe
// of its gates until [gates.leave]. creates is whether the copy does not exist yet, hash is the hash of its content,
// and size the length of its body in bytes.
func (g *gates) enter(key Key, version string, creates bool, hash string, size int) *notice {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.count == 0 {
		return nil
	}
	var probed []*gate
	for _, scope := range scopesOf(key, version) {
		for _, is := range g.closed[scope] {
			failed := g.hasFailed(key, is, hash)
			switch {
			case is.id.creations && !creates, is.id.large && size <= largeBody, is.lenient && !failed:
			case is.probe != Key{}, g.hookBusy(is), g.now().Before(is.due(failed)):
				if !failed {
					hash = ""
				}
				g.wait(key, is, hash)
				return is.notice()
			default:
				probed = append(probed, is)
			}
		}
	}
	for _, is := range probed {
		is.probe = key
		if is.called == key {
			is.called = Key{}
		}
		if is.id.webhook() {
			g.hooks[is.id.name] = true // A webhook keeps only one worker busy, however many gates it has.
		}
	}
	if len(probed) > 0 {
		g.probing[key] = probed
	}
	return nil
}

func (g *gates) hookBusy(is *gate) bool { return is.id.webhook() && g.hooks[is.id.name] }

// hasFailed reports whether the copy's own request with this content has failed at the gate.
func (g *gates) hasFailed(key Key, is *gate, hash string) bool {
	w := g.waiting[key]
	return w != nil && w.gate == is && w.hash == hash
}

// due is the time of the next request for a copy; failed is whether its own request has failed.
func (is *gate) due(failed bool) time.Time {
	if is.id.webhook() && !failed {
		return is.tried.Add(firstProbe)
	}
	return is.tried.Add(is.pause)
}

// failure is a failure that a copy has met.
type failure struct {
	gateID

	what, remedy string // The message and the remedy.
}

// failed lets a copy wait at the gate of a failure that its request has met. It returns nil if there are too many
// gates.
func (g *gates) failed(key Key, hash string, f *failure) *notice {
	g.mu.Lock()
	defer g.mu.Unlock()
	is := g.close(f)
	if is == nil {
		return nil
	}
	if is.probe == key && (!is.id.webhook() || g.hasFailed(key, is, hash)) {
		is.pause = min(2*is.pause, lastProbe)
	}
	is.met, is.remedy, is.tried, is.lenient = f.what, f.remedy, g.now(), false
	g.endProbe(key, is)
	g.wait(key, is, hash)
	return is.notice()
}

// shut closes the gate of a failure that is known without a request, and reports whether it was open.
func (g *gates) shut(f *failure) (now bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.gate(&f.gateID) != nil {
		return false
	}
	return g.close(f) != nil
}

// close returns the gate of a failure, and closes it if it was open; nil if there are too many gates. The lock must be
// held.
func (g *gates) close(f *failure) *gate {
	is := g.gate(&f.gateID)
	if is == nil && g.count < mostGates {
		now := g.now()
		is = &gate{id: f.gateID, since: now, tried: now, met: f.what, remedy: f.remedy, pause: firstProbe, copies: map[Key]*waiter{}}
		g.closed[is.id.gateScope] = append(g.closed[is.id.gateScope], is)
		g.count++
	}
	return is
}

func (g *gates) gate(id *gateID) *gate {
	for _, is := range g.closed[id.gateScope] {
		if is.id == *id {
			return is
		}
	}
	return nil
}

// passed notes that a copy was written. It opens the gates that the copy is the probe of.
func (g *gates) passed(key Key, hash string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, is := range slices.Clone(g.probing[key]) {
		if !is.id.webhook() || g.hasFailed(key, is, hash) {
			g.open(is)
		} else {
			g.relax(is)
		}
	}
}

// refused notes that the API server has rejected a copy for another reason.
func (g *gates) refused(key Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, is := range slices.Clone(g.probing[key]) {
		if is.id.early() || is.id.reason == reasonWriteFailed {
			g.open(is)
		}
	}
}

// over opens the gates of failures that are over.
func (g *gates) over(is func(*gateID) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, at := range g.like(is) {
		g.open(at)
	}
}

// hurry starts the next probe at once, because the failure may be over.
func (g *gates) hurry(may func(*gateID) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, at := range g.like(may) {
		at.pause, at.tried = firstProbe, time.Time{}
		if at.called != (Key{}) {
			g.call(at.called, 0)
		}
	}
}

// like returns the gates that satisfy the predicate. The lock must be held.
func (g *gates) like(is func(*gateID) bool) (found []*gate) {
	for _, all := range g.closed {
		for _, at := range all {
			if is(&at.id) {
				found = append(found, at)
			}
		}
	}
	return found
}

// leave ends an attempt to write a copy. If the copy is a probe without a result, another copy takes over.
func (g *gates) leave(key Key) {
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.waiting[key]
	switch {
	case w == nil:
	case w.stays:
		w.stays = false
	default:
		g.forget(key, w)
	}
	for _, is := range slices.Clone(g.probing[key]) {
		is.tried = g.now().Add(firstProbe - is.pause) // The next probe comes after a second.
		g.endProbe(key, is)
		g.next(is)
	}
}

// open enqueues all copies of a gate; the queue and the pace of the member limit their rate. The lock must be held.
func (g *gates) open(is *gate) {
	for key := range is.copies {
		delete(g.waiting, key)
		if key != is.probe {
			g.call(key, 0)
		}
	}
	clear(is.copies)
	g.endProbe(is.probe, is)
	g.next(is)
}

// relax enqueues the copies whose own requests have not failed, and lets such copies pass. The lock must be held.
func (g *gates) relax(is *gate) {
	is.lenient = true
	for key, w := range is.copies {
		if w.hash != "" {
			continue
		}
		delete(is.copies, key)
		delete(g.waiting, key)
		if key != is.probe {
			g.call(key, 0)
		}
	}
	g.endProbe(is.probe, is)
	g.next(is)
}

// endProbe ends the role of a copy as the probe of a gate, if it has this role. The lock must be held.
func (g *gates) endProbe(key Key, is *gate) {
	if is.probe != key || key == (Key{}) {
		return
	}
	is.probe = Key{}
	if is.id.webhook() {
		delete(g.hooks, is.id.name)
	}
	if g.probing[key] = slices.DeleteFunc(g.probing[key], func(at *gate) bool { return at == is }); len(g.probing[key]) == 0 {
		delete(g.probing, key)
	}
}

// forget ends the wait of a copy. The lock must be held.
func (g *gates) forget(key Key, w *waiter) {
	delete(g.waiting, key)
	delete(w.gate.copies, key)
	g.next(w.gate)
}

// wait lets a copy wait at the end of a line of a gate. hash is not empty if the copy's own request has failed. The
// lock must be held.
func (g *gates) wait(key Key, is *gate, hash string) {
	w := g.waiting[key]
	if w != nil && w.gate != is {
		g.forget(key, w)
		w = nil
	}
	if w == nil {
		w = &waiter{gate: is}
		g.waiting[key], is.copies[key] = w, w
	}
	w.number++
	w.hash, w.stays = hash, true
	line := &is.lines[0]
	if hash != "" {
		line = &is.lines[1]
	}
	if *line = append(*line, turn{key, w.number}); len(*line) > 2*len(is.copies)+16 {
		*line = slices.DeleteFunc(*line, func(at turn) bool { return !is.has(at) })
	}
	if is.called == key {
		is.called = Key{}
	}
	g.next(is)
}

// has reports whether a turn is the present turn of a waiting copy.
func (is *gate) has(at turn) bool {
	w := is.copies[at.key]
	return w != nil && w.number == at.number
}

// next calls the next probe, unless one is called or its request is under way. A gate without copies is removed. The
// lock must be held.
func (g *gates) next(is *gate) {
	if is.copies[is.called] == nil {
		is.called = Key{}
	}
	if is.probe != (Key{}) || is.called != (Key{}) {
		return
	}
	for failed := range is.lines {
		for len(is.lines[failed]) > 0 {
			at := is.lines[failed][0]
			is.lines[failed] = is.lines[failed][1:]
			if !is.has(at) {
				continue
			}
			after := max(is.due(failed == 1).Sub(g.now()), 0)
			if g.hookBusy(is) {
				after = max(after, firstProbe)
			}
			is.called = at.key
			g.call(at.key, after)
			return
		}
	}
	if at := g.closed[is.id.gateScope]; slices.Contains(at, is) {
		g.count--
		if at = slices.DeleteFunc(at, func(other *gate) bool { return other == is }); len(at) > 0 {
			g.closed[is.id.gateScope] = at
		} else {
			delete(g.closed, is.id.gateScope)
		}
	}
}
