package simulate

import (
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
)

// injectionAtEnd checks the bakery at the end of a history: all faults have ended, all events are delivered, and some
// time has passed.
func (w *World) injectionAtEnd() {
	in := w.injection
	if in == nil {
		return
	}
	objects := in.policies()
	set := in.setOf(objects)
	e := &injectionEnd{in: in, set: set, flocks: in.flocks(set), policies: map[string]*inject.Policy{}, objects: map[string]*unstructured.Unstructured{}}
	for _, o := range objects {
		if p, _ := in.compile(o); p != nil {
			e.policies[o.GetName()], e.objects[o.GetName()] = p, o
		}
	}
	for _, o := range objects {
		e.check(o)
	}
}

// injectionEnd is the final state of the bakery.
type injectionEnd struct {
	in       *injection
	set      *inject.Set
	flocks   []flock
	policies map[string]*inject.Policy
	objects  map[string]*unstructured.Unstructured
}

func (e *injectionEnd) failf(o *unstructured.Unstructured, format string, args ...any) {
	e.in.rules.failf(policyStatus, "in the end the status of ServiceInjectionPolicy %s is wrong: %s", o.GetName(), fmt.Sprintf(format, args...))
}

// check checks the status of a policy.
func (e *injectionEnd) check(o *unstructured.Unstructured) {
	if got := number(o, "status", "observedGeneration"); got != o.GetGeneration() {
		e.failf(o, "observedGeneration is %d, and its generation is %d", got, o.GetGeneration())
		return
	}
	p := e.policies[o.GetName()]
	if p == nil {
		if got := stateOf(o, refractv1beta1.ConditionAccepted)["status"]; got != string(metav1.ConditionFalse) {
			e.failf(o, "it is not valid, and Accepted is %v", got)
		}
		return
	}
	if got := textOf(o, "status", "hash"); got != p.Hash() {
		e.failf(o, "hash is %s, and that of what it injects is %s", got, p.Hash())
	}
	if got := stateOf(o, refractv1beta1.ConditionAccepted)["status"]; got != string(metav1.ConditionTrue) {
		e.failf(o, "it is valid, and Accepted is %v", got)
	}
	lacks := e.in.missing(p)
	if got := stateOf(o, refractv1beta1.ConditionReferencesResolved)["status"]; (got == string(metav1.ConditionTrue)) != (lacks == "") {
		e.failf(o, "ReferencesResolved is %v, and this is missing: %q", got, lacks)
	}
	stale := e.counts(o)
	e.rollout(o, p, stale, lacks)
}

// counts checks the numbers of pods in the status, and returns the number of stale pods.
func (e *injectionEnd) counts(o *unstructured.Unstructured) (stale int64) {
	want := map[string]int64{"matched": 0, "injected": 0, "stale": 0, "skipped": 0, "excluded": 0}
	field := map[inject.State]string{
		inject.StateInjected: "injected", inject.StateStale: "stale", inject.StateSkipped: "skipped", inject.StateExcluded: "excluded",
	}
	for _, pod := range e.in.all(podKind) {
		if state, selected := e.in.examine(pod, e.set)[o.GetName()]; selected && alive(pod) {
			want["matched"]++
			want[field[state]]++
		}
	}
	for _, name := range []string{"matched", "injected", "stale", "skipped", "excluded"} {
		if got := number(o, "status", name); got != want[name] {
			e.failf(o, "%s is %d, and there are %d such pods", name, got, want[name])
		}
	}
	return want["stale"]
}

// rollout checks that the status of a policy's rollout is correct, and that each workload with stale pods has a valid
// reason.
func (e *injectionEnd) rollout(o *unstructured.Unstructured, p *inject.Policy, stale int64, lacks string) {
	phase := refractv1beta1.RolloutPhase(textOf(o, "status", "rollout", "phase"))
	rolledOut := stateOf(o, refractv1beta1.ConditionRolledOut)
	if p.Mode() == refractv1beta1.ModeAudit || p.Rollout().Strategy == refractv1beta1.RolloutNone {
		if phase != "" && phase != refractv1beta1.PhaseHalted {
			e.failf(o, "nothing is restarted for it, and the phase of its rollout is %s", phase)
		}
		return
	}
	if phase == "" {
		e.failf(o, "it asks for restarts, and nothing is said of its rollout")
		return
	}
	var left []*flock
	for i := range e.flocks {
		f := &e.flocks[i]
		lacks := f.stale(e.in, e.set, o.GetName()) > 0 && (f.refused || f.fixable(o.GetName())) // The items of rejected pods are unknown.
		if lacks && f.isOwners() == "" && replicasOf(f.Unstructured) > 0 && f.GetDeletionTimestamp() == nil {
			left = append(left, f)
		}
	}
	annotations := o.GetAnnotations()
	switch phase {
	case refractv1beta1.PhaseComplete:
		for _, f := range left {
			if !e.isReverted(o, f) {
				e.failf(o, "the phase of its rollout is Complete, and pods of %s lack its content", f.ref)
			}
		}
		if got := rolledOut["status"]; stale == 0 && got != string(metav1.ConditionTrue) {
			e.failf(o, "no pod is stale, and RolledOut is %v: %v", got, rolledOut["message"])
		}
		return
	case refractv1beta1.PhasePaused:
		if annotations[refractv1beta1.PausedAnnotation] != "true" {
			e.failf(o, "the phase of its rollout is Paused, and its annotation does not say so")
		}
		return
	case refractv1beta1.PhaseAwaitingApproval:
		if p.Rollout().Strategy != refractv1beta1.RolloutManual || annotations[refractv1beta1.ApproveRolloutAnnotation] == p.Hash() {
			e.failf(o, "the phase of its rollout is AwaitingApproval, and it does not wait for one")
		}
		return
	case refractv1beta1.PhaseHalted:
		e.halted(o)
		return
	default:
	}
	if rolledOut["status"] == string(metav1.ConditionTrue) {
		e.failf(o, "RolledOut is True, and the phase of its rollout is %s", phase)
	}
	e.goesOn(o, phase, left, lacks)
}

