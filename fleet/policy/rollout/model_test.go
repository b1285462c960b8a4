package rollout

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/match"
)

// TestModel simulates random histories of fleets: edits of the object and of its policies, failures, clusters that
// join, leave and go offline, restarts between any two steps, lost RolloutStatuses and revisions, fleets with existing
// content, premature and repeated approvals. It checks the laws after every step. REFRACT_HISTORIES is the number of
// histories, 500 by default, and REFRACT_SEED is the first seed.
func TestModel(t *testing.T) {
	t.Parallel()
	histories, seed := number("REFRACT_HISTORIES", 500), number("REFRACT_SEED", 1)
	const steps = 50
	reached, assigned := map[refractv1alpha1.RolloutPhase]int{}, map[string]int{}
	for i := range histories {
		w := newWorld(uint64(seed + i))
		for step := range steps {
			if err := w.step(); err != nil {
				t.Fatalf("history %d, step %d: %v\n%s", seed+i, step, err, strings.Join(w.log, "\n"))
			}
			reached[w.status.Phase]++
			for _, m := range w.members {
				if m.there {
					assigned[kindOf(w.status, m.Name)]++
				}
			}
		}
		if err := w.settle(); err != nil {
			t.Fatalf("history %d, at its end: %v\n%s", seed+i, err, strings.Join(w.log, "\n"))
		}
	}
	for _, phase := range []refractv1alpha1.RolloutPhase{
		refractv1alpha1.RolloutProgressing, refractv1alpha1.RolloutWaiting, refractv1alpha1.RolloutHalted,
		refractv1alpha1.RolloutReverting, refractv1alpha1.RolloutStalled, refractv1alpha1.RolloutReverted, refractv1alpha1.RolloutComplete,
	} {
		if reached[phase] < histories/20 {
			t.Errorf("phase %s occurred in only %d steps: the histories hardly test it", phase, reached[phase])
		}
	}
	for _, kind := range []string{"target", "good", "superseded", "found", "found beside another good one"} {
		if assigned[kind] < histories/20 {
			t.Errorf("only %d clusters had %s: the histories hardly test it", assigned[kind], kind)
		}
	}
	t.Logf("%d histories of %d steps; phases: %v; what clusters have: %v", histories, steps, reached, assigned)
}

func number(variable string, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv(variable)); err == nil {
		return n
	}
	return otherwise
}

// member is the real state of a cluster.
type member struct {
	match.Cluster

	there, offline, refuses bool
	content                 string // The content of the copy.
	wrote                   time.Time
	writes                  int // Number of the writes of its copy.
	ready                   bool
	since                   time.Time // Start of the readiness, as a replica remembers it.
	really                  time.Time // The real start of the readiness.
	recorded                time.Time // The value of since, as the Propagation stores it.
	reached                 time.Time // When the cluster became reachable.
	unknown                 bool      // Whether the replica has restarted and has not read the copy yet.

	account
}

// world is a fleet, the policies of an object, and the state of its rollout.
type world struct {
	*rand.Rand

	spec    refractv1alpha1.RolloutPolicySpec
	floor   *refractv1alpha1.RolloutPolicySpec
	edits   int64 // Number of edits of spec and floor.
	policy  *Policy
	hold    bool
	members []*member
	target  int
	now     time.Time
	status  *refractv1alpha1.RolloutStatus
	paused  bool
	approve string
	resume  string
	bad     map[string]bool // Members and contents that do not become ready.
	changed bool            // Whether the object was edited or a user resumed the rollout since the last call.
	log     []string

	hub
}

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func newWorld(seed uint64) *world {
	w := &world{Rand: rand.New(rand.NewPCG(seed, 7)), now: start, bad: map[string]bool{}}
	w.spec = w.anySpec()
	if w.IntN(4) == 0 {
		floor := w.anySpec()
		w.floor = &floor
	}
	w.compile()
	for i := range 1 + w.IntN(8) {
		m := &member{Cluster: match.Cluster{
			Name:   fmt.Sprintf("c%d", i),
			Labels: map[string]string{"region": fmt.Sprintf("r%d", w.IntN(3)), "ring": fmt.Sprint(w.IntN(4))},
		}, there: w.IntN(5) > 0}
		w.members = append(w.members, m)
	}
	w.notef("policy %+v floor %+v", w.spec, w.floor)
	if w.hub = newHub(); w.IntN(2) == 0 {
		w.foundWith()
		return w
	}
	w.status, _ = w.next(nil, w.input())
	for _, m := range w.members {
		m.allow(contentOf(&w.status.Target, m))
		if err := w.write(m); err != nil {
			panic(err)
		}
		m.ready, m.since, m.really = true, w.now, w.now
	}
	return w
}

