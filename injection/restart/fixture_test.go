package restart

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
)

// noon is the time of the tests.
var noon = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

// somePolicy returns an accepted policy with the strategy Rolling, which may recreate two workloads at a time.
func somePolicy(name string, change ...func(*policy)) *policy {
	p := &policy{
		name: name, uid: types.UID("policy-" + name), generation: 3, hash: "hash-" + name,
		rollout: refractv1beta1.Rollout{Strategy: refractv1beta1.RolloutRolling, MaxConcurrent: 2},
		status:  &refractv1beta1.ServiceInjectionPolicyStatus{},
	}
	for _, c := range change {
		c(p)
	}
	return p
}

// reached sets the rollout in the policy's status, for the present content of the policy.
func reached(phase refractv1beta1.RolloutPhase, done int32, current ...string) func(*policy) {
	return func(p *policy) {
		p.status.Hash = p.hash
		p.status.Rollout = &refractv1beta1.RolloutStatus{Hash: p.hash, Phase: phase, Done: done, Current: current, Message: "as was written"}
	}
}

// evictedOf sets the number of pods that an owner of an unknown kind, KIND/NAME, had before the last eviction. The status
// must be set before.
func evictedOf(name string, pods int32) func(*policy) {
	return func(p *policy) {
		r := owner(name).ref
		p.status.Rollout.Evicted = append(p.status.Rollout.Evicted, refractv1beta1.EvictedWorkload{
			APIVersion: r.apiVersion, Kind: r.kind, Name: r.name, UID: r.uid, Pods: pods,
		})
	}
}

func strategy(s refractv1beta1.RolloutStrategy) func(*policy) {
	return func(p *policy) { p.rollout.Strategy = s }
}

func needs(kind, name string, keys ...string) func(*policy) {
	return func(p *policy) {
		p.references = append(p.references, inject.Reference{Kind: kind, Name: name, Keys: keys})
	}
}

var kinds = map[string]string{
	"Deployment": "apps/v1", "StatefulSet": "apps/v1", "DaemonSet": "apps/v1", "ReplicaSet": "apps/v1", "ReplicationController": "v1",
	"Job": "batch/v1", "CronJob": "batch/v1", "Pod": "v1", "CloneSet": "apps.kruise.io/v1alpha1",
}

// owner returns a group without pods for an owner KIND/NAME. The workload is complete and not touched yet.
func owner(name string, change ...func(*group)) *group {
	kind, short, _ := strings.Cut(name, "/")
	g := &group{ref: ref{apiVersion: kinds[kind], kind: kind, name: short, uid: types.UID(name)}}
	g.class = g.ref.class()
	if g.class == classDeployment || g.class == classTemplate || g.class == classReplicas {
		g.workload = &workload{
			head: head{namespace: "shop", name: short, uid: g.ref.uid, created: noon.Add(-time.Hour)}, ref: g.ref,
			generation: 1, observed: 1, revised: true,
		}
		g.prospect = prospect{hash: "none"}
	}
	for _, c := range change {
		c(g)
	}
	return g
}

// pods adds n ready pods with these states, such as "a Stale" or "a Skipped EnvConflict". The policies with the state
// Stale or Injected apply to new pods of the template.
func pods(n int, states ...string) func(*group) {
	return func(g *group) {
		s := &podStatus{hash: expectation(states)}
		for _, text := range states {
			words := append(strings.Fields(text), "", "")
			s.verdicts = append(s.verdicts, verdict{words[0], inject.State(words[1]), words[2], words[3]})
		}
		if len(states) == 0 {
			s = nil
		}
		if g.workload != nil {
			w := g.workload
			w.replicas += int64(n)
			w.current, w.updated, w.available = w.replicas, w.replicas, w.replicas
			g.prospect = prospect{hash: expectation(states), holds: holding(states)}
		}
		for range n {
			i := len(g.pods)
			g.pods = append(g.pods, placed{&pod{
				head:    head{namespace: "shop", name: fmt.Sprintf("%s-%d", g.ref.name, i), uid: types.UID(fmt.Sprintf("%s-%d", g.ref, i)), created: noon.Add(-time.Hour)},
				endless: true, ready: true, readySince: noon.Add(-time.Hour),
			}, s})
		}
	}
}

func holding(states []string) map[string]bool {
	holds := map[string]bool{}
	for _, text := range states {
		words := strings.Fields(text)
		if s := inject.State(words[1]); s == inject.StateStale || s == inject.StateInjected {
			holds[words[0]] = true
		}
	}
	return holds
}

