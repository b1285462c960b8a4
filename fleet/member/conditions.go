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
	switch {
	case h.lacking != "":
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterAuthorized, Status: metav1.ConditionFalse, Reason: "PermissionMissing", Message: h.lacking,
		})
	case h.ready:
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterAuthorized, Status: metav1.ConditionTrue, Reason: "Authorized",
			Message: "the credentials had all needed permissions",
		})
	}
	switch {
	case h.excess != "":
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterReadable, Status: metav1.ConditionFalse, Reason: "AnswerTooLarge", Message: h.excess,
		})
	case h.ready && !isTrue(status, corev1alpha1.ClusterReadable) && has(status, corev1alpha1.ClusterReadable):
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterReadable, Status: metav1.ConditionTrue, Reason: "Readable", Message: "no recent answer was too large",
		})
	}
	switch {
	case h.expiring != "":
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterCredentialsExpiring, Status: metav1.ConditionTrue, Reason: "NotRenewed", Message: h.expiring,
		})
	case h.ready && isTrue(status, corev1alpha1.ClusterCredentialsExpiring):
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterCredentialsExpiring, Status: metav1.ConditionFalse, Reason: "Renewed",
			Message: "the credentials do not expire soon, or are renewed",
		})
	}
	switch {
	case h.held != nil:
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterDeletionsHeld, Status: metav1.ConditionTrue, Reason: "AwaitingApproval", Message: h.pending,
		})
	case isTrue(status, corev1alpha1.ClusterDeletionsHeld):
		all = append(all, corev1alpha1.ClusterCondition{
			Type: corev1alpha1.ClusterDeletionsHeld, Status: metav1.ConditionFalse, Reason: "NothingHeld", Message: "no deletions wait for approval",
		})
	}
	return all
}

func has(status *corev1alpha1.FederatedClusterStatus, kind corev1alpha1.ClusterConditionType) bool {
	return slices.ContainsFunc(status.Conditions, func(c corev1alpha1.ClusterCondition) bool { return c.Type == kind })
}

func isTrue(status *corev1alpha1.FederatedClusterStatus, kind corev1alpha1.ClusterConditionType) bool {
	for i := range status.Conditions {
		if status.Conditions[i].Type == kind {
			return status.Conditions[i].Status == metav1.ConditionTrue
		}
	}
	return false
}

// SetCondition writes a condition into a status, and reports whether anything but times has changed.
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