func (w *world) notef(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *world) anySpec() refractv1alpha1.RolloutPolicySpec {
	s := refractv1alpha1.RolloutPolicySpec{Health: &refractv1alpha1.RolloutHealth{TimeoutSeconds: int32(20 + w.IntN(60))}}
	for i := range w.IntN(4) {
		wave := refractv1alpha1.RolloutWave{Name: fmt.Sprintf("w%d", i), MinReadySeconds: int32(w.IntN(3) * 15)}
		if w.IntN(4) == 0 {
			wave.Strategy = refractv1alpha1.WaveManual
		}
		switch w.IntN(3) {
		case 0:
			wave.TargetClusters = &corev1alpha1.TargetClusters{Clusters: []string{fmt.Sprintf("c%d", w.IntN(8))}}
		case 1:
			wave.TargetClusters = &corev1alpha1.TargetClusters{ClusterSelector: map[string]string{"ring": fmt.Sprint(w.IntN(4))}}
		}
		switch w.IntN(3) {
		case 0:
			most := intstr.FromInt32(int32(1 + w.IntN(2)))
			wave.MaxConcurrent = &most
		case 1:
			most := intstr.FromString(fmt.Sprintf("%d%%", 1+w.IntN(100)))
			wave.MaxConcurrent = &most
		}
		s.Waves = append(s.Waves, wave)
	}
	s.OnFailure = &refractv1alpha1.RolloutOnFailure{MaxFailures: int32(w.IntN(4) / 2)}
	if w.IntN(2) == 0 {
		s.OnFailure.Action = refractv1alpha1.ActionRevert
	}
	if w.IntN(3) == 0 {
		s.Budgets = []refractv1alpha1.RolloutBudget{{Label: "region", MaxUnavailable: int32(1 + w.IntN(2))}}
	}
	if w.IntN(5) == 0 {
		s.MaxChange = &refractv1alpha1.RolloutMaxChange{Clusters: int32(w.IntN(6))}
	}
	return s
}

func (w *world) compile() {
	again := (w.edits + 1) / 2 // Every other edit deletes the policy and creates it again.
	p, errs := Compile(&refractv1alpha1.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "own", UID: types.UID(fmt.Sprint(again)), Generation: 1 + w.edits - again}, Spec: w.spec,
	})
	if len(errs) > 0 {
		panic(errs)
	}
	if w.floor != nil {
		f, errs := CompileCluster(&refractv1alpha1.ClusterRolloutPolicy{ObjectMeta: metav1.ObjectMeta{Name: "floor"}, Spec: refractv1alpha1.ClusterRolloutPolicySpec{RolloutPolicySpec: *w.floor}})
		if len(errs) > 0 {
			panic(errs)
		}
		p = p.Inside(f)
	}
	w.policy = p
}

func revision(n int) refractv1alpha1.Revision {
	return refractv1alpha1.Revision{Name: fmt.Sprintf("rev%d", n), Generation: int64(n + 1)}
}

// contentOf returns the content of a revision for a member. Each revision leaves the content of some members unchanged.
func contentOf(r *refractv1alpha1.Revision, m *member) string {
	if r.Name == Found {
		return m.good
	}
	n, _ := strconv.Atoi(strings.TrimPrefix(r.Name, "rev"))
	for n > 0 && (n*7+int(m.Name[1])*3)%4 == 0 {
		n--
	}
	return fmt.Sprintf("content%d", n)
}

