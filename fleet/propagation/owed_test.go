package propagation

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// tells writes the deletions into the status of the FederatedCluster eu-1 on the hub, as before a restart.
func tells(t *testing.T, c *Controller, leading *replica, owed ...corev1alpha1.PendingDeletion) {
	t.Helper()
	leads := leading.leads
	leading.leads = false // No request goes to its API server.
	name := types.NamespacedName{Name: "eu-1"}
	fc := &corev1alpha1.FederatedCluster{}
	if err := c.reporter.client.Get(t.Context(), name, fc); err != nil {
		t.Fatal(err)
	}
	fc.Status.PendingDeletions = owed
	if err := c.reporter.client.Status().Update(t.Context(), fc); err != nil {
		t.Fatal(err)
	}
	if _, err := c.clusters.Reconcile(t.Context(), reconcile.Request{NamespacedName: name}); err != nil {
		t.Fatal(err)
	}
	leading.leads = leads
}

// TestGoneWithItsRecord: a Propagation is deleted with its namespace. The FederatedCluster then lists the copy until
// the copy is gone, or the object exists again.
func TestGoneWithItsRecord(t *testing.T) {
	key := keyOf("configmaps", "web")
	gone := func(uid types.UID) *desiredState { return &desiredState{gone: true, cause: causeDeleted, of: uid} }
	owed := []corev1alpha1.PendingDeletion{{Resource: "configmaps", Namespace: "shop", Name: "web", UID: "1", Cause: "Deleted"}}
	offline := []refractv1alpha1.ClusterStatus{{Name: "eu-1", State: refractv1alpha1.StateOffline}, {Name: "us-1", State: refractv1alpha1.StateSynced}}
	s, _ := hubOf(t)
	c := station(t, s, &replica{leads: true}, interceptor.Funcs{})
	report := func() {
		t.Helper()
		if _, err := c.reporter.reportOne(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
	want := func(reason string, want []corev1alpha1.PendingDeletion, known bool) {
		t.Helper()
		if diff := cmp.Diff(want, c.dispatcher.owed("eu-1")); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", reason, diff)
		}
		if got := c.state.desired(key) != nil; got != known {
			t.Errorf("%s: want known=%v, got %v", reason, known, got)
		}
	}
	c.state.setDesired(key, gone("1"), previous{uid: "1", statuses: offline}, nil)
	want("the Propagation exists", nil, true)
	report()
	want("the Propagation is gone", owed, true)
	if !slices.ContainsFunc(asked(c), func(s string) bool { return s[:9] == "pend eu-1" }) {
		t.Errorf("want the FederatedCluster of the unreachable cluster updated soon, got %v", asked(c))
	}
	if diff := cmp.Diff(owed, c.dispatcher.owed("us-1")); diff != "" {
		t.Errorf("the other cluster: -want, +got:\n%s", diff)
	}

	c.state.setDesired(key, &desiredState{uid: "2", targets: map[string]*target{}}, previous{}, nil)
	want("the object exists again", nil, true)

	c.state.setDesired(key, gone("2"), previous{}, nil)
	report()
	c.state.report(key, "eu-1", clusterStatus{absent: true})
	c.state.report(key, "us-1", clusterStatus{absent: true})
	report()
	want("the copy is gone", nil, false)
}

// TestOwedAfterRestart: after a restart, the entries of a FederatedCluster are decided as before the restart, except
// for outdated entries.
func TestOwedAfterRestart(t *testing.T) {
	web := keyOf("configmaps", "web")
	said := corev1alpha1.PendingDeletion{Resource: "configmaps", Namespace: "shop", Name: "web", UID: "1", Cause: string(causeDeleted)}
	odd := said
	odd.Cause = "Whatever"
	forgotten := said
	forgotten.UID, forgotten.Cause = "", string(causeForgotten)
	for name, tc := range map[string]struct {
		reason  string
		said    corev1alpha1.PendingDeletion
		hub     []*unstructured.Unstructured
		desired string
		owed    []corev1alpha1.PendingDeletion
	}{
		"Gone":       {"The deletion was requested before the restart.", said, nil, "gone: Deleted", []corev1alpha1.PendingDeletion{said}},
		"ThereAgain": {"The object of the copy exists.", said, []*unstructured.Unstructured{sourceObject("v1", "ConfigMap", "web", "pp")}, "on eu-1, us-1", nil},
		"OddCause":   {"An unknown cause does not count as one that passes the guard.", odd, nil, "gone: Forgotten", []corev1alpha1.PendingDeletion{forgotten}},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := hubOf(t, tc.hub...)
			leading := &replica{leads: true}
			c := station(t, s, leading, interceptor.Funcs{})
			duplicated(c)
			tells(t, c, leading, tc.said)
			if diff := cmp.Diff([]corev1alpha1.PendingDeletion{tc.said}, c.dispatcher.owed("eu-1")); diff != "" {
				t.Errorf("%s: want the entry kept until the decision: -want, +got:\n%s", tc.reason, diff)
			}
			if waits := waitingIn("decide", c.decider.queue); len(waits) != 1 || c.state.unknown(c.members.AllOwed()) != 1 {
				t.Errorf("%s: want the start to wait for the decision, got %v", tc.reason, waits)
			}
			if _, err := c.decider.decideOne(t.Context(), web, priorityResync); err != nil {
				t.Fatal(err)
			}
			if got := summary(c.state.desired(web)); got != tc.desired {
				t.Errorf("%s: want %s, got %s", tc.reason, tc.desired, got)
			}
			if _, is := c.state.clusterStatus(web, "eu-1"); !is {
				t.Errorf("%s: want the cluster known to have a copy", tc.reason)
			}
			if tc.owed != nil {
				if _, err := c.reporter.reportOne(t.Context(), web); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.owed, c.dispatcher.owed("eu-1")); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			if tc.owed == nil {
				return
			}
			c.state.report(web, "eu-1", clusterStatus{absent: true})
			if _, err := c.reporter.reportOne(t.Context(), web); err != nil {
				t.Fatal(err)
			}
			if got := c.dispatcher.owed("eu-1"); len(got) > 0 || c.state.desired(web) != nil {
				t.Errorf("%s: want no entry after the copy is gone, although the status is not written yet, got %v", tc.reason, got)
			}
			tells(t, c, leading)
			if c.dispatcher.owed("eu-1"); len(c.state.heard) > 0 {
				t.Errorf("%s: want no entry remembered, got %v", tc.reason, c.state.heard)
			}
		})
	}
}

