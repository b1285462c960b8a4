package restart

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/injection/inject"
	"refract.dev/internal/output"
)

// Bounds of a status.
const (
	mostWorkloads = 20
	mostMessage   = 1000 // In bytes.
)

// workloadStatus is a possible entry for the status of a policy, which has room only for the worst ones.
type workloadStatus struct {
	rank int // The severity; the lowest rank is the worst.
	ref  ref
	refractv1beta1.WorkloadStatus
}

// ranks has the rank of each reason, the worst first. Reasons of conflicts have the rank of the empty reason.
var ranks = map[string]int{
	reasonHalted: 0, string(refractv1beta1.PhaseHalted): 1, reasonBlocked: 2, reasonReverts: 3, reasonBounced: 4,
	"": 5, reasonManual: 6, reasonOwner: 7, reasonBudget: 8, reasonBusy: 9, reasonRolling: 10,
	string(refractv1beta1.PhasePaused): 11, string(refractv1beta1.PhaseAwaitingApproval): 11, reasonQueued: 12, reasonNextRun: 13,
	inject.ReasonAudit: 14, inject.ReasonOptedOut: 15, inject.ReasonMirrorPod: 15,
}

func rankOf(reason string) int {
	if rank, known := ranks[reason]; known {
		return rank
	}
	return ranks[""]
}

// add adds a workload to the policy's state. If there are very many workloads, it drops the less severe ones.
func (st *policyState) add(g *group, pods int, reason, message string) {
	st.workloads = append(st.workloads, workloadStatus{rankOf(reason), g.ref, refractv1beta1.WorkloadStatus{
		Kind: g.ref.kind, Name: g.ref.name, Pods: int32(pods), Reason: reason, Message: output.Cut(message, mostMessage),
	}})
	if len(st.workloads) >= 10*mostWorkloads {
		st.workloads = worstOf(st.workloads)
	}
}

func worstOf(workloads []workloadStatus) []workloadStatus {
	slices.SortStableFunc(workloads, func(a, b workloadStatus) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.Pods, a.Pods), compareRefs(a.ref, b.ref), cmp.Compare(a.Reason, b.Reason))
	})
	return workloads[:min(len(workloads), mostWorkloads)]
}

// reporter adds statuses, events and the numbers of pods to the plan.
type reporter struct {
	now      time.Time
	disabled bool
	plan     *plan
	states   map[string]*policyState
	groups   []*assessment
}

// count counts the pods, and lists the workloads whose pods lack items.
func (r *reporter) count() {
	for _, a := range r.groups {
		alike := map[*podStatus]int{}
		for _, p := range a.pods {
			if p.counts() && p.status != nil {
				alike[p.status]++
			}
		}
		r.countOne(a, alike)
	}
}

// skip identifies the pods of a group for which a policy is skipped or excluded for the same reason.
type skip struct{ policy, reason string }

func (r *reporter) countOne(a *assessment, alike map[*podStatus]int) {
	skips, messages := map[skip]int{}, map[skip]string{}
	selected := map[string]bool{}
	for s, n := range alike {
		if worst, found := s.worst(); found {
			r.plan.pods[worst] += n
		}
		for i := range s.verdicts {
			v := &s.verdicts[i]
			st := r.states[v.policy]
			if st == nil {
				continue
			}
			st.counts.add(v.state, int32(n))
			switch v.state {
			case inject.StateSkipped, inject.StateExcluded:
				key := skip{v.policy, v.reason}
				skips[key] += n
				if was, known := messages[key]; !known || v.message < was {
					messages[key] = v.message
				}
			case inject.StateStale, inject.StateInjected:
				selected[v.policy] = true
			}
		}
	}
	for key, n := range skips {
		r.states[key.policy].add(a.group, n, key.reason, messages[key])
	}
	for name := range selected {
		r.countStale(r.states[name], a)
	}
}

// countStale counts the stale pods of a group for a policy. If they are not recreated now, it also records the reason.
func (r *reporter) countStale(st *policyState, a *assessment) {
	n := a.stale[st.name]
	if a.class != classNone && a.class != classJob && a.class != classCronJob && (a.phase != manual || n == 0) {
		st.eligible++
	}
	if n == 0 || !slices.Contains(a.wanted, st.name) {
		return
	}
	switch {
	case a.phase == manual:
		st.counts.manual += int32(n)
		st.add(a.group, n, a.reason, a.message)
	case a.phase == nextRun:
		st.counts.nextRun += int32(n)
		st.add(a.group, n, a.reason, a.message)
	case a.reason == "":
	case !slices.Contains(a.fixable, st.name) && a.reason != reasonBlocked:
		st.counts.manual += int32(n)
		st.add(a.group, n, reasonOwner, "pods of its template are not injected: the labels or the content of its pods differ")
	default:
		st.add(a.group, n, a.reason, a.message)
	}
}