// step applies a random event, and calls Next.
func (w *world) step() error {
	m := w.members[w.IntN(len(w.members))]
	switch w.IntN(22) {
	case 0, 13: // An edit, to new or earlier content.
		w.target = w.IntN(6)
		if w.IntN(3) == 0 {
			for _, x := range w.members {
				if w.IntN(2) == 0 {
					r := revision(w.target)
					w.bad[x.Name+contentOf(&r, x)] = true
				}
			}
		}
		w.changed = true
		w.notef("edit: rev%d, bad %v", w.target, slices.Sorted(maps.Keys(w.bad)))
	case 1:
		w.moves(m)
	case 2, 14:
		m.offline = !m.offline
		m.really, m.reached = w.now, w.now // The state in between is unknown.
		w.notef("%s offline %t", m.Name, m.offline)
	case 3: // A good content becomes bad, or a bad one becomes good.
		key := m.Name + m.content
		if w.IntN(3) == 0 && m.content != "" {
			w.bad[key] = !w.bad[key]
			w.notef("%s bad %t", key, w.bad[key])
		}
	case 4:
		m.refuses = w.IntN(4) == 0
		w.notef("%s refuses %t", m.Name, m.refuses)
	case 5:
		w.paused = w.IntN(3) == 0
		w.notef("paused %t", w.paused)
	case 6, 7:
		w.approve = w.awaits()
		w.notef("approve %s", w.approve)
	case 8:
		if w.resume = w.awaits(); w.status != nil && Stopped(w.status) && w.resume != "" {
			w.changed = true
		}
		w.notef("resume %s", w.resume)
	case 9: // The replicas restart, and remember only recorded times.
		for _, x := range w.members {
			if x.since = w.now; !x.recorded.IsZero() {
				x.since = x.recorded
			}
			x.unknown = w.IntN(2) == 0
		}
		w.notef("restart")
	case 10:
		w.hold = w.IntN(3) == 0
		w.notef("policy gone %t", w.hold)
	case 15: // A member was not ready for a moment between two calls.
		if m.ready && !m.offline {
			m.since, m.really = w.now, w.now
			w.notef("%s was not ready for a moment", m.Name)
		}
	case 16: // A copy is deleted or changed, and corrected between two calls.
		if m.ready && !m.offline {
			m.really = w.now
			m.writes++
			w.notef("%s has its copy again", m.Name)
		}
	case 11:
		if w.IntN(3) == 0 && m.content != "" && !m.offline { // Another writer changes the copy.
			m.content, m.ready = "drifted", false
			m.drifts()
			w.notef("%s drifts", m.Name)
		}
	case 12:
		if w.IntN(3) == 0 {
			m.Labels = map[string]string{"region": fmt.Sprintf("r%d", w.IntN(3)), "ring": fmt.Sprint(w.IntN(4))}
			w.notef("%s labels %v", m.Name, m.Labels)
		}
	default:
		w.ofHub()
	}
	if w.IntN(40) == 0 { // A user edits a policy.
		if w.floor != nil && w.IntN(2) == 0 {
			floor := w.anySpec()
			w.floor = &floor
		} else {
			w.spec = w.anySpec()
		}
		w.edits++
		w.compile()
		w.notef("policy %+v floor %+v", w.spec, w.floor)
	}
	w.now = w.now.Add(time.Duration(w.IntN(12)) * time.Second)
	return w.live(w.IntN(3))
}

// moves makes a member without a copy join, or a member leave with its copy.
func (w *world) moves(m *member) {
	m.there = !m.there
	m.content, m.ready = "", false
	if m.account = (account{back: true}); m.there && w.status != nil && w.status.LastGood.Name != Found {
		m.good = contentOf(&w.status.LastGood, m)
	}
	w.notef("%s there %t", m.Name, m.there)
}

// live makes some members apply their assigned content, and calls Next.
func (w *world) live(most int) error {
	for _, m := range w.members {
		if w.IntN(3) <= most {
			if err := w.write(m); err != nil {
				return err
			}
			m.unseen = m.unseen && m.offline
		}
		w.become(m)
	}
	return w.check()
}

// write applies the assigned content to a member.
func (w *world) write(m *member) error {
	if !m.there || m.offline || w.status == nil {
		return nil
	}
	has := Assigned(w.status, m.Name)
	want := contentOf(has, m)
	if has.Name == Found || w.isLost(has) || m.content == want || m.refuses {
		return nil
	}
	if err := w.receives(m, want); err != nil {
		return err
	}
	m.content, m.ready, m.wrote = want, false, w.now
	m.writes++
	m.unknown = false // A replica reads the copy before it writes.
	return nil
}

// become updates the readiness of a copy.
func (w *world) become(m *member) {
	well := m.content != "" && m.content != "drifted" && !w.bad[m.Name+m.content]
	switch {
	case m.offline || well == m.ready:
	case !well:
		m.ready = false
	case w.now.Sub(m.wrote) >= 3*time.Second:
		m.ready, m.since, m.really = true, w.now, w.now
	}
}

func (w *world) input() *Input {
	target := revision(w.target)
	in := &Input{Policy: w.policy, Target: target, Paused: w.paused, Approved: w.approve, Resumed: w.resume, Nonce: fmt.Sprint(len(w.log)), Now: w.now}
	if w.hold {
		in.Policy, in.Hold = nil, "the policy is gone"
	}
	for _, m := range w.members {
		if !m.there {
			continue
		}
		c := Cluster{Cluster: m.Cluster, Offline: m.offline, Joining: m.content == "", Ready: m.ready, ReadySince: m.since}
		if m.unknown && m.content != "" {
			c.Unknown, c.Ready, c.ReadySince = true, false, time.Time{}
		} else if m.content != "" {
			c.Copy = fmt.Sprint(m.writes)
		}
		w.stand(&c, m, &target)
		in.Clusters = append(in.Clusters, c)
	}
	return in
}

