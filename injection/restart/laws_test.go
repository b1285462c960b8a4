package restart

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
)

// world is a simulated namespace with the usual controllers: workloads follow their templates and replace deleted pods.
type world struct {
	random    *rand.Rand
	now       time.Time
	policies  []*policy
	broken    map[string]bool // The hashes of contents with which pods do not become ready.
	webhook   bool
	missing   bool
	workloads []*simulated
	previous  map[types.UID]workloadState
	refs      map[object]resolution
	probes    map[types.UID]probe
	made      int
	// started has the incomplete workloads that were touched, with the contents of the policies. passed has the
	// contents with which some workload has been complete.
	started map[string]map[string]string
	passed  map[string]bool
	// unsure has the workloads in started whose contents the present leader does not know, because another replica
	// touched them.
	unsure map[string]bool
}

type simulated struct {
	name     string // The form is KIND/NAME.
	policies []string
	replicas int
	template string
	pods     []*simulatedPod
	known    []simulatedPod // The pods in the controller's view. They may be outdated, because pods and workloads are watched separately.
	revision int64
	seen     int64
}

type simulatedPod struct {
	name     string
	template string
	has      map[string]string // The hash of the content of each policy.
	ready    bool
	created  time.Time
}

func newWorld(seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &world{
		random: r, now: noon, broken: map[string]bool{}, webhook: true, previous: map[types.UID]workloadState{},
		refs: map[object]resolution{}, probes: map[types.UID]probe{}, started: map[string]map[string]string{}, passed: map[string]bool{}, unsure: map[string]bool{},
	}
	for _, name := range []string{"a", "b"} {
		w.policies = append(w.policies, somePolicy(name, needs("Secret", name), func(p *policy) {
			p.hash, p.rollout.MaxConcurrent = name+"1", int32(1+r.IntN(3))
		}))
	}
	for i := range 3 + r.IntN(5) {
		s := &simulated{
			name:     []string{"Deployment", "ReplicaSet", "CloneSet"}[r.IntN(3)] + fmt.Sprintf("/w%d", i),
			policies: [][]string{{"a"}, {"b"}, {"a", "b"}}[r.IntN(3)], replicas: 1 + r.IntN(3), revision: 1, seen: 1,
		}
		for range s.replicas {
			s.pods = append(s.pods, w.pod(s, false, true))
		}
		s.show()
		w.workloads = append(w.workloads, s)
	}
	return w
}

func (w *world) pod(s *simulated, injected, ready bool) *simulatedPod {
	w.made++
	p := &simulatedPod{name: fmt.Sprintf("p%d", w.made), template: s.template, has: map[string]string{}, ready: ready, created: w.now}
	for _, name := range s.policies {
		if injected {
			p.has[name] = w.policy(name).hash
		}
	}
	return p
}

func (w *world) policy(name string) *policy {
	return w.policies[slices.IndexFunc(w.policies, func(p *policy) bool { return p.name == name })]
}

func (s *simulated) complete() bool {
	return s.seen == s.revision && len(s.pods) == s.replicas && !slices.ContainsFunc(s.pods, func(p *simulatedPod) bool {
		return !p.ready || (strings.HasPrefix(s.name, "Deployment") && p.template != s.template)
	})
}

// show updates the controller's view to the present pods.
func (s *simulated) show() {
	s.known = nil
	for _, p := range s.pods {
		s.known = append(s.known, *p)
	}
}

// step simulates one step of the namespace's controllers.
func (w *world) step() {
	w.now = w.now.Add(time.Duration(1+w.random.IntN(20)) * time.Second)
	for _, s := range w.workloads {
		if w.random.IntN(3) == 0 {
			continue
		}
		s.seen = s.revision
		switch old := slices.IndexFunc(s.pods, func(p *simulatedPod) bool { return p.template != s.template }); {
		case len(s.pods) < s.replicas:
			s.pods = append(s.pods, w.pod(s, w.webhook, false))
		case strings.HasPrefix(s.name, "Deployment") && old >= 0 && !slices.ContainsFunc(s.pods, func(p *simulatedPod) bool { return !p.ready && p.template == s.template }):
			s.pods[old] = w.pod(s, w.webhook, false)
		default:
			for _, p := range s.pods {
				p.ready = !w.sick(p)
			}
		}
		if s.complete() {
			delete(w.started, s.name)
			delete(w.unsure, s.name)
		}
		if w.random.IntN(4) > 0 {
			s.show()
		}
	}
	for _, s := range w.workloads {
		for _, name := range s.policies {
			hash := w.policy(name).hash
			if s.complete() && !slices.ContainsFunc(s.pods, func(p *simulatedPod) bool { return p.has[name] != hash }) {
				w.passed[hash] = true
			}
		}
	}
}

