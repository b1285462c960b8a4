package restart

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
)

// TestDecideByOwner tests each kind of workload alone, with a new policy.
func TestDecideByOwner(t *testing.T) {
	cases := map[string]struct {
		reason    string
		group     *group
		touches   []string
		policy    string
		counts    string
		workloads []string
	}{
		"Deployment": {
			reason:  "The template is annotated with the expected hash.",
			group:   owner("Deployment/web", pods(3, "a Stale")),
			touches: []string{"annotate Deployment/web a"},
			policy:  "Canary 0/1 [Deployment/web], False Canary", counts: "3 0 3 0 0 0", workloads: []string{"Deployment/web 3 Rolling"},
		},
		"StatefulSet": {
			reason:  "A StatefulSet is annotated like a Deployment.",
			group:   owner("StatefulSet/db", pods(2, "a Stale")),
			touches: []string{"annotate StatefulSet/db a"},
			policy:  "Canary 0/1 [StatefulSet/db], False Canary", counts: "2 0 2 0 0 0", workloads: []string{"StatefulSet/db 2 Rolling"},
		},
		"DaemonSet": {
			reason:  "A DaemonSet is annotated like a Deployment.",
			group:   owner("DaemonSet/agent", pods(2, "a Stale")),
			touches: []string{"annotate DaemonSet/agent a"},
			policy:  "Canary 0/1 [DaemonSet/agent], False Canary", counts: "2 0 2 0 0 0", workloads: []string{"DaemonSet/agent 2 Rolling"},
		},
		"PausedDeployment": {
			reason: "The owner has paused the Deployment, so it stays unchanged.",
			group:  owner("Deployment/web", pods(3, "a Stale"), onWorkload(func(w *workload) { w.paused = true })),
			policy: "Complete 0/0 [], False WaitingForOwner", counts: "3 0 3 0 0 3", workloads: []string{"Deployment/web 3 WaitingForOwner"},
		},
		"OnDelete": {
			reason: "With OnDelete, an annotation would recreate no pods, so the template stays unchanged.",
			group:  owner("StatefulSet/db", pods(3, "a Stale"), onWorkload(func(w *workload) { w.onDelete = true })),
			policy: "Complete 0/0 [], False WaitingForOwner", counts: "3 0 3 0 0 3", workloads: []string{"StatefulSet/db 3 WaitingForOwner"},
		},
		"Partition": {
			reason: "With a partition, the owner decides how far a change of the template goes.",
			group:  owner("StatefulSet/db", pods(3, "a Stale"), onWorkload(func(w *workload) { w.partitioned = true })),
			policy: "Complete 0/0 [], False WaitingForOwner", counts: "3 0 3 0 0 3", workloads: []string{"StatefulSet/db 3 WaitingForOwner"},
		},
		"OptedOut": {
			reason: "The owner of a workload that has opted out recreates the pods.",
			group:  owner("Deployment/web", pods(3, "a Stale"), onWorkload(func(w *workload) { w.optedOut = true })),
			policy: "Complete 0/0 [], False WaitingForOwner", counts: "3 0 3 0 0 3", workloads: []string{"Deployment/web 3 WaitingForOwner"},
		},
		"BareReplicaSet": {
			reason:  "The annotation makes replacements recognizable, although it recreates no pods of a ReplicaSet.",
			group:   owner("ReplicaSet/old", pods(2, "a Stale")),
			touches: []string{"annotate ReplicaSet/old a"},
			policy:  "Canary 0/1 [ReplicaSet/old], False Canary", counts: "2 0 2 0 0 0", workloads: []string{"ReplicaSet/old 2 Rolling"},
		},
		"BareReplicaSetAnnotated": {
			reason:  "The pods of an annotated ReplicaSet are evicted one by one, the oldest first.",
			group:   owner("ReplicaSet/old", pods(2, "a Stale"), annotated),
			touches: []string{"evict old-0 of ReplicaSet/old"},
			policy:  "Canary 0/1 [ReplicaSet/old], False Canary", counts: "2 0 2 0 0 0", workloads: []string{"ReplicaSet/old 2 Rolling"},
		},
		"ReplicationController": {
			reason:  "Pods of a ReplicationController are evicted like those of a ReplicaSet.",
			group:   owner("ReplicationController/old", pods(2, "a Stale"), annotated),
			touches: []string{"evict old-0 of ReplicationController/old"},
			policy:  "Canary 0/1 [ReplicationController/old], False Canary", counts: "2 0 2 0 0 0", workloads: []string{"ReplicationController/old 2 Rolling"},
		},
		"UnknownController": {
			reason:  "An unknown controller is only known to replace pods.",
			group:   owner("CloneSet/web", pods(2, "a Stale")),
			touches: []string{"evict web-0 of CloneSet/web"},
			policy:  "Canary 0/1 [CloneSet/web], False Canary", counts: "2 0 2 0 0 0", workloads: []string{"CloneSet/web 2 Rolling"},
		},
		"UnknownControllerOfTasks": {
			reason: "A controller of pods that run to completion waits for them. An eviction would count as a failure.",
			group:  owner("CloneSet/task", pods(1, "a Stale"), func(g *group) { g.pods[0].endless = false }),
			policy: "Complete 0/0 [], False ManualRestartRequired", counts: "1 0 1 0 0 1", workloads: []string{"CloneSet/task 1 ManualRestartRequired"},
		},
		"UnknownControllerOptedOut": {
			reason: "Owners of any kind can opt out by the annotation.",
			group:  owner("CloneSet/web", pods(1, "a Stale"), func(g *group) { g.optedOut = true }),
			policy: "Complete 0/0 [], False WaitingForOwner", counts: "1 0 1 0 0 1", workloads: []string{"CloneSet/web 1 WaitingForOwner"},
		},
		"UnknownControllerUnread": {
			reason: "If the owner cannot be read, its opt-out is unknown.",
			group:  owner("CloneSet/web", pods(1, "a Stale"), func(g *group) { g.unread = "it cannot be read" }),
			policy: "Blocked 0/1 [], False Blocked", counts: "1 0 1 0 0 0", workloads: []string{"CloneSet/web 1 Blocked"},
		},
		"Job": {
			reason: "The pods of a Job are not started twice.",
			group:  owner("Job/import", pods(1, "a Stale")),
			policy: "Complete 0/0 [], False ManualRestartRequired", counts: "1 0 1 0 0 1", workloads: []string{"Job/import 1 ManualRestartRequired"},
		},
		"CronJob": {
			reason: "The pods of the next run will be injected, so no action is necessary.",
			group:  owner("CronJob/nightly", pods(1, "a Stale")),
			policy: "Complete 0/0 [], True Complete", counts: "1 0 1 0 0 0", workloads: []string{"CronJob/nightly 1 NextRun"},
		},
		"BarePod": {
			reason: "A bare pod would not be replaced.",
			group:  owner("Pod/lonely", pods(1, "a Stale")),
			policy: "Complete 0/0 [], False ManualRestartRequired", counts: "1 0 1 0 0 1", workloads: []string{"Pod/lonely 1 ManualRestartRequired"},
		},
		"ExcludedPods": {
			reason: "Pods that have opted out are left alone.",
			group:  owner("Deployment/web", pods(3, "a Excluded OptedOut")),
			policy: "Complete 0/0 [], True Complete", counts: "3 0 0 0 3 0", workloads: []string{"Deployment/web 3 OptedOut"},
		},
		"HasEverything": {
			reason: "A pod with identical items of its own needs no injection.",
			group:  owner("Deployment/web", pods(3, "a Injected")),
			policy: "Complete 0/0 [], True Complete", counts: "3 3 0 0 0 0",
		},
		"Conflict": {
			reason: "A recreated pod would be skipped again, so it is left alone.",
			group:  owner("Deployment/web", pods(3, "a Skipped EnvConflict")),
			policy: "Complete 0/0 [], True Complete", counts: "3 0 0 3 0 0", workloads: []string{"Deployment/web 3 EnvConflict"},
		},
		"ScaledToZero": {
			reason: "The workload is scaled to zero, so its pods will disappear.",
			group:  owner("Deployment/web", pods(1, "a Stale"), onWorkload(func(w *workload) { w.replicas = 0 })),
			policy: "Complete 0/0 [], True Complete", counts: "1 0 1 0 0 0",
		},
		"Deleted": {
			reason: "The workload is being deleted, so its pods will disappear.",
			group:  owner("Deployment/web", pods(1, "a Stale"), onWorkload(func(w *workload) { w.deleting = true })),
			policy: "Complete 0/0 [], True Complete", counts: "1 0 1 0 0 0",
		},
		"EndedPods": {
			reason: "Finished pods and pods in deletion are not counted.",
			group: owner("Deployment/web", pods(3, "a Injected"), func(g *group) {
				g.pods[0].finished, g.pods[1].deleting = true, true
			}),
			policy: "Complete 0/0 [], True Complete", counts: "1 1 0 0 0 0",
		},
		"RollsOfItself": {
			reason: "If the workload has a rollout of its own, a second change would hide which of the two breaks it.",
			group:  owner("Deployment/web", pods(3, "a Stale"), incomplete),
			policy: "Pending 0/1 [], False Pending", counts: "3 0 3 0 0 0", workloads: []string{"Deployment/web 3 RolloutUnderWay"},
		},
		"ChangeNotSeenYet": {
			reason: "The workload's controller has not seen the latest change, and may be about to start a rollout.",
			group:  owner("Deployment/web", pods(3, "a Stale"), onWorkload(func(w *workload) { w.generation = 2 })),
			policy: "Pending 0/1 [], False Pending", counts: "3 0 3 0 0 0", workloads: []string{"Deployment/web 3 RolloutUnderWay"},
		},
		"TemplateIsOtherwise": {
			reason: "New pods of the template would not be injected either, so recreation would not help.",
			group: owner("Deployment/web", pods(3, "a Stale"), func(g *group) {
				g.prospect = prospect{hash: "", holds: map[string]bool{}}
			}),
			policy: "Complete 0/0 [], False WaitingForOwner", counts: "3 0 3 0 0 3", workloads: []string{"Deployment/web 3 WaitingForOwner"},
		},
		"TemplateIsRefused": {
			reason: "A policy with onConflict Reject would reject the new pods.",
			group: owner("Deployment/web", pods(3, "a Stale"), func(g *group) {
				g.prospect = prospect{problem: "policy b rejects its pods"}
			}),
			policy: "Blocked 0/1 [], False Blocked", counts: "3 0 3 0 0 0", workloads: []string{"Deployment/web 3 Blocked"},
		},
		"CrashesForWantOfIt": {
			reason:  "The workload is unavailable because its pods lack the items, so recreation can help.",
			group:   owner("Deployment/web", pods(3, "a Stale"), incomplete, func(g *group) { g.pods[2].trouble = "CrashLoopBackOff" }),
			touches: []string{"annotate Deployment/web a"},
			policy:  "Canary 0/1 [Deployment/web], False Canary", counts: "3 0 3 0 0 0", workloads: []string{"Deployment/web 3 Rolling"},
		},
		"StillStarts": {
			reason: "A pod without a problem may be about to become ready.",
			group: owner("ReplicaSet/old", pods(3, "a Stale"), annotated, incomplete, func(g *group) {
				g.pods[1].ready, g.pods[1].trouble = false, "CrashLoopBackOff"
			}),
			policy: "Pending 0/1 [], False Pending", counts: "3 0 3 0 0 0", workloads: []string{"ReplicaSet/old 3 RolloutUnderWay"},
		},
		"OwnerNotSeenYet": {
			reason: "The cache of workloads may be behind the cache of pods.",
			group:  owner("Deployment/web", pods(3, "a Stale"), func(g *group) { g.workload = nil }),
			policy: "Pending 0/1 [], False Pending", counts: "3 0 3 0 0 0", workloads: []string{"Deployment/web 3 RolloutUnderWay"},
		},
		"MissedByTheWebhook": {
			reason:  "The template already has the annotation. So the pods that were created while the webhook was unavailable are evicted.",
			group:   owner("Deployment/web", pods(1, "a Stale"), annotated),
			touches: []string{"evict web-0 of Deployment/web"},
			policy:  "Canary 0/1 [Deployment/web], False Canary", counts: "1 0 1 0 0 0", workloads: []string{"Deployment/web 1 Rolling"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := outcomeOf(decide(scene([]*policy{somePolicy("a")}, tc.group)))
			want := outcome{
				Touches: tc.touches, Policies: map[string]string{"a": tc.policy}, Counts: map[string]string{"a": tc.counts},
				Workloads: map[string][]string{"a": tc.workloads},
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.IgnoreMapEntries(func(_ string, v []string) bool { return len(v) == 0 })); diff != "" {
				t.Errorf("%s\ndecide(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestDecide tests several workloads and policies in different states of a rollout.
func TestDecide(t *testing.T) {
	three := func(change ...func(*group)) []*group {
		stale := append([]func(*group){pods(3, "a Stale")}, change...)
		return []*group{owner("Deployment/x", stale...), owner("Deployment/y", stale...), owner("Deployment/z", stale...)}
	}
	done := owner("Deployment/done", pods(3, "a Injected"), recreated)
	rolls := func(change ...func(*group)) *group {
		return owner("Deployment/rolls", append([]func(*group){pods(2, "a Stale"), annotated, newPod(func(*pod) {}), incomplete}, change...)...)
	}
	// tried is an incomplete workload that was touched for an earlier content of policy a. Its template has changed
	// since.
	tried := func(name string, states ...string) *group {
		return owner(name, pods(2, states...), incomplete, onWorkload(func(w *workload) { w.templateHash = "other" }))
	}
	sick := func(g *group) { g.pods[len(g.pods)-1].ready = false }
	overtaken := func(contents map[types.UID]string, policies []*policy, groups ...*group) *snapshot {
		s := scene(policies, groups...)
		for uid, hash := range contents {
			s.previous[uid] = workloadState{generation: 1, begun: noon, changed: noon, contents: map[string]string{"a": hash}}
		}
		return s
	}
	pausedToo := func(current ...string) []*policy {
		return []*policy{somePolicy("a", reached(refractv1beta1.PhaseCanary, 0, current...)), somePolicy("b", func(p *policy) { p.paused = true })}
	}
	one := func(change ...func(*policy)) []*policy { return []*policy{somePolicy("a", change...)} }
	cases := map[string]struct {
		reason    string
		snapshot  *snapshot
		touches   []string
		policies  map[string]string
		workloads map[string][]string // Only the relevant ones.
	}{
		"CanaryIsTheSmallest": {
			reason:   "One workload comes first: the one with the fewest pods, among the kinds whose controllers are known best.",
			snapshot: scene(one(), append(three(), owner("Deployment/small", pods(2, "a Stale")), owner("ReplicaSet/tiny", pods(1, "a Stale")), owner("CloneSet/tiny", pods(1, "a Stale")))...),
			touches:  []string{"annotate Deployment/small a"},
			policies: map[string]string{"a": "Canary 0/6 [Deployment/small], False Canary"},
		},
		"BrokenIsNotTheCanary": {
			reason: "A broken workload proves nothing about the new content as the canary, and would halt the others.",
			snapshot: scene(one(), append(three(),
				owner("Deployment/broken", pods(1, "a Stale"), incomplete, func(g *group) { g.pods[0].trouble = "CrashLoopBackOff" }))...),
			touches:  []string{"annotate Deployment/x a"},
			policies: map[string]string{"a": "Canary 0/4 [Deployment/x], False Canary"},
		},
		"CanaryStillRolls": {
			reason:   "The other workloads wait for the canary.",
			snapshot: scene(one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/rolls")), append(three(), rolls())...),
			policies: map[string]string{"a": "Canary 0/4 [Deployment/rolls], False Canary"},
		},
		"CanaryIsDone": {
			reason:   "After the canary, maxConcurrent workloads follow at a time.",
			snapshot: scene(one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/done")), append(three(), done)...),
			touches:  []string{"annotate Deployment/x a", "annotate Deployment/y a"},
			policies: map[string]string{"a": "Rolling 1/4 [Deployment/x Deployment/y], False Rolling"},
		},
		"CanaryHasNotBeenAvailableForLong": {
			reason: "The policy's minReadySeconds count from the time when the last pod became ready.",
			snapshot: scene(one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/done"), func(p *policy) { p.rollout.MinReadySeconds = 60 }),
				append(three(), owner("Deployment/done", pods(3, "a Injected"), recreated, func(g *group) { g.pods[1].readySince = noon.Add(-59 * time.Second) }))...),
			policies: map[string]string{"a": "Canary 0/4 [Deployment/done], False Canary"},
		},
		"CanaryCameBackWithoutIt": {
			reason: "The webhook does not respond. The canary's pods are back, but not for minReadySeconds yet, so the others wait.",
			snapshot: func() *snapshot {
				s := scene(one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/done"), func(p *policy) { p.rollout.MinReadySeconds = 60 }),
					append(three(), owner("Deployment/done", pods(3, "a Stale"), recreated, func(g *group) { g.pods[1].readySince = noon.Add(-59 * time.Second) }))...)
				s.probes["Deployment/done"] = probe{hash: "a", reason: "NotInjected", message: "no answer", at: noon, retry: noon.Add(time.Second)}
				return s
			}(),
			policies: map[string]string{"a": "Canary 0/4 [Deployment/done], False Canary"},
		},
		"CanaryCameBackWithoutItLongAgo": {
			reason: "The canary was available for minReadySeconds without the items, so another workload comes first.",
			snapshot: func() *snapshot {
				s := scene(one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/done"), func(p *policy) { p.rollout.MinReadySeconds = 60 }),
					append(three(), owner("Deployment/done", pods(3, "a Stale"), recreated, func(g *group) { g.pods[1].readySince = noon.Add(-60 * time.Second) }))...)
				s.probes["Deployment/done"] = probe{hash: "a", reason: "NotInjected", message: "no answer", at: noon, retry: noon.Add(time.Second)}
				return s
			}(),
			touches:  []string{"annotate Deployment/x a"},
			policies: map[string]string{"a": "Canary 0/4 [Deployment/x], False Canary"},
		},
		"CanaryIsUpAndItsPodsAreNotSeenYet": {
			reason: "Pods are watched separately from workloads. The known pods are of the previous template and no longer exist, so none is evicted.",
			snapshot: scene(one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/done")),
				append(three(), owner("Deployment/done", pods(3, "a Stale"), annotated))...),
			policies:  map[string]string{"a": "Canary 0/4 [Deployment/done], False Canary"},
			workloads: map[string][]string{"a": {"Deployment/done 3 Rolling", "Deployment/x 3 Queued", "Deployment/y 3 Queued", "Deployment/z 3 Queued"}},
		},
		"OvertakenCanaryIsUpAndItsPodsAreNotSeenYet": {
			reason: "The previous pods were ready for long enough, but the canary keeps its place, even if it cannot be touched again.",
			snapshot: func() *snapshot {
				s := scene(one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/done"), func(p *policy) { p.rollout.MinReadySeconds = 5 }),
					append(three(), owner("Deployment/done", pods(3, "a Stale"), onWorkload(func(w *workload) { w.templateHash = "other" })))...)
				s.probes["Deployment/done"] = probe{hash: "a", reason: "PodRefused", message: "no answer", at: noon, retry: noon.Add(time.Second)}
				return s
			}(),
			policies:  map[string]string{"a": "Canary 0/4 [Deployment/done], False Canary"},
			workloads: map[string][]string{"a": {"Deployment/done 3 Blocked", "Deployment/x 3 Queued", "Deployment/y 3 Queued", "Deployment/z 3 Queued"}},
		},
		"CanaryLosesTheAnnotationWhenItIsUp": {
			reason: "A user removes the annotation after the pods were injected. The time still counts from when the last pod became ready.",
			snapshot: scene(one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/done"), func(p *policy) { p.rollout.MinReadySeconds = 60 }),
				append(three(), owner("Deployment/done", pods(3, "a Injected"), func(g *group) { g.pods[1].readySince = noon.Add(-59 * time.Second) }))...),
			policies: map[string]string{"a": "Canary 0/4 [Deployment/done], False Canary"},
		},
		"OneRolls": {
			reason:   "One of two places is free.",
			snapshot: scene(one(reached(refractv1beta1.PhaseRolling, 1, "Deployment/rolls")), append(three(), rolls())...),
			touches:  []string{"annotate Deployment/x a"},
			policies: map[string]string{"a": "Rolling 0/4 [Deployment/rolls Deployment/x], False Rolling"},
		},
		"StatusWasLost": {
			reason:   "An annotated workload with up-to-date pods proves that the canary has passed.",
			snapshot: scene(one(), append(three(), done)...),
			touches:  []string{"annotate Deployment/x a", "annotate Deployment/y a"},
			policies: map[string]string{"a": "Rolling 1/4 [Deployment/x Deployment/y], False Rolling"},
		},
		"ContentChanged": {
			reason: "With new content, the rollout begins with one workload again.",
			snapshot: scene(one(reached(refractv1beta1.PhaseComplete, 3), func(p *policy) { p.hash = "other" }),
				three(onWorkload(func(w *workload) { w.templateHash = "old" }))...),
			touches:  []string{"annotate Deployment/x a"},
			policies: map[string]string{"a": "Canary 0/3 [Deployment/x], False Canary"},
		},
		"BrokenOneIsFirstAfterAChange": {
			reason: "After a halt, the new content is tried on the failed workload first. That workload is incomplete only because of the rollout.",
			snapshot: scene(one(reached(refractv1beta1.PhaseHalted, 1, "Deployment/rolls"), func(p *policy) { p.hash = "other" }),
				append(three(), rolls(onWorkload(func(w *workload) { w.templateHash = "old" })))...),
			touches:  []string{"annotate Deployment/rolls a"},
			policies: map[string]string{"a": "Canary 0/4 [Deployment/rolls], False Canary"},
		},
		"CanaryIsOvertakenByAnotherPolicy": {
			reason: "The canary was touched for the same content, so the others wait until it is complete.",
			snapshot: overtaken(map[types.UID]string{"Deployment/rolls": "hash-a"}, pausedToo("Deployment/rolls"),
				append(three(), tried("Deployment/rolls", "a Injected", "b Stale"))...),
			policies: map[string]string{"a": "Canary 0/4 [Deployment/rolls], False Canary", "b": "Paused 0/1 [], False Paused"},
		},
		"CanaryIsOvertakenByItsOwner": {
			reason: "The canary keeps its place if a user removes the annotation from its template.",
			snapshot: overtaken(map[types.UID]string{"Deployment/rolls": "hash-a"}, one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/rolls")),
				append(three(), tried("Deployment/rolls", "a Injected"))...),
			policies: map[string]string{"a": "Canary 0/4 [Deployment/rolls], False Canary"},
		},
		"CanaryIsOvertakenByItsPolicy": {
			reason: "The canary was touched for other content. If it cannot be touched again, another workload comes first.",
			snapshot: overtaken(map[types.UID]string{"Deployment/rolls": "hash-before"}, pausedToo("Deployment/rolls"),
				append(three(), tried("Deployment/rolls", "a Stale", "b Stale"))...),
			touches:  []string{"annotate Deployment/x a"},
			policies: map[string]string{"a": "Canary 0/4 [Deployment/rolls Deployment/x], False Canary", "b": "Paused 0/1 [], False Paused"},
		},
		"CanaryIsOvertakenAtItsTouch": {
			reason: "The policy changed immediately before the touch of the canary, so the new pods have the new content, and the others wait for them.",
			snapshot: overtaken(map[types.UID]string{"Deployment/rolls": "hash-before"}, one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/rolls")),
				append(three(), tried("Deployment/rolls", "a Injected"))...),
			policies: map[string]string{"a": "Canary 0/4 [Deployment/rolls], False Canary"},
		},
		"CanaryIsOvertakenBeforeARestart": {
			reason:   "After a restart, the status tells that the canary was touched for the present content.",
			snapshot: scene(pausedToo("Deployment/rolls"), append(three(), tried("Deployment/rolls", "a Injected", "b Stale"))...),
			policies: map[string]string{"a": "Canary 0/4 [Deployment/rolls], False Canary", "b": "Paused 0/1 [], False Paused"},
		},
		"CanaryIsOvertakenByItsPolicyAfterARestart": {
			reason: "The policy changes after the restart. The canary was touched for other content, so another workload comes first.",
			snapshot: func() *snapshot {
				canary := tried("Deployment/rolls", "a Injected", "b Stale")
				s := scene(pausedToo("Deployment/rolls"), append(three(), canary)...)
				s.previous = decide(s).next
				s.policies[0].hash = "other"
				*canary = *tried("Deployment/rolls", "a Stale", "b Stale")
				s.policies[0].status = decide(s).statuses["a"] // The status names the workload and the new content.
				s.previous = decide(s).next
				return s
			}(),
			touches:  []string{"annotate Deployment/x a"},
			policies: map[string]string{"a": "Canary 0/4 [Deployment/rolls Deployment/x], False Canary", "b": "Paused 0/1 [], False Paused"},
		},
		"OneWithTheContentBeforeWaitsToo": {
			reason: "A workload that is broken with the previous content does not get the new one before the canary has passed.",
			snapshot: overtaken(map[types.UID]string{"Deployment/rolls": "hash-a", "Deployment/old": "hash-before"}, pausedToo("Deployment/rolls", "Deployment/old"),
				tried("Deployment/old", "a Stale"), tried("Deployment/rolls", "a Injected", "b Stale")),
			policies: map[string]string{"a": "Canary 0/2 [Deployment/old Deployment/rolls], False Canary", "b": "Paused 0/1 [], False Paused"},
		},
		"TwoAreOvertaken": {
			reason: "Two workloads that were touched for the present content do not wait for each other.",
			snapshot: overtaken(map[types.UID]string{"Deployment/v": "hash-a", "Deployment/w": "hash-a"}, one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/v", "Deployment/w")),
				tried("Deployment/v", "a Stale"), tried("Deployment/w", "a Stale")),
			touches:  []string{"annotate Deployment/v a"},
			policies: map[string]string{"a": "Canary 0/2 [Deployment/v Deployment/w], False Canary"},
		},
		"TwoOfUnknownKindsAreOvertaken": {
			reason: "Two workloads do not come up with the previous content. The new content is tried on one of them.",
			snapshot: overtaken(map[types.UID]string{"CloneSet/c": "hash-before", "CloneSet/d": "hash-before"}, one(reached(refractv1beta1.PhaseCanary, 0, "CloneSet/c", "CloneSet/d")),
				owner("CloneSet/c", pods(2, "a Stale"), sick), owner("CloneSet/d", pods(2, "a Stale"), sick)),
			touches:   []string{"evict c-1 of CloneSet/c"},
			policies:  map[string]string{"a": "Canary 0/2 [CloneSet/c CloneSet/d], False Canary"},
			workloads: map[string][]string{"a": {"CloneSet/c 2 Rolling", "CloneSet/d 2 Queued"}},
		},
		"OneOfAnUnknownKindWaitsForTheNewContent": {
			reason: "A workload with the previous content waits for the canary, for any time, and does not halt the new content, which may repair it.",
			snapshot: func() *snapshot {
				s := overtaken(map[types.UID]string{"CloneSet/c": "hash-a", "CloneSet/d": "hash-before"}, one(reached(refractv1beta1.PhaseCanary, 0, "CloneSet/c", "CloneSet/d")),
					owner("CloneSet/c", pods(2, "a Injected"), sick), owner("CloneSet/d", pods(2, "a Stale"), sick))
				d := s.previous["CloneSet/d"]
				d.changed = noon.Add(-DefaultPatience)
				s.previous["CloneSet/d"] = d
				return s
			}(),
			policies:  map[string]string{"a": "Canary 0/2 [CloneSet/c CloneSet/d], False Canary"},
			workloads: map[string][]string{"a": {"CloneSet/d 2 Queued"}},
		},
		"PolicyPaused": {
			reason:   "No further workload is touched, but the workload in progress continues.",
			snapshot: scene(one(reached(refractv1beta1.PhaseRolling, 1, "Deployment/rolls"), func(p *policy) { p.paused = true }), append(three(), rolls())...),
			policies: map[string]string{"a": "Paused 0/4 [Deployment/rolls], False Paused"},
		},
		"Manual": {
			reason:    "The strategy Manual waits for an approval.",
			snapshot:  scene(one(strategy(refractv1beta1.RolloutManual)), three()...),
			policies:  map[string]string{"a": "AwaitingApproval 0/3 [], False AwaitingApproval"},
			workloads: map[string][]string{"a": {"Deployment/x 3 AwaitingApproval", "Deployment/y 3 AwaitingApproval", "Deployment/z 3 AwaitingApproval"}},
		},
		"ManualApproved": {
			reason:   "The approval names the hash of the content.",
			snapshot: scene(one(strategy(refractv1beta1.RolloutManual), func(p *policy) { p.approved = "hash-a" }), three()...),
			touches:  []string{"annotate Deployment/x a"},
			policies: map[string]string{"a": "Canary 0/3 [Deployment/x], False Canary"},
		},
		"ManualApprovedBefore": {
			reason:   "The approval was for other content.",
			snapshot: scene(one(strategy(refractv1beta1.RolloutManual), func(p *policy) { p.approved = "hash-before" }), three()...),
			policies: map[string]string{"a": "AwaitingApproval 0/3 [], False AwaitingApproval"},
		},
		"StrategyNone": {
			reason:   "With the strategy None, pods are only counted.",
			snapshot: scene(one(strategy(refractv1beta1.RolloutNone)), three()...),
			policies: map[string]string{"a": "none, False NotRequested"},
		},
		"Audit": {
			reason:    "In the mode Audit, pods count as skipped, and none is recreated.",
			snapshot:  scene(one(func(p *policy) { p.audit = true }), owner("Deployment/x", pods(3, "a Skipped Audit"))),
			policies:  map[string]string{"a": "none, False Audit"},
			workloads: map[string][]string{"a": {"Deployment/x 3 Audit"}},
		},
		"Disabled": {
			reason: "A disabled controller touches no workload.",
			snapshot: func() *snapshot {
				s := scene(one(), three()...)
				s.disabled = true
				return s
			}(),
			policies: map[string]string{"a": "none, False Disabled"},
		},
		"InvalidPolicy": {
			reason:   "An invalid policy selects no pods, so there are no counts.",
			snapshot: scene([]*policy{{name: "a", problem: "selector: no such operator", problemReason: "InvalidPolicy", status: &refractv1beta1.ServiceInjectionPolicyStatus{}}}),
			policies: map[string]string{"a": "none, Unknown InvalidPolicy"},
		},
		"SecretMissing": {
			reason: "A policy that names a missing Secret recreates no pods.",
			snapshot: func() *snapshot {
				s := scene(one(needs("Secret", "db")), three()...)
				s.references[object{"Secret", "db"}] = resolution{at: noon}
				return s
			}(),
			policies: map[string]string{"a": "Blocked 0/3 [], False Blocked"},
		},
		"KeyMissing": {
			reason: "Pods that need a missing key would not start.",
			snapshot: func() *snapshot {
				s := scene(one(needs("ConfigMap", "conf", "port")), three()...)
				s.references[object{"ConfigMap", "conf"}] = resolution{found: true, keys: map[string]bool{"host": true}, at: noon}
				return s
			}(),
			policies: map[string]string{"a": "Blocked 0/3 [], False Blocked"},
		},
		"SecretOfAnotherPolicyMissing": {
			reason: "Recreated pods get the items of all policies, including those of a policy that recreates no pods.",
			snapshot: func() *snapshot {
				s := scene([]*policy{somePolicy("a"), somePolicy("b", strategy(refractv1beta1.RolloutNone), needs("Secret", "db"))},
					owner("Deployment/x", pods(3, "a Stale", "b Stale")), owner("Deployment/y", pods(3, "a Stale")))
				s.references[object{"Secret", "db"}] = resolution{at: noon}
				return s
			}(),
			touches:   []string{"annotate Deployment/y a"},
			policies:  map[string]string{"a": "Canary 0/2 [Deployment/y], False Canary", "b": "none, False NotRequested"},
			workloads: map[string][]string{"a": {"Deployment/x 3 Blocked", "Deployment/y 3 Rolling"}},
		},
		"ProbeFails": {
			reason: "No pod is removed if its replacement would be rejected or not be injected.",
			snapshot: func() *snapshot {
				s := scene(one(), three()...)
				for uid, p := range s.probes {
					p.ok, p.reason, p.message, p.retry = false, "NotInjected", "no answer", noon.Add(time.Second)
					s.probes[uid] = p
				}
				return s
			}(),
			policies:  map[string]string{"a": "Blocked 0/3 [], False Blocked"},
			workloads: map[string][]string{"a": {"Deployment/x 3 Blocked", "Deployment/y 3 Blocked", "Deployment/z 3 Blocked"}},
		},
		"ProbeOfOneFails": {
			reason: "A workload whose pods exceed the quota does not block the others.",
			snapshot: func() *snapshot {
				s := scene(one(), three()...)
				s.probes["Deployment/x"] = probe{hash: "a", reason: "PodRefused", message: "quota", at: noon, retry: noon.Add(time.Second)}
				return s
			}(),
			touches:   []string{"annotate Deployment/y a"},
			policies:  map[string]string{"a": "Canary 0/3 [Deployment/y], False Canary"},
			workloads: map[string][]string{"a": {"Deployment/x 3 Blocked", "Deployment/y 3 Rolling", "Deployment/z 3 Queued"}},
		},
		"CanaryCrashes": {
			reason: "After a crash of the canary, no further workload is touched.",
			snapshot: scene(one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/rolls")),
				append(three(), rolls(newPod(func(p *pod) { p.trouble = "CrashLoopBackOff" })))...),
			policies: map[string]string{"a": "Halted 0/4 [Deployment/rolls], False RolloutHalted"},
		},
		"ImageNotThereYet": {
			reason: "A missing image is tolerated for one minute.",
			snapshot: scene(one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/rolls")),
				append(three(), rolls(newPod(func(p *pod) { p.trouble, p.troubleFrom = "ErrImagePull", noon.Add(time.Second) })))...),
			policies: map[string]string{"a": "Canary 0/4 [Deployment/rolls], False Canary"},
		},
		"ImageNotThere": {
			reason: "A missing image halts the rollout after one minute.",
			snapshot: scene(one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/rolls")),
				append(three(), rolls(newPod(func(p *pod) { p.trouble, p.troubleFrom = "ErrImagePull", noon })))...),
			policies: map[string]string{"a": "Halted 0/4 [Deployment/rolls], False RolloutHalted"},
		},
		"OldPodCrashes": {
			reason: "A crash of a pod of the previous template has another cause.",
			snapshot: scene(one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/rolls")),
				append(three(), rolls(func(g *group) { g.pods[0].trouble = "CrashLoopBackOff" }))...),
			policies: map[string]string{"a": "Canary 0/4 [Deployment/rolls], False Canary"},
		},
		"DeadlineExceeded": {
			reason: "The Deployment's controller reports that the rollout does not progress.",
			snapshot: scene(one(reached(refractv1beta1.PhaseRolling, 1, "Deployment/rolls")),
				append(three(), rolls(onWorkload(func(w *workload) { w.stuck = "ProgressDeadlineExceeded" })))...),
			policies: map[string]string{"a": "Halted 0/4 [Deployment/rolls], False RolloutHalted"},
		},
		"NoProgress": {
			reason: "A workload without progress for ten minutes halts the rollout.",
			snapshot: func() *snapshot {
				s := scene(one(reached(refractv1beta1.PhaseRolling, 1, "Deployment/rolls")), append(three(), rolls())...)
				s.previous = decide(s).next
				s.now = noon.Add(DefaultPatience)
				return s
			}(),
			policies: map[string]string{"a": "Halted 0/4 [Deployment/rolls], False RolloutHalted"},
		},
		"StaysHalted": {
			reason: "The rollout stays halted after a restart, even if the failed workload has recovered.",
			snapshot: scene(one(reached(refractv1beta1.PhaseHalted, 1, "Deployment/done")),
				append(three(), done)...),
			policies: map[string]string{"a": "Halted 1/4 [], False RolloutHalted"},
		},
		"HaltedWhileDisabled": {
			reason: "The rollout stays halted while the controller is disabled, and continues to be halted afterwards.",
			snapshot: func() *snapshot {
				s := scene(one(reached(refractv1beta1.PhaseHalted, 1)), three()...)
				s.disabled = true
				return s
			}(),
			policies: map[string]string{"a": "Halted 1/0 [], False RolloutHalted"},
		},
		"HaltedAndNone": {
			reason:   "The rollout stays halted while the strategy is None, because the content is the same.",
			snapshot: scene(one(reached(refractv1beta1.PhaseHalted, 1), strategy(refractv1beta1.RolloutNone)), three()...),
			policies: map[string]string{"a": "Halted 1/0 [], False RolloutHalted"},
		},
		"ResumedGoesOn": {
			reason: "A user resumes the rollout, and the failed workload gets the same time again.",
			snapshot: scene(one(reached(refractv1beta1.PhaseHalted, 1, "Deployment/rolls"), func(p *policy) { p.resumed = "hash-a" }),
				append(three(), rolls(newPod(func(p *pod) { p.trouble = "CrashLoopBackOff" })))...),
			touches:  []string{"annotate Deployment/x a"},
			policies: map[string]string{"a": "Rolling 0/4 [Deployment/rolls Deployment/x], False Rolling"},
		},
		"ResumedForAnotherHash": {
			reason: "The annotation resumes the rollout of other content.",
			snapshot: scene(one(reached(refractv1beta1.PhaseHalted, 1, "Deployment/rolls"), func(p *policy) { p.resumed = "hash-b" }),
				append(three(), rolls())...),
			policies: map[string]string{"a": "Halted 0/4 [Deployment/rolls], False RolloutHalted"},
		},
		"SmallestBound": {
			reason: "A workload counts for each policy that recreates it, so the smallest maxConcurrent applies.",
			snapshot: scene(
				[]*policy{somePolicy("a", reached(refractv1beta1.PhaseRolling, 1)), somePolicy("b", reached(refractv1beta1.PhaseRolling, 1), func(p *policy) { p.rollout.MaxConcurrent = 1 })},
				owner("Deployment/v", pods(1, "a Stale", "b Stale")), owner("Deployment/w", pods(1, "a Stale", "b Stale")),
				owner("Deployment/x", pods(1, "a Stale")), owner("Deployment/y", pods(1, "a Stale"))),
			touches: []string{"annotate Deployment/v a+b", "annotate Deployment/x a"},
			policies: map[string]string{
				"a": "Rolling 0/4 [Deployment/v Deployment/x], False Rolling", "b": "Rolling 0/2 [Deployment/v], False Rolling",
			},
		},
		"AnotherPolicyWaits": {
			reason: "A recreation for one policy would also inject the items of the other policy before its approval.",
			snapshot: scene(
				[]*policy{somePolicy("a"), somePolicy("b", strategy(refractv1beta1.RolloutManual))},
				owner("Deployment/v", pods(1, "a Stale", "b Stale"))),
			policies:  map[string]string{"a": "Pending 0/1 [], False Pending", "b": "AwaitingApproval 0/1 [], False AwaitingApproval"},
			workloads: map[string][]string{"a": {"Deployment/v 1 AwaitingApproval"}, "b": {"Deployment/v 1 AwaitingApproval"}},
		},
		"AnotherPolicyRequestsNothing": {
			reason: "A policy with the strategy None does not prevent others from recreating pods.",
			snapshot: scene(
				[]*policy{somePolicy("a"), somePolicy("b", strategy(refractv1beta1.RolloutNone))},
				owner("Deployment/v", pods(1, "a Stale", "b Stale"))),
			touches:  []string{"annotate Deployment/v a+b"},
			policies: map[string]string{"a": "Canary 0/1 [Deployment/v], False Canary", "b": "none, False NotRequested"},
		},
		"RevertedTwice": {
			reason: "The owner of the template removed the annotation twice, so the workload is left alone.",
			snapshot: func() *snapshot {
				s := scene(one(), three()...)
				s.previous["Deployment/x"] = workloadState{hash: "a", generation: 1, begun: noon.Add(-time.Minute), reverts: 1}
				return s
			}(),
			touches:   []string{"annotate Deployment/y a"},
			policies:  map[string]string{"a": "Canary 0/2 [Deployment/y], False Canary"},
			workloads: map[string][]string{"a": {"Deployment/x 3 OwnerReverts", "Deployment/y 3 Rolling", "Deployment/z 3 Queued"}},
		},
		"RevertedWhileItRolls": {
			reason: "The pods return to the previous template. The workload keeps its place until they are ready.",
			snapshot: func() *snapshot {
				s := overtaken(nil, one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/rolls")), append(three(), tried("Deployment/rolls", "a Stale"))...)
				s.previous["Deployment/rolls"] = workloadState{hash: "a", generation: 1, begun: noon.Add(-time.Minute), changed: noon.Add(-time.Minute), reverts: 1}
				return s
			}(),
			policies:  map[string]string{"a": "Canary 0/4 [Deployment/rolls], False Canary"},
			workloads: map[string][]string{"a": {"Deployment/rolls 2 OwnerReverts", "Deployment/x 3 Queued", "Deployment/y 3 Queued", "Deployment/z 3 Queued"}},
		},
		"RevertedAndDoesNotComeUp": {
			reason: "The owner of the template broke the workload and must repair it, so the others do not wait forever.",
			snapshot: func() *snapshot {
				s := overtaken(nil, one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/rolls")), append(three(), tried("Deployment/rolls", "a Stale"))...)
				s.previous["Deployment/rolls"] = workloadState{hash: "a", generation: 1, begun: noon.Add(-time.Minute), changed: noon.Add(-time.Minute), reverts: 1}
				s.previous = decide(s).next
				m := s.previous["Deployment/rolls"]
				m.notBefore = noon.Add(time.Hour)
				s.previous["Deployment/rolls"] = m
				s.now = noon.Add(DefaultPatience)
				for uid, p := range s.probes {
					p.at = s.now
					s.probes[uid] = p
				}
				return s
			}(),
			touches:   []string{"annotate Deployment/x a"},
			policies:  map[string]string{"a": "Canary 0/3 [Deployment/x], False Canary"},
			workloads: map[string][]string{"a": {"Deployment/rolls 2 OwnerReverts", "Deployment/x 3 Rolling", "Deployment/y 3 Queued", "Deployment/z 3 Queued"}},
		},
		"RevertedOnce": {
			reason: "A single removal of the annotation may be a rollback of an unrelated change.",
			snapshot: func() *snapshot {
				s := scene(one(), three()...)
				s.previous["Deployment/x"] = workloadState{hash: "a", generation: 1, begun: noon.Add(-time.Minute)}
				return s
			}(),
			touches:  []string{"annotate Deployment/x a"},
			policies: map[string]string{"a": "Canary 0/3 [Deployment/x], False Canary"},
		},
		"RevertedBeforeARestart": {
			reason: "The status has the reverted workload, so a restart does not cause another attempt.",
			snapshot: scene(one(func(p *policy) {
				p.status.Workloads = []refractv1beta1.WorkloadStatus{{Kind: "Deployment", Name: "x", Reason: "OwnerReverts", Message: "it was taken off"}}
			}), three()[0]),
			policies:  map[string]string{"a": "Complete 0/0 [], False OwnerReverts"},
			workloads: map[string][]string{"a": {"Deployment/x 3 OwnerReverts"}},
		},
		"CacheIsBehind": {
			reason: "The cache does not show the annotation that was just written, which is not a revert.",
			snapshot: func() *snapshot {
				s := scene(one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/x")), three()...)
				s.previous["Deployment/x"] = workloadState{hash: "a", generation: 2, begun: noon.Add(-time.Second), changed: noon.Add(-time.Second)}
				return s
			}(),
			policies: map[string]string{"a": "Canary 0/3 [Deployment/x], False Canary"},
		},
		"EvictionRefused": {
			reason: "A refused eviction holds no place, because no pod is unavailable.",
			snapshot: func() *snapshot {
				s := scene(one(reached(refractv1beta1.PhaseCanary, 0, "ReplicaSet/r")),
					append(three(), owner("ReplicaSet/r", pods(1, "a Stale"), annotated))...)
				s.previous["ReplicaSet/r"] = workloadState{hash: "a", generation: 1, refused: 1, reason: "EvictionRefused", message: "budget", notBefore: noon.Add(time.Second)}
				return s
			}(),
			touches:   []string{"annotate Deployment/x a"},
			policies:  map[string]string{"a": "Canary 0/4 [Deployment/x], False Canary"},
			workloads: map[string][]string{"a": {"ReplicaSet/r 1 EvictionRefused", "Deployment/x 3 Rolling", "Deployment/y 3 Queued", "Deployment/z 3 Queued"}},
		},
		"EvictedPodIsNotReplacedYet": {
			reason: "The next pod is evicted only after the replacement is ready.",
			snapshot: func() *snapshot {
				s := scene(one(reached(refractv1beta1.PhaseCanary, 0, "ReplicaSet/r")), owner("ReplicaSet/r", pods(2, "a Stale"), annotated))
				s.previous["ReplicaSet/r"] = workloadState{hash: "a", generation: 1, evicted: "ReplicaSet/r-0", firstEviction: noon, begun: noon, changed: noon}
				return s
			}(),
			policies: map[string]string{"a": "Canary 0/1 [ReplicaSet/r], False Canary"},
		},
		"UnknownOwnersPodIsNotReplacedYet": {
			reason: "For an owner of an unknown kind, the earlier number of pods is remembered.",
			snapshot: func() *snapshot {
				s := scene(one(reached(refractv1beta1.PhaseCanary, 0, "CloneSet/c")), owner("CloneSet/c", pods(2, "a Stale")))
				s.previous["CloneSet/c"] = workloadState{evicted: "gone", pods: 3, firstEviction: noon, begun: noon, changed: noon}
				return s
			}(),
			policies: map[string]string{"a": "Canary 0/1 [CloneSet/c], False Canary"},
		},
		"UnknownOwnersPodIsNotReplacedBeforeARestart": {
			reason: "After a restart, the status has the earlier number of pods. The owner keeps its place, even if no pod can be created.",
			snapshot: func() *snapshot {
				s := scene(one(reached(refractv1beta1.PhaseCanary, 0, "CloneSet/c"), evictedOf("CloneSet/c", 3)),
					append(three(), owner("CloneSet/c", pods(2, "a Stale")))...)
				s.previous["CloneSet/c"] = workloadState{begun: noon.Add(-lag)} // Long enough for evictions by the former replica to be seen.
				s.probes["CloneSet/c"] = probe{hash: "a", reason: "PodRefused", message: "quota", at: noon, retry: noon.Add(time.Second)}
				return s
			}(),
			policies:  map[string]string{"a": "Canary 0/4 [CloneSet/c], False Canary"},
			workloads: map[string][]string{"a": {"CloneSet/c 2 Rolling", "Deployment/x 3 Queued", "Deployment/y 3 Queued", "Deployment/z 3 Queued"}},
		},
		"UnknownOwnersPodIsReplacedAfterARestart": {
			reason: "The owner has as many pods as before, so the next one is evicted.",
			snapshot: func() *snapshot {
				s := scene(one(reached(refractv1beta1.PhaseCanary, 0, "CloneSet/c"), evictedOf("CloneSet/c", 2)),
					append(three(), owner("CloneSet/c", pods(1, "a Stale"), pods(1, "a Injected")))...)
				s.previous["CloneSet/c"] = workloadState{begun: noon.Add(-lag)}
				return s
			}(),
			touches:  []string{"evict c-0 of CloneSet/c"},
			policies: map[string]string{"a": "Canary 0/4 [CloneSet/c], False Canary"},
		},
		"PolicyIsCreatedAgain": {
			reason: "While the policy is deleted, no pod of the workload is stale, but the missing replacement is remembered.",
			snapshot: func() *snapshot {
				gone := scene([]*policy{somePolicy("b", strategy(refractv1beta1.RolloutNone))}, owner("CloneSet/c", pods(1, "b Stale")))
				gone.previous["CloneSet/c"] = workloadState{
					evicted: "gone", pods: 2, firstEviction: noon, begun: noon, changed: noon, contents: map[string]string{"a": "hash-a"},
				}
				s := scene(one(), owner("CloneSet/c", pods(1, "a Stale")))
				s.previous = decide(gone).next
				return s
			}(),
			policies: map[string]string{"a": "Pending 0/1 [], False Pending"},
		},
		"NoneCameInItsPlace": {
			reason: "No replacement appeared during the patience of the controller, so a user has scaled the workload down.",
			snapshot: func() *snapshot {
				s := scene(one(), owner("CloneSet/c", pods(1, "a Stale")))
				s.previous["CloneSet/c"] = workloadState{evicted: "gone", pods: 2, changed: noon.Add(-DefaultPatience)}
				return s
			}(),
			touches:  []string{"evict c-0 of CloneSet/c"},
			policies: map[string]string{"a": "Canary 0/1 [CloneSet/c], False Canary"},
		},
		"MadeSmaller": {
			reason: "A missing pod of an owner of an unknown kind halts the rollout. A user who resumes it confirms the lower number.",
			snapshot: func() *snapshot {
				s := scene(one(reached(refractv1beta1.PhaseHalted, 0, "CloneSet/c"), func(p *policy) { p.resumed = "hash-a" }), owner("CloneSet/c", pods(2, "a Stale")))
				s.previous["CloneSet/c"] = workloadState{evicted: "gone", pods: 3, firstEviction: noon.Add(-time.Hour), begun: noon.Add(-time.Hour), changed: noon.Add(-time.Hour)}
				return s
			}(),
			touches:  []string{"evict c-0 of CloneSet/c"},
			policies: map[string]string{"a": "Canary 0/1 [CloneSet/c], False Canary"},
		},
		"CameBackAsItWas": {
			reason: "A pod whose eviction did not help is not evicted repeatedly.",
			snapshot: func() *snapshot {
				s := scene(one(reached(refractv1beta1.PhaseCanary, 0, "ReplicaSet/r")), owner("ReplicaSet/r", pods(1, "a Stale"), annotated))
				s.previous["ReplicaSet/r"] = workloadState{
					hash: "a", generation: 1, evicted: "gone", firstEviction: noon.Add(-2 * time.Hour), bounced: 1,
					reason: "NotInjected", message: "as it was", notBefore: noon.Add(time.Second),
				}
				return s
			}(),
			policies:  map[string]string{"a": "Canary 0/1 [], False Canary"},
			workloads: map[string][]string{"a": {"ReplicaSet/r 1 NotInjected"}},
		},
		"BrokenPodOfAReplicaSet": {
			reason: "The unready pod is evicted first: its controller would not replace it, and its eviction makes no available pod unavailable.",
			snapshot: scene(one(reached(refractv1beta1.PhaseCanary, 0, "ReplicaSet/r")),
				append(three(), owner("ReplicaSet/r", pods(3, "a Stale"), annotated, incomplete))...),
			touches:  []string{"evict r-2 of ReplicaSet/r"},
			policies: map[string]string{"a": "Canary 0/4 [ReplicaSet/r], False Canary"},
		},
		"RollsAndIsStaleForAnother": {
			reason: "New pods will lack the items of another policy, but this does not end the rollout of policy a.",
			snapshot: scene([]*policy{somePolicy("a", reached(refractv1beta1.PhaseCanary, 0, "Deployment/r")), somePolicy("b")},
				append(three(), owner("Deployment/r", pods(2, "a Injected", "b Stale"), func(g *group) {
					g.prospect = prospect{hash: "a", holds: map[string]bool{"a": true}}
				}, annotated, incomplete))...),
			policies: map[string]string{
				"a": "Canary 0/4 [Deployment/r], False Canary", "b": "Complete 0/0 [], False WaitingForOwner",
			},
		},
		"IsDoneAndStaleForAnother": {
			reason: "The canary passes for policy a, although its pods are stale for another policy.",
			snapshot: scene([]*policy{somePolicy("a", reached(refractv1beta1.PhaseCanary, 0, "Deployment/r")), somePolicy("b")},
				append(three(), owner("Deployment/r", pods(2, "a Injected", "b Stale"), func(g *group) {
					g.prospect = prospect{hash: "a", holds: map[string]bool{"a": true}}
				}, recreated))...),
			touches: []string{"annotate Deployment/x a", "annotate Deployment/y a"},
			policies: map[string]string{
				"a": "Rolling 1/4 [Deployment/x Deployment/y], False Rolling", "b": "Complete 0/0 [], False WaitingForOwner",
			},
			workloads: map[string][]string{"b": {"Deployment/r 2 WaitingForOwner"}},
		},
		"RecreateHasNoPodsForAMoment": {
			reason: "A workload in a rollout counts even while it has no pods.",
			snapshot: scene(one(reached(refractv1beta1.PhaseCanary, 0, "Deployment/gap")), append(three(),
				owner("Deployment/gap", func(g *group) { g.workload.replicas, g.workload.templateHash = 1, "none" }))...),
			policies: map[string]string{"a": "Canary 0/4 [Deployment/gap], False Canary"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := outcomeOf(decide(tc.snapshot))
			got.Counts = nil
			for name := range got.Workloads {
				if tc.workloads[name] == nil {
					delete(got.Workloads, name)
				}
			}
			want := outcome{Touches: tc.touches, Policies: tc.policies, Workloads: tc.workloads}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s\ndecide(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestDelayedEvictions: after an eviction that was refused or did not help, there is a pause. Until its end no pod of
// the incomplete workload is evicted. The next decision is due at the end of the pause.
func TestDelayedEvictions(t *testing.T) {
	replicaSet := func() *group { return owner("ReplicaSet/r", pods(3, "a Stale"), annotated, incomplete) }
	cloneSet := func() *group {
		return owner("CloneSet/c", pods(2, "a Stale"), func(g *group) { g.pods[1].ready = false })
	}
	second := noon.Add(time.Second)
	cases := map[string]struct {
		reason   string
		group    *group
		state    workloadState
		touches  []string
		policy   string
		workload string
		again    time.Duration
	}{
		"Refused": {
			reason:   "The next eviction of the unready pod is probably refused, too.",
			group:    replicaSet(),
			state:    workloadState{hash: "a", generation: 1, refused: 1, reason: "EvictionRefused", message: "budget", notBefore: second},
			policy:   "Canary 0/1 [ReplicaSet/r], False Canary",
			workload: "ReplicaSet/r 3 EvictionRefused", again: time.Second + time.Millisecond,
		},
		"RefusedAndDue": {
			reason:   "The eviction is tried again after the pause. The status stays the same.",
			group:    replicaSet(),
			state:    workloadState{hash: "a", generation: 1, refused: 1, reason: "EvictionRefused", message: "budget", notBefore: noon},
			touches:  []string{"evict r-2 of ReplicaSet/r"},
			policy:   "Canary 0/1 [ReplicaSet/r], False Canary",
			workload: "ReplicaSet/r 3 EvictionRefused", again: DefaultPatience + time.Millisecond,
		},
		"RefusedForTheNewContent": {
			reason: "The pods have the previous content, which breaks them. The new content was not tried yet, so it is not halted.",
			group:  cloneSet(),
			state: workloadState{
				refused: 1, reason: "EvictionRefused", message: "budget", notBefore: second,
				changed: noon.Add(-DefaultPatience), progress: "2 1 2", contents: map[string]string{"a": "hash-before"}, firstEviction: noon.Add(-time.Hour),
			},
			policy:   "Canary 0/1 [CloneSet/c], False Canary",
			workload: "CloneSet/c 2 EvictionRefused", again: time.Second + time.Millisecond,
		},
		"RefusedWithoutProgress": {
			reason: "A workload that makes no progress with the present content halts the rollout, whatever the reason.",
			group:  cloneSet(),
			state: workloadState{
				refused: 1, reason: "EvictionRefused", message: "budget", notBefore: second,
				changed: noon.Add(-DefaultPatience), progress: "2 1 2", contents: map[string]string{"a": "hash-a"}, firstEviction: noon.Add(-time.Hour),
			},
			policy:   "Halted 0/1 [CloneSet/c], False RolloutHalted",
			workload: "CloneSet/c 2 RolloutHalted", again: time.Second + time.Millisecond,
		},
		"Useless": {
			reason:   "The last replacement lacked the content. No event reports that the webhook answers again.",
			group:    replicaSet(),
			state:    workloadState{hash: "a", generation: 1, bounced: 1, reason: "NotInjected", message: "as it was", notBefore: second},
			policy:   "Canary 0/1 [ReplicaSet/r], False Canary",
			workload: "ReplicaSet/r 3 Rolling", again: time.Second + time.Millisecond,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := scene([]*policy{somePolicy("a", reached(refractv1beta1.PhaseCanary, 0, tc.group.ref.String()))}, tc.group)
			s.previous[tc.group.ref.uid] = tc.state
			p := decide(s)
			got := outcomeOf(p)
			got.Counts = nil
			want := outcome{
				Touches: tc.touches, Policies: map[string]string{"a": tc.policy}, Workloads: map[string][]string{"a": {tc.workload}},
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s\ndecide(): -want, +got:\n%s", tc.reason, diff)
			}
			if p.again != tc.again {
				t.Errorf("%s\nagain: want %s, got %s", tc.reason, tc.again, p.again)
			}
		})
	}
}

// TestDecideAsks: a decision first requests the necessary checks, and touches a workload only after their results.
func TestDecideAsks(t *testing.T) {
	s := scene([]*policy{somePolicy("a", needs("Secret", "db"))}, owner("Deployment/x", pods(1, "a Stale")), owner("Deployment/y", pods(1, "a Stale")))
	clear(s.references)
	clear(s.probes)
	first := decide(s)
	if len(first.resolve) != 1 || len(first.touches) != 0 {
		t.Fatalf("nothing known: want the Secret asked for and nothing touched, got %v and %v", first.resolve, outcomeOf(first).Touches)
	}
	s.references[first.resolve[0]] = resolution{found: true, at: noon}
	second := decide(s)
	if len(second.probe) != 1 || len(second.touches) != 0 {
		t.Fatalf("no probe yet: want one workload probed and nothing touched, got %v and %v", second.probe, outcomeOf(second).Touches)
	}
	s.probes[second.probe[0].group.ref.uid] = probe{hash: second.probe[0].hash, ok: true, at: noon}
	if third := decide(s); len(third.touches) != 1 {
		t.Fatalf("all known: want one workload touched, got %v", outcomeOf(third).Touches)
	}
	s.now = noon.Add(fresh)
	if late := decide(s); len(late.touches) != 0 || len(late.resolve) != 1 {
		t.Errorf("%s later: want it asked again, got %v and %v", fresh, late.resolve, outcomeOf(late).Touches)
	}
}

func TestConditions(t *testing.T) {
	before := metav1.NewTime(noon.Add(-time.Hour))
	p := somePolicy("a", needs("Secret", "db", "password"), needs("ConfigMap", "conf"))
	p.status.Conditions = []metav1.Condition{{Type: refractv1beta1.ConditionAccepted, Status: metav1.ConditionTrue, LastTransitionTime: before}}
	s := scene([]*policy{p})
	s.references[object{"Secret", "db"}] = resolution{found: true, at: noon}
	s.references[object{"ConfigMap", "conf"}] = resolution{at: noon}
	got := decide(s).statuses["a"].Conditions
	now := metav1.NewTime(noon)
	want := []metav1.Condition{
		{Type: "Accepted", Status: "True", ObservedGeneration: 3, LastTransitionTime: before, Reason: "Accepted", Message: "the policy is in effect"},
		{Type: "ReferencesResolved", Status: "False", ObservedGeneration: 3, LastTransitionTime: now, Reason: "NotFound", Message: "ConfigMap conf does not exist; Secret db has no key password"},
		{Type: "RolledOut", Status: "True", ObservedGeneration: 3, LastTransitionTime: now, Reason: "Complete", Message: "no pod is stale"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("conditions: -want, +got:\n%s", diff)
	}
}

// TestHaltedCondition: the condition names the failed workload and the reason.
func TestHaltedCondition(t *testing.T) {
	s := scene([]*policy{somePolicy("a", reached(refractv1beta1.PhaseRolling, 1, "Deployment/x"))},
		owner("Deployment/x", pods(1, "a Injected"), annotated, incomplete, newPod(func(p *pod) { p.trouble = "ErrImagePull" })))
	got := meta.FindStatusCondition(decide(s).statuses["a"].Conditions, refractv1beta1.ConditionRolledOut)
	want := &metav1.Condition{
		Type: "RolledOut", Status: "False", ObservedGeneration: 3, LastTransitionTime: metav1.NewTime(noon),
		Reason: "RolloutHalted", Message: "Deployment/x: pod new is in ErrImagePull",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("condition RolledOut: -want, +got:\n%s", diff)
	}
}

func TestEvents(t *testing.T) {
	cases := map[string]struct {
		reason   string
		snapshot *snapshot
		want     []string
	}{
		"Started": {
			"The start of a rollout has one event, when the first workload is touched.",
			scene([]*policy{somePolicy("a")}, owner("Deployment/x", pods(1, "a Stale"))),
			[]string{"RolloutStarted a"},
		},
		"StartedBefore": {
			"A start that is in the status has no second event.",
			scene([]*policy{somePolicy("a", reached(refractv1beta1.PhaseRolling, 1))}, owner("Deployment/x", pods(1, "a Stale"))),
			nil,
		},
		"Completed": {
			"The completion of a rollout has an event.",
			scene([]*policy{somePolicy("a", reached(refractv1beta1.PhaseRolling, 1, "Deployment/x"))}, owner("Deployment/x", pods(1, "a Injected"), recreated)),
			[]string{"RolloutCompleted a"},
		},
		"Halted": {
			"A halted rollout has an event.",
			scene([]*policy{somePolicy("a", reached(refractv1beta1.PhaseRolling, 1, "Deployment/x"))},
				owner("Deployment/x", pods(1, "a Injected"), annotated, incomplete, newPod(func(p *pod) { p.trouble = "ErrImagePull" }))),
			[]string{"RolloutHalted a"},
		},
		"Conflicts": {
			"Conflicts have one event for each content of the policy.",
			scene([]*policy{somePolicy("a"), somePolicy("b", func(p *policy) { p.status.Hash, p.status.Skipped = p.hash, 2 })},
				owner("Deployment/x", pods(1, "a Skipped EnvConflict", "b Skipped EnvConflict"))),
			[]string{"Conflicts a"},
		},
		"Reverted": {
			"A reverted annotation has events on the workload and on the policy.",
			func() *snapshot {
				s := scene([]*policy{somePolicy("a")}, owner("Deployment/x", pods(1, "a Stale")))
				s.previous["Deployment/x"] = workloadState{hash: "a", generation: 1, begun: noon, reverts: 1}
				return s
			}(),
			[]string{"OwnerReverts Deployment/x", "OwnerReverts a"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, e := range decide(tc.snapshot).events {
				on := e.policy
				if e.group != nil {
					on = e.group.ref.String()
				}
				got = append(got, e.reason+" "+on)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\nevents: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestWorkloadsAreBounded(t *testing.T) {
	var groups []*group
	for range 500 {
		groups = append(groups, owner("Pod/p"+strings.Repeat("x", len(groups)), pods(1, "a Stale")))
	}
	groups = append(groups, owner("Deployment/web", pods(1, "a Skipped EnvConflict")))
	s := decide(scene([]*policy{somePolicy("a")}, groups...)).statuses["a"]
	if len(s.Workloads) != mostWorkloads || s.Workloads[0].Reason != "EnvConflict" || s.Manual != 500 {
		t.Errorf("want %d workloads with the conflict first and 500 manual, got %d, %v, %d", mostWorkloads, len(s.Workloads), s.Workloads[0], s.Manual)
	}
}