// check calls Next, and compares its result with the previous RolloutStatus.
func (w *world) check() error {
	was, in := w.status, w.input()
	kept := was.DeepCopy() // DeepCopy of nil returns nil.
	copied := *in
	copied.Clusters = slices.Clone(in.Clusters)
	is, until := w.next(was, in)
	if !reflect.DeepEqual(kept, was) || !reflect.DeepEqual(copied.Clusters, in.Clusters) {
		return fmt.Errorf("Next modified its arguments: %s", cmp.Diff(kept, was)+cmp.Diff(copied.Clusters, in.Clusters))
	}
	w.status = is
	w.notef("%s %s target %s good %s opened %d current %v done %v failed %v superseded %v reverting %v: %s", w.now.Format("04:05"), is.Phase, is.Target.Name, is.LastGood.Name,
		is.Opened, currentOf(is), is.Done, is.Failed, is.OnSuperseded, is.Reverting, is.Message)
	if was == nil {
		was = First(in.Target)
	}
	l := &laws{world: w, was: was, is: is, in: in}
	for _, law := range []func() error{
		l.agreed, l.turn, l.tried, l.crowd, l.budgets, l.health, l.failing, l.final, l.edited, l.reverted, l.complete, l.few, l.waits, l.approved,
		l.asked, l.joins, l.begins, l.taken, l.stalls,
	} {
		if err := law(); err != nil {
			return err
		}
	}
	l.settleAccounts()
	for _, m := range w.members {
		if m.unknown {
			m.unknown = false // The replica has read the content by the next call. The recorded time stays until then.
			continue
		}
		if m.recorded = m.since; !m.ready {
			m.recorded = time.Time{}
		}
	}
	if !until.IsZero() && !until.After(w.now) {
		return fmt.Errorf("the next call is due at %s, but it is already %s", until, w.now)
	}
	w.changed = w.changed && is.Message == noRoom // The event is not processed yet.
	return nil
}

func currentOf(s *refractv1alpha1.RolloutStatus) []string {
	var names []string
	for i := range s.Current {
		names = append(names, s.Current[i].Name)
	}
	return names
}

// laws are the guarantees of one call. They are formulated independently of the implementation, and use the real state
// of the members.
type laws struct {
	*world

	was, is *refractv1alpha1.RolloutStatus
	in      *Input
}

func targets(s *refractv1alpha1.RolloutStatus, name string) bool {
	return Assigned(s, name).Name == s.Target.Name
}

// released returns the clusters that got the target by this call.
func (l *laws) released() []*Cluster {
	var all []*Cluster
	if l.is.Phase == refractv1alpha1.RolloutComplete {
		return nil
	}
	for i := range l.in.Clusters {
		c := &l.in.Clusters[i]
		before := Assigned(l.was, c.Name).Name == l.is.Target.Name
		if targets(l.is, c.Name) && !before && l.is.LastGood.Name != l.is.Target.Name {
			all = append(all, c)
		}
	}
	return all
}

// agreed: repeated calls without an event reach a state that no longer changes.
func (l *laws) agreed() error {
	before := l.is
	for range 8 {
		again, _ := l.next(before, l.inputFor(before))
		if reflect.DeepEqual(before, again) {
			return nil
		}
		before = again
	}
	again, _ := l.next(before, l.inputFor(before))
	return fmt.Errorf("the RolloutStatus still changes after repeated calls without an event: %s", cmp.Diff(before, again))
}

// inputFor returns the input for another RolloutStatus.
func (l *laws) inputFor(s *refractv1alpha1.RolloutStatus) *Input {
	before := l.status
	l.status = s
	defer func() { l.status = before }()
	return l.input()
}