// worst returns the most severe state of a pod. found is false if the pod has no state.
func (s *podStatus) worst() (worst inject.State, found bool) {
	for _, want := range []inject.State{inject.StateStale, inject.StateSkipped, inject.StateExcluded, inject.StateInjected} {
		if slices.ContainsFunc(s.verdicts, func(v verdict) bool { return v.state == want }) {
			return want, true
		}
	}
	return "", false
}

func (c *counts) add(state inject.State, n int32) {
	c.matched += n
	switch state {
	case inject.StateInjected:
		c.injected += n
	case inject.StateStale:
		c.stale += n
	case inject.StateSkipped:
		c.skipped += n
	case inject.StateExcluded:
		c.excluded += n
	}
}

// report adds the status of a policy to the plan.
func (r *reporter) report(st *policyState) {
	now := &refractv1beta1.ServiceInjectionPolicyStatus{
		ObservedGeneration: st.generation, Hash: st.hash,
		Matched: st.counts.matched, Injected: st.counts.injected, Stale: st.counts.stale,
		Skipped: st.counts.skipped, Excluded: st.counts.excluded, Manual: st.counts.manual,
	}
	for _, w := range worstOf(st.workloads) {
		now.Workloads = append(now.Workloads, w.WorkloadStatus)
	}
	now.Rollout = r.rollout(st)
	for _, c := range []metav1.Condition{st.accepted(), st.resolved(), r.rolledOut(st, now.Rollout)} {
		c.ObservedGeneration = st.generation
		c.Message = output.Cut(c.Message, mostMessage)
		c.LastTransitionTime = metav1.NewTime(r.now.Truncate(time.Second))
		if was := meta.FindStatusCondition(st.status.Conditions, c.Type); was != nil && was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		now.Conditions = append(now.Conditions, c)
	}
	r.plan.statuses[st.name] = now
	r.addEvents(st, now)
}

// recreates reports whether the controller recreates pods for the policy.
func (r *reporter) recreates(st *policyState) bool {
	return st.problem == "" && !st.audit && !r.disabled && st.rollout.Strategy != refractv1beta1.RolloutNone
}

