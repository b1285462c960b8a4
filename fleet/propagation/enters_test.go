package propagation

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/fleet/revision"
)

// TestEntersWithContent: a cluster that has no copy according to the Propagation gets its first copy at once. An
// existing copy with other content stays until the wave of the cluster.
func TestEntersWithContent(t *testing.T) {
	key := keyOf("configmaps", "web")
	complete := &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutComplete, Attempt: 3, Target: revisionNamed("new"), LastGood: revisionNamed("new")}
	released := &refractv1alpha1.RolloutStatus{
		Phase: refractv1alpha1.RolloutProgressing, Attempt: 3, Target: revisionNamed("new"), LastGood: revisionNamed(rollout.Found),
		Current: []refractv1alpha1.ReleasedCluster{{Name: "m"}},
	}
	another := func(d *depot, _ *desiredState) *metav1.PartialObjectMetadata { return d.copyOf("web", "old") }
	same := func(d *depot, p *desiredState) *metav1.PartialObjectMetadata {
		return d.copyOf("web", p.targets["m"].variant.hash)
	}
	const pending, failed = refractv1alpha1.StatePending, refractv1alpha1.StateFailed
	row := func(state refractv1alpha1.ClusterState, reason, hash string) []refractv1alpha1.ClusterStatus {
		return []refractv1alpha1.ClusterStatus{{Name: "m", State: state, Reason: reason, Hash: hash}}
	}
	for name, tc := range map[string]struct {
		reason   string
		recorded *refractv1alpha1.RolloutStatus
		rows     []refractv1alpha1.ClusterStatus
		there    func(d *depot, p *desiredState) *metav1.PartialObjectMetadata
		want     string // The status and the request.
	}{
		"Absent":  {"A joining cluster has no copy that a write could disturb.", complete, nil, nil, "Synced PATCH web"},
		"Another": {"The object was placed elsewhere at the time of the change.", complete, nil, another, "Pending KeepsContent"},
		"Same":    {"The copy has the wanted content, and is maintained.", complete, nil, same, "Synced PATCH web"},
		"Leaving": {
			"The copy was to be deleted, but still exists.",
			complete, row(refractv1alpha1.StateDeleting, "", "old"), another, "Pending KeepsContent",
		},
		"NotYetSeen": {"The content of the copy is unknown.", complete, row(pending, "", ""), another, "Pending KeepsContent"},
		"Kept": {
			"The rollout does not know yet which content the copy had.",
			complete, row(pending, reasonKeepsContent, "old"), another, "Pending KeepsContent",
		},
		"Somebodys": {
			"A foreign object existed there, and has been adopted.",
			complete, row(failed, reasonAlreadyExists, ""), another, "Pending KeepsContent",
		},
		"Tried": {"Nothing has been written so far.", complete, row(pending, reasonDryRun, "old"), another, "Pending KeepsContent"},
		"Held": {
			"The copy had the wanted content, which has changed since because of labels.",
			complete, row(refractv1alpha1.StateSynced, "", "old"), another, "Synced PATCH web",
		},
		"Released": {"The turn of the cluster has come.", released, row(pending, reasonKeepsContent, "old"), another, "Synced PATCH web"},
		"ReleasedUnhashed": {
			"The turn of the cluster has come, and the hash of its content is unknown.",
			released, row(pending, reasonKeepsContent, ""), another, "Synced PATCH web",
		},
		"ReleasedNew": {"The cluster was believed to have no copy.", released, row(pending, "", ""), another, "Pending KeepsContent"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDepot()
			a, _ := applierOf(t, d, 0)
			p := wanted(t, "web", "m")
			status := &refractv1alpha1.PropagationStatus{Clusters: tc.rows}
			p.governed = &governance{recorded: tc.recorded, target: revisionNamed("new"), placed: placedIn(status), foreign: foreignIn(status)}
			if tc.there != nil {
				d.put(tc.there(d, p))
				d.tell(t, a.member, key)
			}
			a.state.setDesired(key, p, previous{uid: "1", placed: placedIn(status), statuses: tc.rows}, nil)
			if _, err := a.applyOne(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			r, _ := a.state.clusterStatus(key, "m")
			got := strings.Join(strings.Fields(string(r.state)+" "+r.reason+" "+strings.Join(d.sent(), ", ")), " ")
			if got != tc.want {
				t.Errorf("%s\nwant %q, got %q: %s", tc.reason, tc.want, got, r.message)
			}
		})
	}
}