// turn: no cluster gets the target before its wave is opened, and no wave is opened before the previous wave is over.
func (l *laws) turn() error {
	if l.in.Policy == nil {
		if names := l.released(); len(names) > 0 && l.was.Superseded == nil {
			return fmt.Errorf("%s got the target without a policy", names[0].Name)
		}
		return nil
	}
	for _, c := range l.released() {
		if wave := l.policy.waveOf(&c.Cluster); wave >= int(l.is.Opened) && (l.was.Superseded == nil || l.was.Superseded.Name != l.is.Target.Name) &&
			contentOf(&l.was.Target, l.of(c.Name)) != contentOf(&l.is.Target, l.of(c.Name)) {
			return fmt.Errorf("%s got the target in wave %d, but only %d are open", c.Name, wave, l.is.Opened)
		}
	}
	from := l.was.Opened
	if l.was.Target.Name != l.is.Target.Name || l.was.Attempt != l.is.Attempt {
		from = 0
	}
	if from > 0 && l.is.Opened > from && l.is.Phase != refractv1alpha1.RolloutComplete {
		for i := range l.in.Clusters {
			c := &l.in.Clusters[i]
			if l.policy.waveOf(&c.Cluster) == int(from)-1 && !c.Offline && l.pending(l.is, c.Name) {
				return fmt.Errorf("wave %d was opened, but %s of the previous wave is not done", from, c.Name)
			}
		}
	}
	return nil
}

// opened returns the waves that this call opened and whose clusters the target changes.
func (l *laws) opened() (waves []int) {
	from := l.was.Opened
	if l.was.Target.Name != l.is.Target.Name || l.was.Phase == refractv1alpha1.RolloutReverted || !reflect.DeepEqual(l.was.Policies, l.is.Policies) {
		from = 0
	}
	if l.in.Policy == nil || l.is.Phase == refractv1alpha1.RolloutComplete || Stopped(l.is) {
		return nil
	}
	for k := from; k < l.is.Opened; k++ {
		if slices.ContainsFunc(l.in.Clusters, func(c Cluster) bool { return l.policy.waveOf(&c.Cluster) == int(k) && c.Changes }) {
			waves = append(waves, int(k))
		}
	}
	return waves
}

// tried: a wave is opened only if a cluster of the previous wave has tried the target, unless the target changes none
// of them.
func (l *laws) tried() error {
	for _, k := range l.opened() {
		if k == 0 || l.was.Target.Name != l.is.Target.Name {
			continue
		}
		changed, tried := false, false
		for i := range l.in.Clusters {
			c := &l.in.Clusters[i]
			if l.policy.waveOf(&c.Cluster) == k-1 {
				changed = changed || l.pending(l.was, c.Name)
				tried = tried || (targets(l.is, c.Name) && !slices.Contains(currentOf(l.is), c.Name))
			}
		}
		if changed && !tried {
			return fmt.Errorf("wave %d was opened, but no cluster of the previous wave has tried the target", k)
		}
	}
	return nil
}

// failing: a cluster has failed if it was ready with the target and no longer is, or if it does not become ready in
// time. The time offline does not count.
func (l *laws) failing() error {
	if l.in.Policy == nil || l.is.Message == noRoom || l.was.Target.Name != l.is.Target.Name || l.was.Attempt != l.is.Attempt || Stopped(l.was) || l.was.Phase == refractv1alpha1.RolloutComplete {
		return nil
	}
	failed := func(name string) bool {
		return slices.ContainsFunc(l.is.Failed, func(f refractv1alpha1.FailedCluster) bool { return f.Name == name })
	}
	for i := range l.was.Current {
		entry := &l.was.Current[i]
		m := l.of(entry.Name)
		if !m.there || m.offline || entry.Since == nil ||
			slices.ContainsFunc(l.in.Clusters, func(c Cluster) bool { return c.Name == entry.Name && c.Unknown }) {
			continue
		}
		holds := m.content == contentOf(&l.was.Target, m)
		late := l.now.Sub(entry.Since.Time) >= l.policy.timeout
		if holds && !m.ready && (entry.Ready != nil || late) && !failed(entry.Name) {
			return fmt.Errorf("%s is not ready, was ready %v, late %t, but has not failed", entry.Name, entry.Ready, late)
		}
	}
	for i := range l.in.Clusters {
		c := &l.in.Clusters[i]
		m, wave := l.of(c.Name), l.policy.waveOf(&c.Cluster)
		if !slices.Contains(l.was.Done, c.Name) || c.Offline || c.Unknown || m.ready || m.content != contentOf(&l.was.Target, m) || wave != int(l.was.Opened)-1 || Stopped(l.is) || failed(c.Name) {
			continue
		}
		if slices.ContainsFunc(l.in.Clusters, func(x Cluster) bool {
			return !x.Offline && l.policy.waveOf(&x.Cluster) == wave && l.pending(l.is, x.Name)
		}) {
			return fmt.Errorf("%s is no longer ready in an unfinished wave, but has not failed", c.Name)
		}
	}
	for i := range l.is.Failed {
		f := &l.is.Failed[i]
		m := l.of(f.Name)
		if !slices.ContainsFunc(l.was.Failed, func(is refractv1alpha1.FailedCluster) bool { return is.Name == f.Name }) &&
			strings.HasPrefix(f.Message, "it is not ready after") && l.now.Sub(m.reached) < l.policy.timeout {
			return fmt.Errorf("%s has failed, but has been reachable for only %s: %s", f.Name, l.now.Sub(m.reached), f.Message)
		}
	}
	return nil
}

