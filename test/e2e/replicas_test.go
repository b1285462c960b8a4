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

// join starts a second replica and returns when it is ready. The replica ends with the test, unless the test ends it
// before.
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
	if err := harness.Await(t.Context(), second.Ready); err != nil {
		t.Fatal(err)
	}
	return second
}

// succeed stops the leading replica, so that the other one takes over, and starts a new one.
func succeed(t *testing.T) {
	t.Helper()
	if err := controllers.Stop(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	start(t, usual)
	if err := harness.Await(t.Context(), controllers.Ready); err != nil {
		t.Fatal(err)
	}
}

// TestTwoReplicas: beside a standby replica, the leader reports as if it were alone, and writes each report once. The
// next leader continues the work. The test starts and stops replicas, so it is not parallel.
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
	harness.Eventually(t, "the Propagation is no longer written", func(context.Context) error {
		if now := version(); now != last {
			last, since = now, time.Now()
		}
		if ago := time.Since(since); ago < quiet {
			return fmt.Errorf("the last write was %s ago", ago)
		}
		return nil
	})
	annotate(t, "deployment", ns, "web", `"kubeadmiral.io/dry-run":null`)
	everywhere(t, "released", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	status(t, ns, record, "Synced")

	annotate(t, "deployment", ns, "web", `"kubeadmiral.io/dry-run":"true"`)
	apply(t, strings.Replace(in(ns, placeEverywhere), "Duplicate", "Duplicate, clusterSelector: {region: us}", 1))
	status(t, ns, record, "DryRun")
	harness.Consistently(t, "copies in a dry run stay unchanged", quiet, func(context.Context) error {
		return errors.Join(is("1", harness.Field(get(t, "member-1", "deployment", ns, "web"), replicas...)),
			is("7", harness.Field(get(t, "member-3", "deployment", ns, "web"), replicas...)))
	})
	annotate(t, "deployment", ns, "web", `"kubeadmiral.io/dry-run":null`)
	everywhere(t, "placed elsewhere", "deployment", ns, "web", []string{"absent", "5", "absent"}, replicas...)
	apply(t, in(ns, placeEverywhere))
	everywhere(t, "placed everywhere again", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	status(t, ns, record, "Synced")

	// Another replica takes the lead while copies are deleted.
	remove(t, "hub", "deployment", ns, "web")
	succeed(t)
	everywhere(t, "deleted", "deployment", ns, "web", []string{"absent", "absent", "absent"}, replicas...)
	eventually(t, "the Propagation is deleted", "true", func() string {
		return fmt.Sprint(get(t, "hub", "propagations.refract.dev", ns, record) == nil)
	})

	// Another replica takes the lead while copies are created.
	apply(t, in(ns, strings.ReplaceAll(web, "name: web\n  namespace", "name: late\n  namespace")))
	if err := second.Stop(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	everywhere(t, "created", "deployment", ns, "late", []string{"1", "5", "7"}, replicas...)
	status(t, ns, "late.deployments.apps", "Synced")
	remove(t, "hub", "deployment", ns, "late")
	everywhere(t, "deleted", "deployment", ns, "late", []string{"absent", "absent", "absent"}, replicas...)
	eventually(t, "the Propagation is deleted", "true", func() string {
		return fmt.Sprint(get(t, "hub", "propagations.refract.dev", ns, "late.deployments.apps") == nil)
	})
}
