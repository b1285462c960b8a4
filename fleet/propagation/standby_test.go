package propagation

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
)

// TestStandby: a replica that has not led yet decides nothing, and enqueues nothing. It describes the fleet from the
// Propagations. When it leads, it decides all objects that exist and all that have a Propagation.
func TestStandby(t *testing.T) {
	web, gone := keyOf("configmaps", "web"), keyOf("configmaps", "gone")
	s, _ := hubOf(t, sourceObject("v1", "ConfigMap", "web", "pp"))
	leading := &replica{}
	c := standing(t, s, leading)
	view := &recordView{records: c.reporter.records}
	synced := refractv1alpha1.ClusterStatus{Name: "eu-1", State: refractv1alpha1.StateSynced}
	first, later := recordOn("1", synced), recordOn("2", synced, refractv1alpha1.ClusterStatus{Name: "us-1", State: refractv1alpha1.StateSynced})
	later.Name, later.UID, later.Spec.Source.Name = "gone.configmaps", "r2", "gone"
	if err := view.Replace([]any{first}, "1"); err != nil {
		t.Fatal(err)
	}
	if err := view.Add(later); err != nil {
		t.Fatal(err)
	}
	s.notify(web, true)
	s.notify(gone, false)
	if got := asked(c); len(got) > 0 {
		t.Errorf("want nothing enqueued before this replica leads, got %v", got)
	}
	c.started.Store(true)
	c.known.Store(true)
	placed := func() map[string][]string {
		t.Helper()
		objects, err := c.Objects(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := map[string][]string{}
		for _, o := range objects {
			if o.GetKind() != refractv1alpha1.KindPropagation {
				continue
			}
			rows, _, _ := unstructured.NestedSlice(o.Object, "status", "clusters")
			for _, row := range rows {
				row, _ := row.(map[string]any)
				got[o.GetName()] = append(got[o.GetName()], row["name"].(string))
			}
		}
		return got
	}
	want := map[string][]string{"web.configmaps": {"eu-1"}, "gone.configmaps": {"eu-1", "us-1"}}
	if diff := cmp.Diff(want, placed()); diff != "" {
		t.Errorf("the fleet according to the Propagations: -want, +got:\n%s", diff)
	}

	leading.leads = true
	c.LeadershipChanged()
	for _, key := range []Key{web, gone} {
		if was := c.decider.reported(key); len(was.placed) == 0 {
			t.Errorf("%s: want the placement of the newest Propagation, got %+v", key.Name, was)
		}
	}
	if !c.standby.over() {
		t.Error("want the stations to begin when this replica leads")
	}
	s.notify(web, false)
	if got := asked(c); !slices.Contains(got, "decide configmaps web: changed") {
		t.Errorf("want a changed object decided, got %v", got)
	}
	// The decision about web takes over its Propagation. The other Propagation still describes the fleet.
	duplicated(c)
	c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
	if _, err := c.decider.decideOne(t.Context(), web, priorityChanged); err != nil {
		t.Fatal(err)
	}
	c.state.epoch.Add(1)
	want["web.configmaps"] = []string{"eu-1", "us-1"}
	if diff := cmp.Diff(want, placed()); diff != "" {
		t.Errorf("the fleet while this replica takes over: -want, +got:\n%s", diff)
	}
}

// standing returns the controller of [station], before it leads.
func standing(t *testing.T, s *sources, leading *replica) *Controller {
	t.Helper()
	c := station(t, s, leading, interceptor.Funcs{})
	before := make(chan struct{})
	c.standby.leading, c.begin = before, func() { close(before) }
	return c
}

// TestStandbyKeepsDeletions: an observed deletion is proof of intent for the replica that leads next, until the leader
// has settled it or the object exists again. Otherwise the proof would count for another object. A watch by label
// reports a removed label as a deletion, too; that is no proof.
func TestStandbyKeepsDeletions(t *testing.T) {
	web := keyOf("configmaps", "web")
	for name, tc := range map[string]struct {
		reason   string
		recorded bool
		exists   bool // Whether the object exists, with a label.
		label    bool // Whether the object exists, and its label was removed.
		want     bool
	}{
		"Recorded":     {"The leader may end before it has removed the copies.", true, false, false, true},
		"Settled":      {"The leader has removed the copies, and the Propagation.", false, false, false, false},
		"Again":        {"The object was created again.", true, true, false, false},
		"LabelRemoved": {"The object exists.", true, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []*unstructured.Unstructured
			switch {
			case tc.exists:
				objects = append(objects, sourceObject("v1", "ConfigMap", "web", "pp"))
			case tc.label:
				objects = append(objects, sourceObject("v1", "ConfigMap", "web", ""))
			}
			s, _ := hubOf(t, objects...)
			if tc.label {
				s.types[web.GroupResource].others.drop(web.NamespacedName)
			}
			c := standing(t, s, &replica{})
			s.deletions[web] = &deletion{}
			if tc.recorded {
				c.decider.records.items[web] = &known{uid: "r"}
			}
			s.notify(web, false)
			if _, err := c.standby.read(t.Context(), web); err != nil {
				t.Fatal(err)
			}
			if got := s.deletion(web) != nil; got != tc.want {
				t.Errorf("%s\nwant the deletion kept: %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}

// TestStandbyWatchesFollowers: an object without a label that travels with others is watched as long as it has a
// Propagation, so the policy webhook of a standby sees it.
func TestStandbyWatchesFollowers(t *testing.T) {
	db := keyOf("secrets", "db")
	s, hub := hubOf(t)
	c := standing(t, s, &replica{})
	view := &recordView{records: c.reporter.records}
	r := recordOn("1", refractv1alpha1.ClusterStatus{Name: "eu-1"})
	r.Name, r.Spec.Source = "db.secrets", refractv1alpha1.SourceReference{APIVersion: "v1", Kind: "Secret", Resource: "secrets", Name: "db", UID: "1"}
	r.Status.Follows = []refractv1alpha1.FollowedObject{{Resource: "deployments.apps", Name: "web"}}
	if err := view.Replace([]any{r}, "1"); err != nil {
		t.Fatal(err)
	}
	wanted := func() bool { return s.wanted[db.GroupResource][types.NamespacedName{Namespace: "shop", Name: "db"}] }
	if !wanted() {
		t.Error("want the Secret watched")
	}
	if _, err := hub.Resource(secrets).Namespace("shop").Create(t.Context(), sourceObject("v1", "Secret", "db", ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.standby.read(t.Context(), db); err != nil { // The watch has shown the object before it was wanted.
		t.Fatal(err)
	}
	if src, _ := s.get(db); src.object == nil {
		t.Error("want the Secret read")
	}
	if err := view.Delete(r); err != nil {
		t.Fatal(err)
	}
	if wanted() {
		t.Error("want the Secret not watched after the end of its Propagation")
	}
}