// edited: only the content of a complete rollout is good, and no cluster keeps a reverted target.
func (l *laws) edited() error {
	settled := l.was.Phase == refractv1alpha1.RolloutComplete || l.was.LastGood.Name == l.was.Target.Name // The two are equal if the rollout had to wait.
	if !settled && l.is.Phase != refractv1alpha1.RolloutComplete && l.was.LastGood.Name != l.is.LastGood.Name {
		return fmt.Errorf("the good revision changed from %s to %s without a complete rollout", l.was.LastGood.Name, l.is.LastGood.Name)
	}
	if l.was.Target.Name == l.is.Target.Name {
		return nil
	}
	if l.was.Phase == refractv1alpha1.RolloutComplete && l.is.LastGood.Name != l.was.Target.Name && l.is.Phase != refractv1alpha1.RolloutComplete {
		return fmt.Errorf("every cluster had %s, but the good revision is %s", l.was.Target.Name, l.is.LastGood.Name)
	}
	if l.was.Phase == refractv1alpha1.RolloutReverting || l.was.Phase == refractv1alpha1.RolloutReverted {
		for i := range l.in.Clusters {
			if name := l.in.Clusters[i].Name; Assigned(l.is, name).Name == l.was.Target.Name && l.was.Target.Name != l.is.LastGood.Name {
				return fmt.Errorf("%s was reverted, but is assigned to %s", l.was.Target.Name, name)
			}
		}
	}
	return nil
}

// approved: a manual wave is opened only by the token of the same attempt.
func (l *laws) approved() error {
	if l.floor != nil || l.policy.maxChange >= 0 {
		return nil
	}
	for _, k := range l.opened() {
		want := fmt.Sprintf("%s/%d/%d/%s", l.is.Target.Name, l.is.Attempt, k, l.was.Nonce)
		if k < len(l.spec.Waves) && l.spec.Waves[k].Strategy == refractv1alpha1.WaveManual && l.approve != want {
			return fmt.Errorf("wave %d was opened with the approval %q", k, l.approve)
		}
		if l.paused {
			return fmt.Errorf("wave %d was opened during a pause", k)
		}
	}
	return nil
}

func (l *laws) of(name string) *member {
	return l.members[slices.IndexFunc(l.members, func(m *member) bool { return m.Name == name })]
}

// pending reports whether the cluster does not have its new content yet, or has it and is neither done nor failed.
func (l *laws) pending(s *refractv1alpha1.RolloutStatus, name string) bool {
	if !targets(s, name) {
		m := l.of(name)
		return contentOf(&s.Target, m) != contentOf(Assigned(s, name), m)
	}
	return slices.Contains(currentOf(s), name)
}

// crowd: no more clusters of a wave change at a time than maxConcurrent allows.
func (l *laws) crowd() error {
	if l.in.Policy == nil {
		return nil
	}
	inFlight, all, got := map[string]int{}, map[string]int{}, map[string]bool{}
	specs := []*refractv1alpha1.RolloutPolicySpec{&l.spec}
	if l.floor != nil {
		specs = []*refractv1alpha1.RolloutPolicySpec{l.floor, &l.spec}
	}
	key := func(level int, c *match.Cluster) (string, *intstr.IntOrString) {
		var id []string
		var most *intstr.IntOrString
		for i := range level + 1 {
			most = nil
			name := ""
			for k := range specs[i].Waves {
				wave := &specs[i].Waves[k]
				target, _ := match.CompileTarget(wave.TargetClusters, nil)
				if target.Match(c) {
					name, most = wave.Name, wave.MaxConcurrent
					break
				}
			}
			id = append(id, name)
		}
		return strings.Join(id, "/"), most
	}
	for i := range l.in.Clusters {
		c := &l.in.Clusters[i]
		for level := range specs {
			id, _ := key(level, &c.Cluster)
			all[id]++
			if slices.Contains(currentOf(l.is), c.Name) && !c.Offline {
				inFlight[id]++
			}
		}
	}
	for _, c := range l.released() {
		got[c.Name] = true
		if c.Joining || slices.Contains(l.was.OnSuperseded, c.Name) || l.was.Attempt != l.is.Attempt {
			continue
		}
		for level := range specs {
			id, most := key(level, &c.Cluster)
			if n := scaled(most, all[id]); most != nil && inFlight[id] > n && !l.joined(id, key, level) {
				return fmt.Errorf("%s got the target, but %[3]d clusters of wave %[2]s change at once, of %[4]d", c.Name, id, inFlight[id], n)
			}
		}
	}
	return nil
}