func (w *world) sick(p *simulatedPod) bool {
	for _, hash := range p.has {
		if w.broken[hash] {
			return true
		}
	}
	return false
}

func (w *world) snapshot() *snapshot {
	s := &snapshot{now: w.now, policies: w.policies, references: w.refs, probes: w.probes, previous: w.previous, patience: DefaultPatience}
	for _, sim := range w.workloads {
		s.groups = append(s.groups, w.group(sim))
	}
	slices.SortFunc(s.groups, func(a, b *group) int { return compareRefs(a.ref, b.ref) })
	return s
}

func (w *world) group(sim *simulated) *group {
	g := owner(sim.name)
	parts := make([]string, 0, len(sim.policies))
	holds := map[string]bool{}
	for _, name := range sim.policies {
		parts, holds[name] = append(parts, w.policy(name).hash), true
	}
	hash := strings.Join(parts, "+")
	for _, p := range sim.known {
		st := &podStatus{hash: hash}
		for _, name := range sim.policies {
			state := inject.StateInjected
			if p.has[name] != w.policy(name).hash {
				state = inject.StateStale
			}
			st.verdicts = append(st.verdicts, verdict{policy: name, state: state})
		}
		trouble := ""
		if w.sick(&p) {
			trouble = "CrashLoopBackOff"
		}
		g.pods = append(g.pods, placed{&pod{
			head: head{name: p.name, uid: types.UID(p.name), created: p.created}, endless: true, ready: p.ready, readySince: p.created,
			trouble: trouble, templateHash: p.template,
		}, st})
	}
	if g.workload == nil {
		return g
	}
	g.prospect = prospect{hash: hash, holds: holds}
	wl := g.workload
	wl.templateHash, wl.generation, wl.observed, wl.replicas, wl.current = sim.template, sim.revision, sim.seen, int64(sim.replicas), int64(len(sim.pods))
	for _, p := range sim.pods {
		if p.template != sim.template && g.class == classDeployment {
			continue
		}
		wl.updated++
		if p.ready {
			wl.available++
		}
	}
	return g
}

// act runs a decision with its checks, tests the laws, and carries out the plan.
func (w *world) act(t *testing.T) *plan {
	t.Helper()
	s := w.snapshot()
	p := decide(s)
	for range preflights {
		for _, o := range p.resolve {
			w.refs[o] = resolution{found: !w.missing, at: w.now}
		}
		for _, q := range p.probe {
			found := probe{hash: q.hash, ok: w.webhook, at: w.now, retry: w.now.Add(time.Second)}
			w.probes[q.group.ref.uid] = found
		}
		p = decide(s)
	}
	again := decide(w.snapshot())
	if diff := cmp.Diff(outcomeOf(p), outcomeOf(again)); diff != "" {
		t.Fatalf("the same twice comes to something else: -first, +second:\n%s", diff)
	}
	w.obeys(t, p)
	w.previous = p.next
	for _, policy := range w.policies {
		policy.status = p.statuses[policy.name]
		if slices.Contains(p.resumed, policy.name) {
			policy.resumed = ""
		}
	}
	for _, touched := range p.touches {
		w.triesOnOne(t, touched)
		w.touch(touched)
	}
	for _, policy := range w.policies {
		rolling := 0
		for _, contents := range w.started {
			if contents[policy.name] != "" {
				rolling++
			}
		}
		if rolling > int(policy.rollout.MaxConcurrent) {
			t.Fatalf("policy %s: %d workloads roll, at most %d may: %v", policy.name, rolling, policy.rollout.MaxConcurrent, w.started)
		}
	}
	return p
}