// TestPlacedElsewhere: an object is edited while it is on no cluster, or on other clusters. A cluster that returns to
// the placement does not get the edit at once.
func TestPlacedElsewhere(t *testing.T) {
	key := keyOf("configmaps", "web")
	for name, tc := range map[string]struct {
		reason   string
		selector map[string]string // Of the placement at the time of the edit.
		left     clusterStatus     // The status of us-1 when it is back.
		want     string            // The revision that us-1 is to have.
	}{
		"Nowhere": {"No cluster has tried the change.", map[string]string{"no": "where"}, clusterStatus{absent: true}, "good"},
		"NowhereAndHeld": {
			"No cluster has tried the change, and the copy still exists.", map[string]string{"no": "where"},
			clusterStatus{state: refractv1alpha1.StatePending, reason: reasonKeepsContent, hash: "old"}, rollout.Found,
		},
	} {
		t.Run(name, func(t *testing.T) {
			part, err := revision.ObjectPart(governedObject("old"))
			if err != nil {
				t.Fatal(err)
			}
			good := revision.Of(part.Name, 0, nil)
			r := recordOn("1", refractv1alpha1.ClusterStatus{Name: "eu-1", State: refractv1alpha1.StateSynced, Hash: "old"},
				refractv1alpha1.ClusterStatus{Name: "us-1", State: refractv1alpha1.StateSynced, Hash: "old"})
			r.Status.Rollout = &refractv1alpha1.RolloutStatus{UID: "1", Attempt: 1, Phase: refractv1alpha1.RolloutComplete, Target: good, LastGood: good}
			s, _ := hubOf(t, governedObject("new"))
			c := station(t, s, &replica{leads: true}, interceptor.Funcs{}, r)
			canaryOn(c)
			c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
			if err := c.reporter.revisions.store(t.Context(), types.NamespacedName{Namespace: "shop", Name: part.Name}, &part, false); err != nil {
				t.Fatal(err)
			}
			see(t, c, key)
			var generation int64
			place := func(selector map[string]string) {
				t.Helper()
				generation++
				c.decider.policies.store(&corev1alpha1.PropagationPolicy{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pp", UID: "p", Generation: generation},
					Spec:       corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDuplicate, ClusterSelector: selector},
				})
				if _, err := c.decider.decideOne(t.Context(), key, priorityChanged); err != nil {
					t.Fatal(err)
				}
			}
			report := func(is clusterStatus) *refractv1alpha1.RolloutStatus {
				t.Helper()
				is.seq = c.state.desired(key).seq
				for _, cluster := range []string{"eu-1", "us-1"} {
					c.state.report(key, cluster, is)
				}
				if _, err := c.reporter.reportOne(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				see(t, c, key)
				if _, err := c.decider.decideOne(t.Context(), key, priorityChanged); err != nil {
					t.Fatal(err)
				}
				k, _ := c.reporter.records.get(key)
				return k.rollout
			}
			place(nil)
			place(tc.selector)
			for range 2 {
				if is := report(clusterStatus{absent: true}); is.Phase == refractv1alpha1.RolloutComplete && is.Target.Name != good.Name {
					t.Fatalf("%s\nwant no rollout to be complete, got %+v", tc.reason, is)
				}
			}
			place(nil)
			is := report(tc.left)
			for range 2 {
				got := rollout.Assigned(is, "us-1").Name
				if got == good.Name {
					got = "good"
				}
				if got != tc.want {
					t.Errorf("%s\nwant us-1 to have %s, got %s: %s %s", tc.reason, tc.want, got, is.Phase, is.Message)
				}
				is = report(tc.left)
			}
		})
	}
}