// joined reports whether a cluster of a wave got its first copy by this call. No limit delays first copies.
func (l *laws) joined(id string, key func(int, *match.Cluster) (string, *intstr.IntOrString), level int) bool {
	return slices.ContainsFunc(l.released(), func(c *Cluster) bool {
		is, _ := key(level, &c.Cluster)
		return is == id && c.Joining
	})
}

// budgets: a cluster gets the target only if the number of copies that are not ready stays within the budgets.
func (l *laws) budgets() error {
	if l.in.Policy == nil {
		return nil
	}
	for _, b := range l.policy.budgets {
		down := map[string]int{}
		for i := range l.in.Clusters {
			c := &l.in.Clusters[i]
			m := l.of(c.Name)
			if targets(l.is, c.Name) && l.is.Phase != refractv1alpha1.RolloutComplete && !Stopped(l.is) && l.is.Target.Name != l.is.LastGood.Name &&
				(m.offline || m.content != contentOf(&l.is.Target, m) || !m.ready) {
				down[c.Labels[b.Label]]++
			}
		}
		for _, c := range l.released() {
			if n := down[c.Labels[b.Label]]; n > int(b.MaxUnavailable) && !c.Joining && !slices.Contains(l.was.OnSuperseded, c.Name) && l.was.Attempt == l.is.Attempt &&
				!slices.ContainsFunc(l.released(), func(x *Cluster) bool { return x.Joining }) {
				return fmt.Errorf("%s got the target, but %[4]d clusters with %[2]s=%[3]s are not ready, of %[5]d", c.Name, b.Label, c.Labels[b.Label], n, b.MaxUnavailable)
			}
		}
	}
	return nil
}

// health: a cluster is done only if it holds the target's content, and has been ready with it for long enough.
func (l *laws) health() error {
	if l.is.Target.Name != l.was.Target.Name || l.in.Policy == nil {
		return nil
	}
	for _, name := range currentOf(l.was) {
		if _, done := slices.BinarySearch(l.is.Done, name); !done {
			continue
		}
		m := l.of(name)
		wave := l.policy.waveOf(&m.Cluster)
		switch {
		case m.offline:
			return fmt.Errorf("%s is done, but unreachable", name)
		case m.content != contentOf(&l.is.Target, m):
			return fmt.Errorf("%s is done, but holds %s", name, m.content)
		case !m.ready || l.now.Sub(m.really) < l.policy.minReady(wave):
			return fmt.Errorf("%s is done, but has been ready for only %s", name, l.now.Sub(m.really))
		}
	}
	return nil
}

// final: a stopped rollout stays stopped until an edit or a resume, and changes no cluster.
func (l *laws) final() error {
	if !Stopped(l.was) || l.changed {
		return nil
	}
	if !Stopped(l.is) {
		return fmt.Errorf("the phase changed from %s to %s without an action of a user", l.was.Phase, l.is.Phase)
	}
	if names := l.released(); len(names) > 0 {
		return fmt.Errorf("the phase was %s, but %s got the target", l.was.Phase, names[0].Name)
	}
	return nil
}

// reverted: in the end, every cluster has the last good content.
func (l *laws) reverted() error {
	if l.is.Phase == refractv1alpha1.RolloutReverting || l.is.Phase == refractv1alpha1.RolloutReverted {
		for i := range l.in.Clusters {
			if name := l.in.Clusters[i].Name; Assigned(l.is, name).Name != l.is.LastGood.Name && Assigned(l.is, name).Name != Found {
				return fmt.Errorf("the phase is %s, but %s is assigned %s", l.is.Phase, name, Assigned(l.is, name).Name)
			}
		}
	}
	if l.is.Phase != refractv1alpha1.RolloutReverted || l.was.Phase != refractv1alpha1.RolloutReverting {
		return nil
	}
	for _, name := range l.was.Reverting {
		if m := l.of(name); m.there && !m.offline && m.content != "drifted" && m.content != contentOf(&l.is.LastGood, m) {
			return fmt.Errorf("the rollout is reverted, but %s holds %s", name, m.content)
		}
	}
	return nil
}

