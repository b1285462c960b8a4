package propagation

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/placement"
)

// TestStateIsRenamed: after a rename, the state has all facts of the cluster under the new name, and no further work
// follows.
func TestStateIsRenamed(t *testing.T) {
	s := newState()
	key, follower := keyOf("configmaps", "web"), keyOf("secrets", "db")
	p := hashed("1", "h", "eu-1", "us-1")
	p.among = []placement.Cluster{clusterOf("eu-1"), clusterOf("us-1")}
	p.followers = map[Key][]string{follower: {"eu-1", "us-1"}}
	s.setDesired(key, p, previous{}, nil)
	for _, name := range []string{"eu-1", "us-1"} {
		s.report(key, name, clusterStatus{seq: p.seq, state: refractv1alpha1.StateSynced, hash: "h"})
	}
	began := s.names()

	if got := s.rename(newRenaming("eu-1", "new")); !slices.Equal(got, []Key{key}) {
		t.Errorf("rename(): want the key, got %v", got)
	}
	now, statuses, was, _ := s.snapshot(key)
	got := map[string]any{
		"targets": slices.Sorted(maps.Keys(now.targets)), "statuses": slices.Sorted(maps.Keys(statuses)),
		"previous": was.placed, "followers": s.followed(follower, nil).clusters,
		"holds": []map[string]int{s.holds("eu-1"), s.holds("new"), s.holds("us-1")},
		"hash":  statuses["new"].hash,
	}
	want := map[string]any{
		"targets": []string{"new", "us-1"}, "statuses": []string{"new", "us-1"},
		"previous": []placement.Target{{Cluster: "new"}, {Cluster: "us-1"}}, "followers": []string{"new", "us-1"},
		"holds": []map[string]int{{}, {"shop": 1}, {"shop": 1}},
		"hash":  "h",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rename(): -want, +got:\n%s", diff)
	}
	if p.targets["new"] != nil || p.targets["eu-1"] == nil {
		t.Error("want the former desired state unmodified, because appliers read it")
	}
	if now.considers("new") {
		t.Error("want no removal under the new name before the next decision")
	}

	stale := hashed("1", "h", "eu-1")
	stale.naming = began
	s.setDesired(key, stale, previous{}, nil)
	if s.desired(key) != now {
		t.Error("want a decision under the old name refused, because it places nothing on the new one")
	}
	next := hashed("1", "h", "new", "us-1")
	next.naming = s.names()
	if clusters, _, _ := s.setDesired(key, next, previous{}, nil); len(clusters) > 0 {
		t.Errorf("want no work for unchanged copies, got %v", clusters)
	}
}

func clusterOf(name string) placement.Cluster {
	c := placement.Cluster{}
	c.Name, c.Ready = name, true
	return c
}

// TestNothingIsRemovedFromWhatWasNotConsidered: if a cluster was unknown, or not ready, at the decision about the
// placement, a copy there stays until a decision includes the cluster. The same decision with the cluster removes the
// copy.
func TestNothingIsRemovedFromWhatWasNotConsidered(t *testing.T) {
	for name, tc := range map[string]struct {
		among []placement.Cluster
		said  string
	}{
		"Before":     {[]placement.Cluster{clusterOf("old")}, "decide web"},
		"NotReady":   {[]placement.Cluster{{Cluster: clusterOf("m").Cluster}}, "decide web"},
		"Afterwards": {[]placement.Cluster{clusterOf("m")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			key := keyOf("configmaps", "web")
			d := newDepot()
			d.put(d.copyOf("web", "h"))
			a, said := applierOf(t, d, 0) // The applier has listed the copy.
			a.state.complete.Store(true)
			a.guard = newGuard(100, time.Now)
			p := hashed("u", "h")
			p.among = tc.among
			a.state.setDesired(key, p, previous{}, nil)
			d.sent()
			said.said = nil
			if _, err := a.applyOne(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(said.said, "decide web"); got != (tc.said != "") {
				t.Errorf("want another decision if the cluster was unknown or not ready, got %v", said.said)
			}
			if tc.said == "" {
				a.guard.changed, a.guard.since = a.guard.now().Add(-guardSettles), a.guard.now().Add(-guardSettles)
				if _, err := a.applyOne(t.Context(), key); err != nil {
					t.Fatal(err)
				}
			}
			if sent := d.sent(); (len(sent) > 0) != (tc.said == "") {
				t.Errorf("want the copy removed only after a decision with the cluster, got %v", sent)
			}
		})
	}
}

// TestRowsAreRenamed: only the leading replica renames rows in Propagations. Each replica translates the names when it
// reads a Propagation.
func TestRowsAreRenamed(t *testing.T) {
	successors := map[string]string{"old": "new"}
	r := &records{standsBy: func() bool { return false }, items: map[Key]*known{}, successor: func(name string) string { return successors[name] }, log: discard}
	rec := recordOn("1", refractv1alpha1.ClusterStatus{Name: "old", Hash: "h"}, refractv1alpha1.ClusterStatus{Name: "us-1"})
	rec.Status.Rollout = &refractv1alpha1.RolloutStatus{Done: []string{"old", "us-1"}, Current: []refractv1alpha1.ReleasedCluster{{Name: "old"}}}
	read, _ := recordOf(rec.DeepCopy())
	r.update(read, told)
	k, _ := r.get(read.key())
	if diff := cmp.Diff([]placement.Target{{Cluster: "new"}, {Cluster: "us-1"}}, k.placed); diff != "" {
		t.Errorf("update(): -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{"new", "us-1"}, k.rollout.Done); diff != "" || k.rollout.Current[0].Name != "new" {
		t.Errorf("rollout: -want, +got:\n%s", diff)
	}
	if r.moved("old") {
		t.Error("want the old name kept while the hub has a row of it")
	}

	written := recordOn("1", refractv1alpha1.ClusterStatus{Name: "new", Hash: "h"}, refractv1alpha1.ClusterStatus{Name: "us-1"})
	written.ResourceVersion = "99"
	read, _ = recordOf(written)
	r.update(read, told)
	if !r.moved("old") {
		t.Error("want the old name free after the leading replica has written the rows")
	}
}

// TestRecordIsAhead: a Propagation names a cluster that this replica does not know yet. The replica decides nothing
// until it knows the cluster, because it would take the copy there for one outside the placement.
func TestRecordIsAhead(t *testing.T) {
	key := keyOf("configmaps", "web")
	c := station(t, nil, &replica{}, interceptor.Funcs{}, recordOn("1", refractv1alpha1.ClusterStatus{Name: "new", Hash: "h"}))
	fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
	if err := c.reporter.client.Create(t.Context(), fc); err != nil {
		t.Fatal(err)
	}
	see(t, c, key)
	k, _ := c.decider.records.get(key)
	knows := func() bool {
		t.Helper()
		ok, err := c.decider.ahead.knows(t.Context(), c.members, k.placed)
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	fc.Status.ClusterUID, fc.Status.ClusterClaim = "u", 1
	if err := c.reporter.client.Status().Update(t.Context(), fc); err != nil {
		t.Fatal(err)
	}
	if knows() {
		t.Error("want the decision to wait for a served cluster that is unknown here")
	}
	if _, err := c.clusters.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "new"}}); err != nil {
		t.Fatal(err)
	}
	if !knows() {
		t.Error("want the decision after the cluster is known")
	}
	k.placed = []placement.Target{{Cluster: "gone"}}
	if !knows() {
		t.Error("want no wait for a cluster that has left")
	}
}