// TestOwedUnderAReplacedName: a cluster has another name since its FederatedCluster listed a copy. The first decision on
// the object counts the entry for the new name. A row with the former name would stay forever, and with it the
// FederatedCluster of that name.
func TestOwedUnderAReplacedName(t *testing.T) {
	web := keyOf("configmaps", "web")
	said := corev1alpha1.PendingDeletion{Resource: "configmaps", Namespace: "shop", Name: "web", UID: "1", Cause: string(causeDeleted)}
	for name, tc := range map[string]struct {
		reason  string
		hub     []*unstructured.Unstructured
		desired string
		owed    []corev1alpha1.PendingDeletion // After the decision.
	}{
		"Gone": {"The deletion was requested under the former name.", nil, "gone: Deleted", []corev1alpha1.PendingDeletion{said}},
		"ThereAgain": {
			"The object of the copy exists.", []*unstructured.Unstructured{sourceObject("v1", "ConfigMap", "web", "pp")}, "on new, us-1", nil,
		},
		"Blocked": {
			"Nothing is written or deleted.", []*unstructured.Unstructured{sourceObject("v1", "ConfigMap", "web", "missing")},
			"blocked: PolicyNotFound", nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := hubOf(t, tc.hub...)
			leading := &replica{leads: true}
			c := station(t, s, leading, interceptor.Funcs{})
			duplicated(c)
			tells(t, c, leading, said)
			replaced(t, c, leading)
			for _, name := range []string{"eu-1", "new"} {
				if diff := cmp.Diff([]corev1alpha1.PendingDeletion{said}, c.dispatcher.owed(name)); diff != "" {
					t.Errorf("%s\n%s: want the entry kept until the decision: -want, +got:\n%s", tc.reason, name, diff)
				}
			}
			if n := c.state.unknown(c.members.AllOwed()); n != 1 {
				t.Errorf("%s\nwant the start to wait for the decision, got %d", tc.reason, n)
			}
			if _, err := c.decider.decideOne(t.Context(), web, priorityResync); err != nil {
				t.Fatal(err)
			}
			if got := summary(c.state.desired(web)); got != tc.desired {
				t.Errorf("%s\nwant %q, got %q", tc.reason, tc.desired, got)
			}
			if c.state.concerns(web, "eu-1") || !c.state.concerns(web, "new") {
				t.Errorf("%s\nwant the copy under the new name only", tc.reason)
			}
			if _, err := c.reporter.reportOne(t.Context(), web); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"eu-1", "new"} {
				if diff := cmp.Diff(tc.owed, c.dispatcher.owed(name), cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s\n%s: -want, +got:\n%s", tc.reason, name, diff)
				}
			}
			c.state.report(web, "new", clusterStatus{absent: true})
			if _, err := c.reporter.reportOne(t.Context(), web); err != nil {
				t.Fatal(err)
			}
			if got := slices.Concat(c.dispatcher.owed("eu-1"), c.dispatcher.owed("new")); len(got) > 0 {
				t.Errorf("%s\nwant no entry after the copy is gone, got %v", tc.reason, got)
			}
		})
	}
}

// TestOwedIsBounded: a FederatedCluster stays a small object. Its list has requested deletions first.
func TestOwedIsBounded(t *testing.T) {
	s, _ := hubOf(t)
	c := station(t, s, &replica{leads: true}, interceptor.Funcs{})
	for i := range corev1alpha1.MaxPendingDeletions + 1 {
		key := keyOf("configmaps", fmt.Sprintf("a-%03d", i))
		c.state.setDesired(key, &desiredState{gone: true, cause: causeNamespace}, previous{statuses: []refractv1alpha1.ClusterStatus{{Name: "eu-1"}}}, nil)
		c.state.bereave(key)
	}
	last := keyOf("configmaps", "z")
	c.state.setDesired(last, &desiredState{gone: true, cause: causeDeleted}, previous{placed: on("eu-1")}, nil)
	c.state.bereave(last)
	list := c.dispatcher.owed("eu-1")
	if len(list) != corev1alpha1.MaxPendingDeletions || list[0].Name != "z" || list[1].Name != "a-000" {
		t.Errorf("want %d, with z first, got %d, %v", corev1alpha1.MaxPendingDeletions, len(list), list[:2])
	}
}