// complete: a rollout is complete only after each reachable cluster has had its turn.
func (l *laws) complete() error {
	if l.is.Phase != refractv1alpha1.RolloutComplete {
		return nil
	}
	if l.was.Phase != refractv1alpha1.RolloutComplete && l.in.Policy == nil && !Unbegun(l.was) {
		return errors.New("the rollout is complete without a policy")
	}
	if l.is.LastGood.Name != l.is.Target.Name {
		return fmt.Errorf("the rollout is complete, but the good revision is %s", l.is.LastGood.Name)
	}
	if len(l.in.Clusters) == 0 && (l.was.Phase != refractv1alpha1.RolloutComplete || l.was.Target.Name != l.is.Target.Name) {
		return fmt.Errorf("the rollout is complete, but no cluster has ever had %s", l.is.Target.Name)
	}
	if l.was.Phase == refractv1alpha1.RolloutComplete || l.was.Target.Name != l.is.Target.Name || Unbegun(l.was) {
		return nil
	}
	for i := range l.in.Clusters {
		c := &l.in.Clusters[i]
		m := l.of(c.Name)
		failed := slices.ContainsFunc(l.is.Failed, func(f refractv1alpha1.FailedCluster) bool { return f.Name == c.Name })
		if !c.Offline && !failed && contentOf(Assigned(l.was, c.Name), m) != contentOf(&l.is.Target, m) {
			return fmt.Errorf("the rollout is complete, but %s does not have the target", c.Name)
		}
	}
	return nil
}

// few: at most three revisions are in use, and too many failures stop the rollout.
func (l *laws) few() error {
	for i := range l.in.Clusters {
		name := Assigned(l.is, l.in.Clusters[i].Name).Name
		if name != l.is.Target.Name && name != l.is.LastGood.Name && (l.is.Superseded == nil || name != l.is.Superseded.Name) {
			return fmt.Errorf("%s is assigned %s, which is not in the RolloutStatus", l.in.Clusters[i].Name, name)
		}
	}
	if l.in.Policy == nil || l.is.Message == noRoom {
		return nil
	}
	if n := len(l.is.Failed); n > l.policy.maxFailures && !Stopped(l.is) && l.is.Phase != refractv1alpha1.RolloutComplete {
		return fmt.Errorf("%d clusters have failed, with %d allowed, but the phase is %s", n, l.policy.maxFailures, l.is.Phase)
	}
	return nil
}

// waits: a paused rollout releases no cluster, and a waiting rollout has a message.
func (l *laws) waits() error {
	if l.in.Policy == nil {
		return nil
	}
	if l.paused {
		for _, c := range l.released() {
			if !c.Joining && (l.was.Superseded == nil || l.was.Superseded.Name != l.is.Target.Name) && l.was.Attempt == l.is.Attempt {
				return fmt.Errorf("%s got the target during a pause", c.Name)
			}
		}
	}
	if l.is.Phase == refractv1alpha1.RolloutWaiting && l.is.Message == "" {
		return errors.New("the rollout waits without a message")
	}
	return nil
}

// settle repairs all members and approves all waves. The rollout must then complete.
func (w *world) settle() error {
	w.bad, w.paused, w.hold, w.full = map[string]bool{}, false, false, false
	for _, m := range w.members {
		if m.offline {
			m.offline, m.really, m.reached = false, w.now, w.now
		}
		m.refuses = false
	}
	if !slices.ContainsFunc(w.members, func(m *member) bool { return m.there }) {
		w.moves(w.members[0]) // An object that is placed on no cluster waits.
	}
	w.notef("all is well")
	for range 400 {
		if w.status != nil && Stopped(w.status) && w.status.Phase != refractv1alpha1.RolloutReverting {
			w.resume = w.status.Awaits
			w.changed = true
		} else {
			w.approve = w.awaits()
		}
		w.now = w.now.Add(5 * time.Second)
		if err := w.live(2); err != nil {
			return err
		}
		if w.status.Phase == refractv1alpha1.RolloutComplete && w.status.Target.Name == revision(w.target).Name {
			for _, m := range w.members {
				if err := w.write(m); err != nil {
					return err
				}
				if want := contentOf(&w.status.Target, m); m.there && m.content != want {
					return fmt.Errorf("the rollout is complete, but %s holds %s, not %s", m.Name, m.content, want)
				}
			}
			return nil
		}
	}
	return fmt.Errorf("all members are healthy, but the phase is %s: %s", w.status.Phase, w.status.Message)
}