// joins creates the FederatedCluster "new", which is to replace eu-1.
func joins(t *testing.T, c *Controller) *corev1alpha1.FederatedCluster {
	t.Helper()
	fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "new", Annotations: map[string]string{refractv1alpha1.ReplacesAnnotation: "eu-1"}}}
	if err := c.reporter.client.Create(t.Context(), fc); err != nil {
		t.Fatal(err)
	}
	return fc
}

// served records on the hub that the cluster of eu-1 is served as fc. It returns the FederatedCluster eu-1.
func served(t *testing.T, c *Controller, fc *corev1alpha1.FederatedCluster) *corev1alpha1.FederatedCluster {
	t.Helper()
	old := &corev1alpha1.FederatedCluster{}
	if err := c.reporter.client.Get(t.Context(), client.ObjectKey{Name: "eu-1"}, old); err != nil {
		t.Fatal(err)
	}
	old.Status.ClusterUID, old.Status.ClusterClaim = "u", 1
	fc.Status.ClusterUID, fc.Status.ClusterClaim, fc.Status.Conditions = "u", 2, old.Status.Conditions
	for _, o := range []*corev1alpha1.FederatedCluster{old, fc} {
		if err := c.reporter.client.Status().Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	return old
}

// replaced lets the name "new" replace eu-1.
func replaced(t *testing.T, c *Controller, leading *replica) {
	t.Helper()
	leads := leading.leads
	leading.leads = false // Then no request goes to their API servers.
	fc := joins(t, c)
	served(t, c, fc)
	for _, name := range []string{"new", "eu-1"} {
		if _, err := c.clusters.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	leading.leads = leads
}

// TestTwoNames: the leading replica writes under both names of a cluster until the new name has replaced the former
// one. Then it writes only under the new name.
func TestTwoNames(t *testing.T) {
	leading := &replica{}
	c := station(t, nil, leading, interceptor.Funcs{})
	fc := joins(t, c)
	look := func(name string) {
		t.Helper()
		if _, err := c.clusters.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	look("new")
	leading.leads = true
	if !c.dispatcher.lead.writes("eu-1") || !c.dispatcher.lead.writes("new") {
		t.Error("want writes under both names before one is known to be replaced")
	}
	if got := names(c); !slices.Equal(got, []string{"eu-1", "us-1"}) {
		t.Errorf("want no object placed on the new name yet, got %v", got)
	}

	key := keyOf("configmaps", "web")
	c.state.setDesired(key, hashed("1", "h", "eu-1", "us-1"), previous{}, nil)
	old := served(t, c, fc)
	leading.leads = false                                              // Then no request goes to their API servers.
	if err := c.reporter.client.Delete(t.Context(), old); err != nil { // This may be the first event that this replica gets.
		t.Fatal(err)
	}
	look("eu-1")
	leading.leads = true
	if c.dispatcher.lead.writes("eu-1") || !c.dispatcher.lead.writes("new") {
		t.Error("want writes only under the new name")
	}
	if _, _, ok := c.dispatcher.lead.begin(context.Background(), "eu-1"); ok {
		t.Error("want no work begun under the old name")
	}
	if got := names(c); !slices.Equal(got, []string{"new", "us-1"}) {
		t.Errorf("want the new name in place of the old one, got %v", got)
	}
	if got := slices.Sorted(maps.Keys(c.state.desired(key).targets)); !slices.Equal(got, []string{"new", "us-1"}) {
		t.Errorf("want the copy under the new name, got %v", got)
	}
}

func names(c *Controller) (all []string) {
	for _, cluster := range c.members.Clusters() {
		all = append(all, cluster.Name)
	}
	return all
}
