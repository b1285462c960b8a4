package restart

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
	"refract.dev/internal/output"
)

// Reasons of events.
const (
	eventStarted   = "RolloutStarted"
	eventCompleted = "RolloutCompleted"
	eventHalted    = "RolloutHalted"
	eventReverted  = "OwnerReverts"
	eventConflicts = "Conflicts"
	eventMissing   = "ReferencesMissing"
	eventRecreates = "InjectionRollout"
)

// addEvents adds events about changes since the last written status. So no event is repeated after a restart.
func (r *reporter) addEvents(st *policyState, now *refractv1beta1.ServiceInjectionPolicyStatus) {
	if now.Rollout != nil {
		r.addPhaseEvent(st, now.Rollout)
	}
	if conflicts := st.conflicts(); conflicts > 0 && (st.status.Skipped == 0 || st.status.Hash != st.hash) {
		r.plan.events = append(r.plan.events, event{
			policy: st.name, warning: true, reason: eventConflicts,
			message: "the policy is left out for " + output.Count(conflicts, "pod", "pods") + ": see status.workloads",
		})
	}
	is := meta.FindStatusCondition(now.Conditions, refractv1beta1.ConditionReferencesResolved)
	was := meta.FindStatusCondition(st.status.Conditions, refractv1beta1.ConditionReferencesResolved)
	if is.Status == metav1.ConditionFalse && (was == nil || was.Status != is.Status || was.Message != is.Message) {
		r.plan.events = append(r.plan.events, event{policy: st.name, warning: true, reason: eventMissing, message: is.Message})
	}
}

// conflicts counts the pods for which the policy is skipped; 0 for the mode Audit.
func (st *policyState) conflicts() int32 {
	if st.audit {
		return 0
	}
	return st.counts.skipped
}

// addPhaseEvent adds an event if the rollout has started, completed or halted.
func (r *reporter) addPhaseEvent(st *policyState, now *refractv1beta1.RolloutStatus) {
	e := event{policy: st.name}
	begun := st.before.Phase == refractv1beta1.PhaseCanary || st.before.Phase == refractv1beta1.PhaseRolling
	switch {
	case now.Phase == refractv1beta1.PhaseHalted && st.before.Phase != refractv1beta1.PhaseHalted:
		e.warning, e.reason = true, eventHalted
		e.message = fmt.Sprintf("%s; nothing more is touched until the policy changes, or is annotated with %s=%s",
			strings.TrimSuffix(now.Message, "."), refractv1beta1.ResumeAnnotation, st.hash)
	case now.Phase == refractv1beta1.PhaseComplete && now.Done > 0 && st.before.Phase != "" && st.before.Phase != refractv1beta1.PhaseComplete:
		e.reason, e.message = eventCompleted, output.Count(now.Done, "workload was", "workloads were")+" recreated"
	case !begun && slices.ContainsFunc(r.plan.touches, func(t touch) bool { return slices.Contains(t.policies, st.name) }):
		e.reason = eventStarted
		e.message = fmt.Sprintf("the pods of %s are recreated, %s first", output.Count(now.Workloads-now.Done, "workload", "workloads"), now.Current[0])
	default:
		return
	}
	r.plan.events = append(r.plan.events, e)
}

// addRevertEvents adds events for a template whose annotation was removed repeatedly.
func (j *judge) addRevertEvents(a *assessment) {
	j.plan.events = append(j.plan.events, event{group: a.group, warning: true, reason: eventReverted, message: a.next.message})
	for _, name := range a.wanted {
		j.plan.events = append(j.plan.events, event{
			policy: name, warning: true, reason: eventReverted, message: a.ref.String() + ": " + a.next.message,
		})
	}
}

// stateNames are the states of the metric.
var stateNames = []inject.State{inject.StateInjected, inject.StateStale, inject.StateSkipped, inject.StateExcluded}
