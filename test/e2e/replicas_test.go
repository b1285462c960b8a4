package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"refract.dev/test/harness"
)

// join starts a second replica, which ends with the test if not before, and returns when each of the two has some of the members.
func join(t *testing.T) *harness.Replica {
	t.Helper()
	second, err := env.Replica("second", "--lease-duration", usual.String(), "--deletion-guard", "100")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := second.Stop(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the second replica's log ends:\n%s", harness.LogTail(second.Log))
		}
	})
	harness.Eventually(t, "each replica has some of the members", func(ctx context.Context) error {
		all := 0
		for _, r := range []*harness.Replica{controllers, second} {
			text, err := r.Metrics(ctx)
			n := strings.Count(text, "\nrefract_cluster_ready{")
			if err != nil || n == 0 {
				return errors.Join(err, fmt.Errorf("%s has none", r.Name))
			}
			all += n
		}
		return is(fmt.Sprint(len(env.Members)), fmt.Sprint(all))
	})
	return second
}

// TestTwoReplicas: of members that are shared out it is said what is said of those that one replica has, and it is said once. It
// starts and ends a replica, and is alone for that.
func TestTwoReplicas(t *testing.T) {
	ns := namespace(t)
	second := join(t)
	const record = "web.deployments.apps"
	version := func() string {
		return harness.Field(get(t, "hub", "propagations.refract.dev", ns, record), "metadata", "resourceVersion")
	}
	apply(t, in(ns, placeEverywhere, webReplicas, strings.Replace(web, "  labels:", "  annotations: {kubeadmiral.io/dry-run: \"true\"}\n  labels:", 1)))
	for _, member := range env.Members {
		rowSays(t, ns, record, member, "DryRun", "a copy would be created")
	}
	status(t, ns, record, "DryRun")
	last, since := "", time.Now()
	harness.Eventually(t, "nobody writes the record any more", func(context.Context) error {
		if now := version(); now != last {
			last, since = now, time.Now()
		}
		if ago := time.Since(since); ago < quiet {
			return fmt.Errorf("it was written %s ago", ago)
		}
		return nil
	})
	annotate(t, "deployment", ns, "web", `"kubeadmiral.io/dry-run":null`)
	everywhere(t, "released", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	status(t, ns, record, "Synced")

	annotate(t, "deployment", ns, "web", `"kubeadmiral.io/dry-run":"true"`)
	apply(t, strings.Replace(in(ns, placeEverywhere), "Duplicate", "Duplicate, clusterSelector: {region: us}", 1))
	status(t, ns, record, "DryRun")
	harness.Consistently(t, "copies that nothing may be done to", quiet, func(context.Context) error {
		return errors.Join(is("1", harness.Field(get(t, "member-1", "deployment", ns, "web"), replicas...)),
			is("7", harness.Field(get(t, "member-3", "deployment", ns, "web"), replicas...)))
	})
	annotate(t, "deployment", ns, "web", `"kubeadmiral.io/dry-run":null`)
	everywhere(t, "placed elsewhere", "deployment", ns, "web", []string{"absent", "5", "absent"}, replicas...)
	apply(t, in(ns, placeEverywhere))
	everywhere(t, "placed everywhere again", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	status(t, ns, record, "Synced")

	// The members change hands while the copies go.
	remove(t, "hub", "deployment", ns, "web")
	if err := second.Stop(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	everywhere(t, "deleted", "deployment", ns, "web", []string{"absent", "absent", "absent"}, replicas...)
	eventually(t, "the record is closed", "true", func() string {
		return fmt.Sprint(get(t, "hub", "propagations.refract.dev", ns, record) == nil)
	})

	// So they do while copies come.
	apply(t, in(ns, strings.ReplaceAll(web, "name: web\n  namespace", "name: late\n  namespace")))
	join(t)
	everywhere(t, "created", "deployment", ns, "late", []string{"1", "5", "7"}, replicas...)
	status(t, ns, "late.deployments.apps", "Synced")
	remove(t, "hub", "deployment", ns, "late")
	everywhere(t, "deleted", "deployment", ns, "late", []string{"absent", "absent", "absent"}, replicas...)
	eventually(t, "the record is closed", "true", func() string {
		return fmt.Sprint(get(t, "hub", "propagations.refract.dev", ns, "late.deployments.apps") == nil)
	})
}