// expectation returns the hash of the policies that will apply to new pods.
func expectation(states []string) string {
	names := make([]string, 0, len(states))
	for name := range holding(states) {
		names = append(names, name)
	}
	slices.Sort(names)
	return strings.Join(names, "+")
}

// annotated sets the template's annotation to the expected hash.
func annotated(g *group) { g.workload.templateHash = g.prospect.hash }

// recreated sets the annotation of the template and of all pods to the expected hash.
func recreated(g *group) {
	annotated(g)
	for _, p := range g.pods {
		p.templateHash = g.prospect.hash
	}
}

// incomplete makes one of the pods unavailable.
func incomplete(g *group) {
	g.workload.available--
	g.pods[len(g.pods)-1].ready = false
}

func onWorkload(change func(*workload)) func(*group) {
	return func(g *group) { change(g.workload) }
}

// newPod adds a pod of the annotated template. It is injected by all expected policies.
func newPod(change func(*pod)) func(*group) {
	return func(g *group) {
		p := &pod{
			head:    head{namespace: "shop", name: "new", uid: g.ref.uid + "-new", created: noon},
			endless: true, templateHash: g.prospect.hash,
		}
		change(p)
		s := &podStatus{hash: g.prospect.hash}
		for name := range g.prospect.holds {
			s.verdicts = append(s.verdicts, verdict{policy: name, state: inject.StateInjected})
		}
		g.pods = append(g.pods, placed{p, s})
	}
}

// scene returns a snapshot in which all checks have succeeded: the objects that policies name exist, and new pods are
// admitted.
func scene(policies []*policy, groups ...*group) *snapshot {
	s := &snapshot{
		now: noon, policies: policies, groups: groups, patience: DefaultPatience,
		references: map[object]resolution{}, probes: map[types.UID]probe{}, previous: map[types.UID]workloadState{},
	}
	slices.SortFunc(s.groups, func(a, b *group) int { return compareRefs(a.ref, b.ref) })
	for _, p := range policies {
		for _, r := range p.references {
			keys := map[string]bool{}
			for _, key := range r.Keys {
				keys[key] = true
			}
			s.references[object{r.Kind, r.Name}] = resolution{found: true, keys: keys, at: noon}
		}
	}
	for _, g := range groups {
		p := probe{hash: g.prospect.hash, ok: true, at: noon}
		if g.workload == nil && len(g.pods) > 0 && g.pods[0].status != nil {
			p.hash = g.pods[0].status.hash
		}
		s.probes[g.ref.uid] = p
	}
	return s
}

// outcome is a plan in readable form.
type outcome struct {
	Touches   []string
	Policies  map[string]string   // The form is: PHASE done/workloads [current] RolledOut STATUS REASON.
	Counts    map[string]string   // The form is: matched injected stale skipped excluded manual.
	Workloads map[string][]string // The form is: KIND/NAME pods REASON.
}

func outcomeOf(p *plan) outcome {
	o := outcome{Policies: map[string]string{}, Counts: map[string]string{}, Workloads: map[string][]string{}}
	for _, t := range p.touches {
		o.Touches = append(o.Touches, touchText(t))
	}
	for name, s := range p.statuses {
		text := "none"
		if r := s.Rollout; r != nil {
			text = fmt.Sprintf("%s %d/%d %v", r.Phase, r.Done, r.Workloads, r.Current)
		}
		c := conditionOf(s, refractv1beta1.ConditionRolledOut)
		o.Policies[name] = fmt.Sprintf("%s, %s %s", text, c.Status, c.Reason)
		o.Counts[name] = fmt.Sprint(s.Matched, s.Injected, s.Stale, s.Skipped, s.Excluded, s.Manual)
		for _, w := range s.Workloads {
			o.Workloads[name] = append(o.Workloads[name], fmt.Sprintf("%s/%s %d %s", w.Kind, w.Name, w.Pods, w.Reason))
		}
	}
	return o
}

func touchText(t touch) string {
	if t.victim != nil {
		return fmt.Sprintf("evict %s of %s", t.victim.name, t.group.ref)
	}
	return fmt.Sprintf("annotate %s %s", t.group.ref, t.group.prospect.hash)
}

func conditionOf(s *refractv1beta1.ServiceInjectionPolicyStatus, kind string) metav1.Condition {
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return metav1.Condition{}
}
