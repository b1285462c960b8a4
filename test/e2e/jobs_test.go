package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
)

const migrate = `
apiVersion: batch/v1
kind: Job
metadata: {name: migrate, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
spec:
  ttlSecondsAfterFinished: 1
  template:
    spec: {restartPolicy: Never, containers: [{name: main, image: "migrate:1"}]}
`

// finish acts as the controllers of a Job's cluster: it completes the Job and then removes it.
func finish(t *testing.T, member, ns, name string) {
	t.Helper()
	now := time.Now().UTC().Format(time.RFC3339)
	condition := func(kind string) string {
		return fmt.Sprintf(`{"type":%q,"status":"True","lastProbeTime":%q,"lastTransitionTime":%q,"reason":"CompletionsReached"}`, kind, now, now)
	}
	patch := fmt.Sprintf(`{"status":{"startTime":%q,"completionTime":%q,"succeeded":1,"ready":0,"terminating":0,"uncountedTerminatedPods":{},"conditions":[%s,%s]}}`,
		now, now, condition("SuccessCriteriaMet"), condition("Complete"))
	job := there(t, member, "job", ns, name)
	if err := clients[member].SubResource("status").Patch(t.Context(), job, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatal(err)
	}
	remove(t, member, "job", ns, name)
}

// uidOf returns the UID of the Job migrate on a member; "" if it does not exist.
func uidOf(t *testing.T, member, ns string) types.UID {
	t.Helper()
	if job := get(t, member, "job", ns, "migrate"); job != nil {
		return job.GetUID()
	}
	return ""
}

// TestJobRunsOnce completes Jobs on their clusters, and removes them. It kills the controllers, so it is not parallel.
func TestJobRunsOnce(t *testing.T) {
	ns := namespace(t)
	const record = "migrate.jobs.batch"
	name := []string{"metadata", "name"}
	apply(t, in(ns, placeEverywhere, migrate))
	everywhere(t, "create", "job", ns, "migrate", []string{"migrate", "migrate", "migrate"}, name...)
	status(t, ns, record, "Synced")
	rowSays(t, ns, record, "member-1", "state:Synced", "readiness:InProgress", "Job not started")

	finish(t, "member-1", ns, "migrate")
	rowSays(t, ns, record, "member-1", "state:Synced", "readiness:Ready", "readinessMessage:Complete at 20", "outcome:Complete")

	// A user's deletion of an unfinished Job is drift.
	before := uidOf(t, "member-2", ns)
	remove(t, "member-2", "job", ns, "migrate")
	eventually(t, "restored", "true", func() string {
		now := uidOf(t, "member-2", ns)
		return fmt.Sprint(now != "" && now != before)
	})
	rowSays(t, ns, record, "member-2", "state:Synced", "deleted:true", "readiness:InProgress")

	// The recorded outcome survives a restart of the controllers. The outcome is Unknown if the Job ended while no
	// controller ran.
	stop(t, syscall.SIGKILL)
	finish(t, "member-3", ns, "migrate")
	start(t, brief)
	rowSays(t, ns, record, "member-3", "state:Failed", "OutcomeUnknown", "To run it again, delete the Job on the hub")
	rowSays(t, ns, record, "member-1", "state:Synced", "readiness:Ready", "readinessMessage:Complete at 20", "outcome:Complete")

	label(t, "job", ns, "migrate", `"edited":"yes"`)
	everywhere(t, "an edit runs nothing", "job", ns, "migrate", []string{"absent", "yes", "absent"}, "metadata", "labels", "edited")
	eventually(t, "an edit has arrived", "Synced", func() string { return fmt.Sprint(row(t, ns, record, "member-1")["state"]) })
	harness.Consistently(t, "not run again", 2*time.Second, func(context.Context) error {
		if uidOf(t, "member-1", ns) != "" || uidOf(t, "member-3", ns) != "" {
			return errors.New("a finished Job runs again")
		}
		return nil
	})

	// Another Job with the same name runs once.
	before = uidOf(t, "member-2", ns)
	do(t, in(ns, migrate), "replace", "--force", "-f", "-")
	source := string(there(t, "hub", "job", ns, "migrate").GetUID())
	for _, m := range []string{"member-1", "member-2", "member-3"} {
		eventually(t, m+" runs the new one", "true", func() string {
			job := get(t, m, "job", ns, "migrate")
			return fmt.Sprint(job != nil && job.GetUID() != before && strings.Contains(job.GetAnnotations()["refract.dev/source"], source))
		})
	}
	status(t, ns, record, "Synced")
	finish(t, "member-2", ns, "migrate")
	rowSays(t, ns, record, "member-2", "state:Synced", "readinessMessage:Complete at 20", "outcome:Complete", source)
}
