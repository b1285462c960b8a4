package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"refract.dev/injection/inject"
)

// observe records the current state.
func (r *restartRules) observe() {
	in := r.in
	objects := in.policies()
	set := in.setOf(objects)
	r.webhook.set(!in.webhook.down && !in.webhook.full)
	r.observePolicies(objects)
	flocks := in.flocks(set)
	seen := map[types.UID]bool{}
	for i := range flocks {
		seen[flocks[i].GetUID()] = true
		r.observeFlock(&flocks[i], set)
	}
	maps.DeleteFunc(r.flocks, func(uid types.UID, _ *flockFacts) bool { return !seen[uid] })
	r.observePods(objects, set)
}

func (r *restartRules) observePolicies(objects []*unstructured.Unstructured) {
	seen := map[types.UID]bool{}
	var content strings.Builder
	for _, o := range objects {
		p, _ := r.in.compile(o)
		if p == nil {
			continue
		}
		uid := o.GetUID()
		seen[uid] = true
		q := r.policies[uid]
		if q == nil {
			q = &policyFacts{name: o.GetName(), current: map[string]*fact{}, open: map[types.UID]*opened{}, passed: map[string]bool{}}
			r.policies[uid] = q
		}
		q.hash = p.Hash()
		fmt.Fprintln(&content, q.name, q.hash, p.Mode(), o.GetGeneration())
		why, lacks := r.in.closed(o, p), r.in.missing(p)
		q.closed.set(why != "")
		q.missing.set(lacks != "")
		q.asks.set(asks(p))
		if why != "" {
			q.why = why
		}
		if lacks != "" {
			q.lacks = lacks
		}
		q.limits.set(int64(p.Rollout().MaxConcurrent))
		q.waits.set(int64(p.Rollout().MinReadySeconds))
		current := currentOf(o)
		for _, ref := range current {
			if q.current[ref] == nil {
				q.current[ref] = &fact{}
			}
		}
		for ref, is := range q.current {
			is.set(slices.Contains(current, ref))
		}
	}
	maps.DeleteFunc(r.policies, func(uid types.UID, _ *policyFacts) bool { return !seen[uid] })
	if content.String() != r.content {
		r.content = content.String()
		r.contents++
	}
}

func (r *restartRules) observeFlock(now *flock, set *inject.Set) {
	f := r.flocks[now.GetUID()]
	if f == nil {
		f = &flockFacts{ref: now.ref, stale: map[types.UID]*fact{}, annotated: map[string]int{}, recovered: true}
		r.flocks[now.GetUID()] = f
	}
	f.complete.set(now.isComplete())
	f.serving.set(now.isServing())
	f.ailing.set(now.isAiling(r.in, set))
	f.touched.set(now.hash != "" && templateHash(now.Unstructured) == now.hash)
	why := now.isOwners()
	f.owners.set(why != "")
	if why != "" {
		f.why = why
	}
	f.holds, f.lastReady = now.holds, now.lastReady()
	f.recovered = f.recovered || f.serving.is
	late := func(f fact) bool { return !f.is && time.Since(f.since) > 9*time.Minute }
	if now.isFailing() || late(f.serving) || late(f.complete) {
		r.failed[f.ref] = true
	}
	for uid, q := range r.policies {
		if f.stale[uid] == nil {
			f.stale[uid] = &fact{}
		}
		lacks := now.stale(r.in, set, q.name) > 0 && now.fixable(q.name)
		f.stale[uid].set(lacks)
		if o := q.open[now.GetUID()]; o != nil {
			o.complete, o.serving = o.complete || f.complete.is, o.serving || f.serving.is
			if replicasOf(now.Unstructured) == 0 || now.GetDeletionTimestamp() != nil || why != "" { // The owner must recreate the pods from now on.
				delete(q.open, now.GetUID())
			}
		}
		if !lacks && f.touched.is && f.complete.is && f.serving.is && now.holds[q.name] {
			q.passed[q.hash] = true
		}
	}
	maps.DeleteFunc(f.stale, func(uid types.UID, _ *fact) bool { return r.policies[uid] == nil })
}

func (r *restartRules) observePods(objects []*unstructured.Unstructured, set *inject.Set) {
	wants := map[string]bool{}
	for _, o := range objects {
		if p, _ := r.in.compile(o); p != nil && asks(p) {
			wants[o.GetName()] = true
		}
	}
	seen := map[types.UID]bool{}
	for _, pod := range r.in.all(podKind) {
		seen[pod.GetUID()] = true
		if r.pods[pod.GetUID()] == nil {
			r.pods[pod.GetUID()] = &fact{}
		}
		isStale := false
		for policy, state := range r.in.examine(pod, set) {
			isStale = isStale || (state == inject.StateStale && wants[policy])
		}
		r.pods[pod.GetUID()].set(isStale)
	}
	maps.DeleteFunc(r.pods, func(uid types.UID, _ *fact) bool { return !seen[uid] })
}

// injectionAfter checks the replicas after each step.
func (w *World) injectionAfter() {
	in := w.injection
	if in == nil {
		return
	}
	running := 0
	for _, p := range w.Processes {
		if in.owns(p.Replica) && p.Running() {
			running++
		}
	}
	if running > len(injectorNames) {
		w.Failf(twoInjectors, "%d processes of the injection run", running)
	}
}
