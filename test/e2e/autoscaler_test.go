package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
)

const autoscaler = `
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web-load, namespace: NS}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: 9
  metrics: [{type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}]
`

// scaleAs scales the Deployment web of a cluster by its subresource, with this field manager.
func scaleAs(t *testing.T, cluster, ns, manager string, replicas int) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	web := there(t, cluster, "deployment", ns, "web")
	if err := clients[cluster].SubResource("scale").Patch(t.Context(), web, patch, client.FieldOwner(manager)); err != nil {
		t.Fatal(err)
	}
}

// neverCorrected fails if Refract corrected the copy of web on a member.
func neverCorrected(t *testing.T, ns, member string) {
	t.Helper()
	if drift := row(t, ns, "web.deployments.apps", member)["drift"]; drift != nil {
		t.Errorf("%s: want no correction, got %v", member, drift)
	}
}

// TestAutoscalerOfMember leaves the replicas to an autoscaler that only the member has.
func TestAutoscalerOfMember(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	const record, hpa = "web.deployments.apps", "kube-controller-manager"
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	status(t, ns, record, "Synced")
	if err := harness.ApplyAll(t.Context(), clients["member-2"], in(ns, autoscaler)); err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{2, 5, 2} {
		scaleAs(t, "member-2", ns, hpa, n)
		rowSays(t, ns, record, "member-2", "state:Synced", "replicas left to HorizontalPodAutoscaler web-load")
	}
	scaleAs(t, "member-2", ns, hpa, 4)
	harness.Consistently(t, "no correction", 2*time.Second, func(context.Context) error {
		if got := harness.Field(get(t, "member-2", "deployment", ns, "web"), replicas...); got != "4" {
			return errors.New("the copy was scaled to " + got)
		}
		return nil
	})
	marked(t, ns, "changed", "yes", "yes", "yes") // Refract writes another field.
	everywhere(t, "replicas left to the autoscaler", "deployment", ns, "web", []string{"1", "4", "7"}, replicas...)
	change(t, "member-2", "deployment", ns, "web", `{"metadata":{"labels":{"changed":"no"}}}`, somebody)
	marked(t, ns, "changed", "yes", "yes", "yes") // Refract corrects the label.
	everywhere(t, "replicas left after the correction of another field", "deployment", ns, "web", []string{"1", "4", "7"}, replicas...)
	rowSays(t, ns, record, "member-2", "fields:[.metadata.labels.changed]", "replicas left to HorizontalPodAutoscaler web-load")

	// Without an autoscaler, Refract corrects a user's change of the replicas.
	scaleAs(t, "member-3", ns, "kubectl", 9)
	everywhere(t, "corrected", "deployment", ns, "web", []string{"1", "4", "7"}, replicas...)

	// After the deletion of the autoscaler Refract owns the replicas again, at the latest with a change of the object
	// 10 seconds later.
	remove(t, "member-2", "horizontalpodautoscaler", ns, "web-load")
	n := 0
	eventually(t, "taken back", "5", func() string {
		n++
		label(t, "deployment", ns, "web", fmt.Sprintf(`"again":"%d"`, n))
		return harness.Field(get(t, "member-2", "deployment", ns, "web"), replicas...)
	})
	eventually(t, "the row", "map", func() string {
		text := fmt.Sprint(row(t, ns, record, "member-2"))
		if strings.Contains(text, "replicas left") {
			return text
		}
		return "map"
	})
}

// TestAutoscalerOfHub leaves the replicas to an autoscaler that is propagated with the workload.
func TestAutoscalerOfHub(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	const record = "web.deployments.apps"
	labelled := strings.Replace(autoscaler, "namespace: NS}", "namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}", 1)
	apply(t, in(ns, placeEverywhere, webReplicas, web, labelled))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	status(t, ns, record, "Synced")
	rowSays(t, ns, record, "member-1", "state:Synced", "replicas left to HorizontalPodAutoscaler web-load")
	scaleAs(t, "member-1", ns, "kube-controller-manager", 5)
	marked(t, ns, "changed", "yes", "yes", "yes")
	scale(t, "hub", ns, 6)
	marked(t, ns, "scaled", "yes", "yes", "yes")
	everywhere(t, "replicas left to the autoscaler", "deployment", ns, "web", []string{"5", "5", "7"}, replicas...)
	for _, m := range []string{"member-1", "member-2", "member-3"} {
		neverCorrected(t, ns, m)
	}
	remove(t, "hub", "horizontalpodautoscaler", ns, "web-load")
	everywhere(t, "gone", "horizontalpodautoscaler", ns, "web-load", []string{"absent", "absent", "absent"}, "metadata", "name")
	marked(t, ns, "again", "yes", "yes", "yes")
	everywhere(t, "taken back", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
}