// obeys checks that the plan touches no workload for a policy that does not permit it now.
func (w *world) obeys(t *testing.T, p *plan) {
	t.Helper()
	for _, touched := range p.touches {
		for _, name := range touched.policies {
			policy, now := w.policy(name), p.statuses[name]
			switch {
			case policy.paused, policy.rollout.Strategy != refractv1beta1.RolloutRolling:
				t.Fatalf("%s is touched for policy %s, which does not want it", touched.group.ref, name)
			case now.Rollout.Phase == refractv1beta1.PhaseHalted, now.Rollout.Phase == refractv1beta1.PhaseBlocked:
				t.Fatalf("%s is touched for policy %s in phase %s", touched.group.ref, name, now.Rollout.Phase)
			case w.missing && w.now.Before(w.refs[object{"Secret", name}].at.Add(time.Second)) && !w.refs[object{"Secret", name}].found:
				t.Fatalf("%s is touched for policy %s, whose Secret is missing", touched.group.ref, name)
			}
		}
	}
}

// triesOnOne checks that new content is tried on one workload first.
func (w *world) triesOnOne(t *testing.T, touched touch) {
	t.Helper()
	if w.unsure[touched.group.ref.String()] {
		return
	}
	for name, hash := range touched.contents {
		for other, contents := range w.started {
			if other != touched.group.ref.String() && contents[name] == hash && !w.passed[hash] {
				t.Fatalf("%s is touched for policy %s, and no workload is complete with its content %s yet: it is tried on %s", touched.group.ref, name, hash, other)
			}
		}
	}
}

func (w *world) touch(touched touch) {
	i := slices.IndexFunc(w.workloads, func(s *simulated) bool { return s.name == touched.group.ref.String() })
	s := w.workloads[i]
	m := w.previous[touched.group.ref.uid]
	if w.started[s.name] == nil {
		w.started[s.name] = map[string]string{}
	}
	maps.Copy(w.started[s.name], touched.contents)
	if touched.victim == nil {
		s.template = touched.group.prospect.hash
		s.revision++
		m = workloadState{ref: touched.group.ref, hash: s.template, generation: s.revision, begun: w.now, changed: w.now, contents: m.with(touched.contents)}
	} else {
		s.pods = slices.DeleteFunc(s.pods, func(p *simulatedPod) bool { return p.name == touched.victim.name })
		if m.firstEviction.IsZero() {
			m.firstEviction, m.begun = w.now, w.now
		}
		m.evicted, m.changed, m.pods = touched.victim.uid, w.now, s.replicas
		m.contents = m.with(touched.contents)
	}
	w.previous[touched.group.ref.uid] = m
}

// disturb changes something at random.
func (w *world) disturb() {
	p := w.policies[w.random.IntN(len(w.policies))]
	switch w.random.IntN(12) {
	case 0:
		p.hash = fmt.Sprintf("%s%d", p.name, w.random.IntN(1000))
	case 1:
		p.hash = fmt.Sprintf("%s%d", p.name, w.random.IntN(1000))
		w.broken[p.hash] = true
	case 2:
		p.paused = !p.paused
	case 3:
		w.webhook = !w.webhook
	case 4:
		w.missing = !w.missing
	case 5:
		w.previous = map[types.UID]workloadState{} // Another replica becomes the leader.
		clear(w.refs)
		clear(w.probes)
		for _, s := range w.workloads {
			w.unsure[s.name] = len(w.started[s.name]) > 0
			s.show()
		}
	case 6:
		p.resumed = p.hash
	}
}

// TestRandomWorlds causes random events in a namespace and checks the laws at every step. At the end all obstacles are
// removed, and every rollout completes.
func TestRandomWorlds(t *testing.T) {
	seeds := uint64(60)
	if testing.Short() {
		seeds = 10
	}
	numbers := []uint64{624} // A regression: two workloads of unknown kinds got new content before any workload was complete with it.
	for seed := range seeds {
		numbers = append(numbers, seed)
	}
	for _, seed := range numbers {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			w := newWorld(seed)
			for range 80 {
				w.disturb()
				w.step()
				w.act(t)
			}
			w.webhook, w.missing = true, false
			for _, p := range w.policies {
				p.hash, p.paused = p.name+"-final", false
			}
			var last *plan
			for range 400 {
				w.step()
				last = w.act(t)
			}
			for name, got := range outcomeOf(last).Policies {
				if !strings.HasPrefix(got, "Complete") || !strings.HasSuffix(got, "True Complete") {
					t.Errorf("policy %s in the end: want Complete, got %s\n%v", name, got, outcomeOf(last).Workloads[name])
				}
			}
		})
	}
}