// rollout returns the rollout for the policy's status; nil if the policy recreates no pods.
func (r *reporter) rollout(st *policyState) *refractv1beta1.RolloutStatus {
	if !r.recreates(st) {
		return st.asHalted()
	}
	left := len(st.left)
	done := max(st.derived, int(st.before.Done)+st.finished)
	done = max(min(done, st.eligible-left), 0)
	now := &refractv1beta1.RolloutStatus{Hash: st.hash, Done: int32(done), Workloads: int32(done + left)}
	for _, a := range st.rolling {
		now.Current = append(now.Current, a.ref.String())
		if a.class == classOther && a.next.pods > 0 && len(now.Evicted) < refractv1beta1.MaxEvicted {
			now.Evicted = append(now.Evicted, refractv1beta1.EvictedWorkload{
				APIVersion: a.ref.apiVersion, Kind: a.ref.kind, Name: a.ref.name, UID: a.ref.uid, Pods: int32(a.next.pods),
			})
		}
	}
	slices.Sort(now.Current)
	slices.SortFunc(now.Evicted, func(a, b refractv1beta1.EvictedWorkload) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	now.Phase, now.Message = st.phase(left)
	now.Message = output.Cut(now.Message, mostMessage)
	return now
}

// asHalted returns the recorded status of a halted rollout; nil for others. It remains in the status even if no pods
// are recreated at the moment, because the cause of the halt still exists.
func (st *policyState) asHalted() *refractv1beta1.RolloutStatus {
	if st.problem != "" || st.before.Phase != refractv1beta1.PhaseHalted {
		return nil
	}
	return &st.before
}

// phase returns the phase of a rollout. If the rollout does not continue, message has the reason.
func (st *policyState) phase(left int) (refractv1beta1.RolloutPhase, string) {
	begun := st.passed || st.before.Phase == refractv1beta1.PhaseCanary || st.before.Phase == refractv1beta1.PhaseRolling
	switch {
	case left == 0:
		return refractv1beta1.PhaseComplete, ""
	case st.closed != "":
		return st.closed, st.why
	case len(st.rolling) == 0 && len(st.blocked) > 0:
		return refractv1beta1.PhaseBlocked, st.blocked[0].ref.String() + ": " + st.blocked[0].message
	case len(st.rolling) == 0 && !begun:
		return refractv1beta1.PhasePending, st.waits()
	case st.passed:
		return refractv1beta1.PhaseRolling, st.waits()
	default:
		return refractv1beta1.PhaseCanary, st.waits()
	}
}

// waits describes the first group that a rollout waits for. It is empty if some group is being recreated or if the
// rollout waits for nothing.
func (st *policyState) waits() string {
	if len(st.rolling) > 0 || len(st.busy) == 0 {
		return ""
	}
	return st.busy[0].ref.String() + ": " + st.busy[0].message
}

func (st *policyState) accepted() metav1.Condition {
	c := metav1.Condition{Type: refractv1beta1.ConditionAccepted, Status: metav1.ConditionTrue, Reason: reasonAccepted, Message: "the policy is in effect"}
	switch {
	case st.problem != "":
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, st.problemReason, st.problem
	case st.audit:
		c.Message = "the mode is Audit: nothing is injected, only reported"
	}
	return c
}

func (st *policyState) resolved() metav1.Condition {
	c := metav1.Condition{
		Type: refractv1beta1.ConditionReferencesResolved, Status: metav1.ConditionTrue, Reason: reasonResolved,
		Message: "all objects that the policy refers to exist",
	}
	switch {
	case st.problem != "":
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, st.problemReason, "the policy is not in effect"
	case st.unknown:
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, reasonUnreadable, strings.Join(st.missing, "; ")
	case len(st.missing) > 0:
		c.Status, c.Reason, c.Message = metav1.ConditionFalse, reasonNotFound, strings.Join(st.missing, "; ")
	case len(st.references) == 0:
		c.Message = "the policy has no required references"
	}
	return c
}

// conditionReasons has the reasons of the condition RolledOut, for the phases in which it is false.
var conditionReasons = map[refractv1beta1.RolloutPhase]string{
	refractv1beta1.PhasePending: string(refractv1beta1.PhasePending), refractv1beta1.PhaseBlocked: reasonBlocked,
	refractv1beta1.PhaseCanary: string(refractv1beta1.PhaseCanary), refractv1beta1.PhaseRolling: reasonRolling,
	refractv1beta1.PhasePaused: string(refractv1beta1.PhasePaused), refractv1beta1.PhaseHalted: reasonHalted,
	refractv1beta1.PhaseAwaitingApproval: string(refractv1beta1.PhaseAwaitingApproval),
}

func (r *reporter) rolledOut(st *policyState, now *refractv1beta1.RolloutStatus) metav1.Condition {
	c := metav1.Condition{Type: refractv1beta1.ConditionRolledOut, Status: metav1.ConditionFalse}
	switch {
	case st.problem != "":
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, st.problemReason, "the policy is not in effect"
	case st.audit:
		c.Reason, c.Message = inject.ReasonAudit, "the mode is Audit: nothing is injected, only reported"
	case st.counts.stale == 0 && (now == nil || now.Phase == refractv1beta1.PhaseComplete):
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonComplete, "no pod is stale"
	case now == nil && r.disabled:
		c.Reason = reasonDisabled
		c.Message = output.Count(st.counts.stale, "pod is", "pods are") + " stale; the controller does not recreate pods"
	case now == nil:
		c.Reason, c.Message = reasonNotRequested, output.Count(st.counts.stale, "pod is", "pods are")+" stale; the strategy is None"
	case now.Phase != refractv1beta1.PhaseComplete:
		c.Reason, c.Message = conditionReasons[now.Phase], now.Message
		if c.Message == "" {
			c.Message = fmt.Sprintf("%d of %d workloads are done", now.Done, now.Workloads)
		}
	case st.counts.manual > 0:
		c.Reason, c.Message = st.leftOver()
	default:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, reasonComplete, "all pods that can be recreated were recreated"
		if st.counts.nextRun > 0 {
			c.Message += fmt.Sprintf("; %s of CronJobs until their next run", output.Count(st.counts.nextRun, "pod is stale", "pods are stale"))
		}
	}
	return c
}

// leftOver describes the stale pods that the controller does not recreate. The reason is the most severe one.
func (st *policyState) leftOver() (reason, message string) {
	kinds := map[string]int{}
	for _, w := range worstOf(st.workloads) {
		if w.Reason == reasonReverts || w.Reason == reasonManual || w.Reason == reasonOwner {
			kinds[w.Reason]++
		}
	}
	for _, reason := range []string{reasonReverts, reasonManual, reasonOwner} {
		if kinds[reason] > 0 {
			return reason, output.Count(st.counts.manual, "pod has", "pods have") + " to be recreated manually or by their owners; see status.workloads"
		}
	}
	return reasonManual, output.Count(st.counts.manual, "pod has", "pods have") + " to be recreated manually or by their owners"
}
