package member

import (
	"fmt"
	"strings"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// DataCopies is the term in messages for copies whose deletion needs approval because of their data: volumes, and
// copies that an annotation or their kind keeps.
const DataCopies = "copies that hold data"

// PendingMessage describes the deletions that wait for approval on a cluster, and how to approve them.
func PendingMessage(held *corev1alpha1.DeletionsHeld, cluster string) string {
	const format = "%d of %d copies wait for approval of their deletion (%s): " +
		"`refract approve %s` shows and approves them; objects that return to the hub stay"
	return fmt.Sprintf(format, held.Copies, held.Of, PendingGroups(held), cluster)
}

// PendingGroups lists the copies that wait for approval by namespace, with their causes.
func PendingGroups(held *corev1alpha1.DeletionsHeld) string {
	parts, left := make([]string, 0, len(held.Groups)), held.Copies
	for i := range held.Groups {
		parts = append(parts, PendingGroup(&held.Groups[i]))
		left -= held.Groups[i].Copies
	}
	if left > 0 {
		parts = append(parts, fmt.Sprintf("and %d others", left))
	}
	if held.HoldData > 0 {
		parts = append(parts, fmt.Sprintf("%s: %d", DataCopies, held.HoldData))
	}
	return strings.Join(parts, "; ")
}

// PendingGroup describes a group of copies whose deletion waits: their number, namespace and cause.
func PendingGroup(g *corev1alpha1.HeldDeletions) string {
	where := "in namespace " + g.Namespace
	if g.Namespace == "" {
		where = "without a namespace"
	}
	return fmt.Sprintf("%d of %d copies %s, %s", g.Copies, g.Of, where, g.Cause)
}