// halted checks that the workload in the message of a halted rollout really did not become ready.
func (e *injectionEnd) halted(o *unstructured.Unstructured) {
	ref, _, _ := strings.Cut(textOf(o, "status", "rollout", "message"), ":")
	if !e.in.rules.failed[ref] {
		e.failf(o, "its rollout is halted because of %q, and all pods of that have come up", textOf(o, "status", "rollout", "message"))
	}
}

// isReverted reports whether the status says that the owner of a workload removes the annotation, and whether this has
// happened in the last two hours.
func (e *injectionEnd) isReverted(o *unstructured.Unstructured, f *flock) bool {
	return e.reason(o, f.ref) == "OwnerReverts" && time.Since(e.in.rules.reverted[f.ref]) < 2*time.Hour
}

// reason returns the reason that the status gives for a workload.
func (e *injectionEnd) reason(o *unstructured.Unstructured, ref string) string {
	v, _, _ := unstructured.NestedFieldNoCopy(o.Object, "status", "workloads")
	all, _ := v.([]any)
	for _, item := range all {
		if w, _ := item.(map[string]any); fmt.Sprintf("%s/%s", w["kind"], w["name"]) == ref {
			reason, _ := w["reason"].(string)
			return reason
		}
	}
	return ""
}

// goesOn checks that an unfinished rollout, unless a user has stopped it, waits for a real obstacle.
func (e *injectionEnd) goesOn(o *unstructured.Unstructured, phase refractv1beta1.RolloutPhase, left []*flock, lacks string) {
	if lacks != "" {
		return
	}
	for _, f := range e.flocks { // An incomplete workload counts against maxConcurrent, or is the first one, for which the others wait.
		if replicasOf(f.Unstructured) > 0 && (!f.isComplete() || !f.isServing()) && (e.isOf(o, &f) || slices.Contains(currentOf(o), f.ref)) {
			return
		}
	}
	for _, f := range left {
		if e.excused(o, f) == "" {
			e.in.rules.failf(stuckRestart, "in the end the rollout of ServiceInjectionPolicy %s is %s, and pods of %s are not restarted, for no reason (%s)",
				o.GetName(), phase, f.ref, textOf(o, "status", "rollout", "message"))
		}
	}
	if len(left) == 0 {
		e.failf(o, "the phase of its rollout is %s (%s), and no workload is left to be restarted", phase, textOf(o, "status", "rollout", "message"))
	}
}

// isOf reports whether a policy affects the pods of a workload.
func (e *injectionEnd) isOf(o *unstructured.Unstructured, f *flock) bool {
	return f.stale(e.in, e.set, o.GetName()) > 0 || f.holds[o.GetName()]
}

// excused returns a valid reason why a workload was not restarted, or "".
func (e *injectionEnd) excused(o *unstructured.Unstructured, f *flock) string {
	switch {
	case !f.isComplete() || !f.isServing():
		return "it is not complete"
	case f.refused || e.likeRefused(f):
		return "its pods would be refused"
	case e.isReverted(o, f):
		return "its owner takes the annotation off"
	case e.reason(o, f.ref) == "NotInjected":
		return "it is tried again after a pause"
	}
	for name, p := range e.policies {
		other := e.objects[name]
		switch {
		case name == o.GetName():
		case (f.holds[name] || f.stale(e.in, e.set, name) > 0) && e.in.missing(p) != "":
			return "another policy lacks something"
		case asks(p) && f.stale(e.in, e.set, name) > 0 && f.fixable(name) && e.in.closed(other, p) != "":
			return "another policy holds it back"
		case asks(p) && f.stale(e.in, e.set, name) > 0 && f.fixable(name) && e.waits(name, f):
			return "another policy has no place for it"
		}
	}
	for _, pod := range f.pods {
		for _, b := range e.in.all(budgetKind) {
			if selects(b, pod) && e.reason(o, f.ref) == "EvictionRefused" {
				return "a budget does not allow it"
			}
		}
	}
	return ""
}

// likeRefused reports whether a copy of a CloneSet's pod would be rejected. Refract does not know the template of a
// CloneSet, so it tests a restart with a copy of a pod.
func (e *injectionEnd) likeRefused(f *flock) bool {
	return f.GetKind() == cloneSetKind.name && slices.ContainsFunc(f.pods, func(p *unstructured.Unstructured) bool {
		for name, state := range e.in.examine(p, e.set) {
			if state == inject.StateSkipped && textOf(e.objects[name], "spec", "onConflict") == string(refractv1beta1.ConflictReject) {
				return true
			}
		}
		return false
	})
}

// waits reports whether another workload of a policy is incomplete. The policy then allows no further restart.
func (e *injectionEnd) waits(policy string, f *flock) bool {
	for _, other := range e.flocks {
		if other.ref != f.ref && e.isOf(e.objects[policy], &other) && replicasOf(other.Unstructured) > 0 && (!other.isComplete() || !other.isServing()) {
			return true
		}
	}
	return false
}
