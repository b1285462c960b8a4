package member

import (
	"fmt"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// DataCopies is how copies are called in words that need approval because of their data: those of volumes, and those that are kept.
const DataCopies = "copies that hold data"

// PendingMessage says what waits for approval on a cluster, and how it is approved.
func PendingMessage(held *corev1alpha1.DeletionsHeld, cluster string) string {
	const format = "%d of %d copies are to go at once, which nobody has approved yet (%s): " +
		"`refract approve %s` shows them and lets them go, and what comes back to the hub stays"
	return fmt.Sprintf(format, held.Copies, held.Of, PendingGroups(held), cluster)
}

// PendingGroups says of which namespaces the copies are that wait for approval, and why they wait.
func PendingGroups(held *corev1alpha1.DeletionsHeld) string {
	parts, left := make([]string, 0, len(held.Groups)), held.Copies
	for i := range held.Groups {
		parts = append(parts, PendingGroup(&held.Groups[i]))
		left -= held.Groups[i].Copies
	}
	if left > 0 {
		parts = append(parts, fmt.Sprintf("and %d of others", left))
	}
	if held.HoldData > 0 {
		parts = append(parts, fmt.Sprintf("%s: %d", DataCopies, held.HoldData))
	}
	return strings.Join(parts, "; ")
}

// PendingGroup says how many copies of a group wait, where and why.
func PendingGroup(g *corev1alpha1.HeldDeletions) string {
	where := "in namespace " + g.Namespace
	if g.Namespace == "" {
		where = "without a namespace"
	}
	return fmt.Sprintf("%d of %d copies %s, %s", g.Copies, g.Of, where, g.Cause)
}
