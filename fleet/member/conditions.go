package member

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// setConditions writes the health into the status, and reports whether the status changed.
func setConditions(status *corev1alpha1.FederatedClusterStatus, h health, now metav1.Time) bool {
	changed := !equality.Semantic.DeepEqual(status.DeletionsHeld, h.held)
	status.DeletionsHeld = h.held
	for _, c := range conditions(status, h) {
		changed = SetCondition(status, c, now) || changed
	}
	if h.ready && !status.JoinPerformed {
		status.JoinPerformed, changed = true, true
	}
	return changed
}

// conditions returns the conditions that depend on the health.
func conditions(status *corev1alpha1.FederatedClusterStatus, h health) []corev1alpha1.ClusterCondition {
	yes := map[bool]metav1.ConditionStatus{true: metav1.ConditionTrue, false: metav1.ConditionFalse}
	ready := corev1alpha1.ClusterCondition{Type: corev1alpha1.ClusterReady, Status: yes[h.ready], Reason: h.reason, Message: h.message}
	offline := corev1alpha1.ClusterCondition{Type: corev1alpha1.ClusterOffline, Status: yes[h.offline], Reason: "Reachable", Message: "the API server answers"}
	joined := corev1alpha1.ClusterCondition{Type: corev1alpha1.ClusterJoined, Status: yes[h.joined], Reason: "Joined"}
	joined.Message = "the API server was reached with the credentials of the secret"
	if h.ready {
		ready.Reason, ready.Message = "Ready", "the API server is ready"
	}
	if h.offline {
		offline.Reason, offline.Message = h.reason, h.message
		if isTrue(status, corev1alpha1.ClusterJoined) {
			joined.Status = metav1.ConditionTrue
		}
	}
	if joined.Status != metav1.ConditionTrue {
		joined.Reason, joined.Message = h.reason, h.message
		if !h.offline {
			offline.Status, offline.Reason, offline.Message = metav1.ConditionUnknown, h.reason, h.message
		}
	}
	if h.leaving != "" {
		joined.Status, joined.Reason, joined.Message = metav1.ConditionFalse, "Leaving", h.leaving
	}
	all := []corev1alpha1.ClusterCondition{joined, ready, offline}
	for i := range problems {
		p := &problems[i]
		switch message := p.message(h); {
		case message != "":
			all = append(all, corev1alpha1.ClusterCondition{Type: p.kind, Status: p.status, Reason: p.reason, Message: message})
		case (h.ready || p.unready) && (p.always || conditionIs(status, p.kind, p.status)):
			all = append(all, corev1alpha1.ClusterCondition{Type: p.kind, Status: opposite[p.status], Reason: p.overReason, Message: p.over})
		}
	}
	return all
}

// problem is a condition for one kind of problem. The condition is added at the first problem. Later it reports either
// a problem or the end of the problem.
type problem struct {
	kind corev1alpha1.ClusterConditionType
	// message returns the message of a present problem, or "" without a problem.
	message func(h health) string
	// status and reason are those of the condition while the problem exists.
	status metav1.ConditionStatus
	reason string
	// overReason and over are the reason and the message of the condition after the problem.
	overReason, over string
	// always is whether a ready cluster has the condition even without an earlier problem.
	always bool
	// unready is whether the condition may report the end of the problem while the cluster is not ready.
	unready bool
}

// problems are the conditions besides Joined, Ready and Offline. `refract get` shows conditions of the same types: see
// [refract.dev/fleet/status].
var problems = []problem{
	{
		kind: corev1alpha1.ClusterAuthorized, message: func(h health) string { return h.lacking },
		status: metav1.ConditionFalse, reason: "PermissionMissing",
		overReason: "Authorized", over: "the credentials had all needed permissions", always: true,
	},
	{
		kind: corev1alpha1.ClusterReadable, message: func(h health) string { return h.excess },
		status: metav1.ConditionFalse, reason: "AnswerTooLarge",
		overReason: "Readable", over: "no recent answer was too large",
	},
	{
		kind: corev1alpha1.ClusterCredentialsExpiring, message: func(h health) string { return h.expiring },
		status: metav1.ConditionTrue, reason: "NotRenewed",
		overReason: "Renewed", over: "the credentials do not expire soon, or are renewed",
	},
	{
		kind: corev1alpha1.ClusterDeletionsHeld, message: func(h health) string { return h.pending },
		status: metav1.ConditionTrue, reason: "AwaitingApproval",
		overReason: "NothingHeld", over: "no deletions wait for approval", unready: true,
	},
}

var opposite = map[metav1.ConditionStatus]metav1.ConditionStatus{
	metav1.ConditionTrue: metav1.ConditionFalse, metav1.ConditionFalse: metav1.ConditionTrue,
}

// conditionIs reports whether a condition has this status.
func conditionIs(status *corev1alpha1.FederatedClusterStatus, kind corev1alpha1.ClusterConditionType, want metav1.ConditionStatus) bool {
	return slices.ContainsFunc(status.Conditions, func(c corev1alpha1.ClusterCondition) bool { return c.Type == kind && c.Status == want })
}

func isTrue(status *corev1alpha1.FederatedClusterStatus, kind corev1alpha1.ClusterConditionType) bool {
	return conditionIs(status, kind, metav1.ConditionTrue)
}

// SetCondition writes a condition into a status. It reports whether the condition has changed, except for its times.
func SetCondition(status *corev1alpha1.FederatedClusterStatus, c corev1alpha1.ClusterCondition, now metav1.Time) bool {
	c.LastProbeTime, c.LastTransitionTime = now, now
	for i := range status.Conditions {
		was := &status.Conditions[i]
		if was.Type != c.Type {
			continue
		}
		if was.Status == c.Status && was.Reason == c.Reason && was.Message == c.Message {
			return false
		}
		if was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		*was = c
		return true
	}
	status.Conditions = append(status.Conditions, c)
	return true
}
