package propagation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/fleet/policy/placement"
	"refract.dev/fleet/policy/rollout"
	"refract.dev/fleet/revision"
)

func revisionNamed(name string) refractv1alpha1.Revision { return refractv1alpha1.Revision{Name: name} }

// TestKeep: a cluster that is to keep the content that it was found with reports this content, and gets no writes.
func TestKeep(t *testing.T) {
	key := keyOf("configmaps", "web")
	begun := &refractv1alpha1.RolloutStatus{
		Phase: refractv1alpha1.RolloutProgressing, Attempt: 1, Target: revisionNamed("new"), LastGood: revisionNamed(rollout.Found),
	}
	for name, tc := range map[string]struct {
		reason   string
		recorded *refractv1alpha1.RolloutStatus
		there    func(d *depot, p *desiredState) *metav1.PartialObjectMetadata
		want     string // The status and the request.
	}{
		"Absent":      {"Nothing is written before the rollout is recorded.", nil, nil, "Pending AwaitsRollout"},
		"AbsentBegun": {"The content of the other clusters is stored nowhere.", begun, nil, "Pending AwaitsRollout"},
		"Another": {"The copy has other content.", nil, func(d *depot, _ *desiredState) *metav1.PartialObjectMetadata {
			return d.copyOf("web", "old")
		}, "Pending KeepsContent"},
		"AnotherBegun": {"The turn of the cluster has not come.", begun, func(d *depot, _ *desiredState) *metav1.PartialObjectMetadata {
			return d.copyOf("web", "old")
		}, "Pending KeepsContent"},
		"Same": {"The copy has the wanted content.", nil, func(d *depot, p *desiredState) *metav1.PartialObjectMetadata {
			return d.copyOf("web", p.targets["m"].variant.hash)
		}, "Pending AwaitsRollout"},
		"SameOfAnother": {"The object was recreated with the same content.", nil, func(d *depot, _ *desiredState) *metav1.PartialObjectMetadata {
			return copyFrom(t, d, "0", "y")
		}, "Pending AwaitsRollout"},
		"AnotherOfAnother": {"The object was recreated with other content.", nil, func(d *depot, _ *desiredState) *metav1.PartialObjectMetadata {
			return copyFrom(t, d, "0", "z")
		}, "Pending KeepsContent"},
		"SameOfAnotherBegun": {"The copy is maintained, because that does not change its content.", begun, func(d *depot, _ *desiredState) *metav1.PartialObjectMetadata {
			return copyFrom(t, d, "0", "y")
		}, "Synced PATCH web"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDepot()
			a, _ := applierOf(t, d, 0)
			p := wanted(t, "web", "m")
			p.governed = &governance{recorded: tc.recorded, target: revisionNamed("new")}
			if tc.there != nil {
				d.put(tc.there(d, p))
				d.tell(t, a.member, key)
			}
			a.state.setDesired(key, p, previous{uid: "1"}, nil)
			if _, err := a.applyOne(t.Context(), key); err != nil {
				t.Fatal(err)
			}
			r, _ := a.state.clusterStatus(key, "m")
			got := strings.TrimSpace(string(r.state) + " " + r.reason + " " + strings.Join(d.sent(), ", "))
			if got = strings.Join(strings.Fields(got), " "); got != tc.want {
				t.Errorf("%s\nwant %q, got %q: %s", tc.reason, tc.want, got, r.message)
			}
		})
	}
}

// copyFrom returns a copy that was written for an object with this UID and value.
func copyFrom(t *testing.T, d *depot, uid types.UID, value string) *metav1.PartialObjectMetadata {
	t.Helper()
	s := around(t, "", false, nil)
	s.hub = theHub
	obj := sourceObject("v1", "ConfigMap", "web", "pp")
	obj.SetUID(uid)
	obj.Object["data"] = map[string]any{"x": value}
	p := decide(source{gvr: configMaps, kind: "ConfigMap", object: obj}, previous{uid: uid}, s)
	o := d.copyOf("web", p.variants[0].hash)
	o.Annotations[refractv1alpha1.SourceAnnotation] = sourceOf(theHub, uid, configMaps.GroupResource(), "shop", "web")
	return o
}

// canaryOn adds a RolloutPolicy to the hub that changes eu-1 first.
func canaryOn(c *Controller) {
	c.decider.policies.store(&refractv1alpha1.RolloutPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "careful", UID: "c", Generation: 1},
		Spec: refractv1alpha1.RolloutPolicySpec{Waves: []refractv1alpha1.RolloutWave{{
			Name: "canary", TargetClusters: &corev1alpha1.TargetClusters{Clusters: []string{"eu-1"}}, MinReadySeconds: 600,
		}}},
	})
}

// governedObject returns a ConfigMap that obeys the policy.
func governedObject(value string) *unstructured.Unstructured {
	obj := sourceObject("v1", "ConfigMap", "web", "pp")
	labels := obj.GetLabels()
	labels[refractv1alpha1.RolloutPolicyLabel] = "careful"
	obj.SetLabels(labels)
	obj.SetUID("1")
	obj.Object["data"] = map[string]any{"x": value}
	return obj
}

// TestRecreated: an object that is created again continues the recorded rollout of the former object, if the
// Propagation still exists. An object whose Propagation was deleted also continues its rollout.
func TestRecreated(t *testing.T) {
	key := keyOf("configmaps", "web")
	was := &refractv1alpha1.RolloutStatus{
		UID: "0", Phase: refractv1alpha1.RolloutComplete, Target: revisionNamed("good"), LastGood: revisionNamed("good"),
	}
	for name, tc := range map[string]struct {
		reason   string
		recreate func(*Controller)
		want     *refractv1alpha1.RolloutStatus
	}{
		"New":    {"There was no rollout.", func(*Controller) {}, nil},
		"Record": {"The former Propagation still exists.", func(c *Controller) { c.decider.records.items[key] = &known{source: "0", rollout: was} }, was},
		"Remembered": {"The Propagation is gone, but this process knows its content.", func(c *Controller) {
			c.state.setDesired(key, &desiredState{uid: "0", governed: &governance{recorded: was}}, previous{uid: "0"}, nil)
			c.state.setDesired(key, &desiredState{gone: true, cause: causeDeleted}, previous{uid: "0"}, nil)
		}, was},
	} {
		t.Run(name, func(t *testing.T) {
			s, _ := hubOf(t, governedObject("new"))
			c := station(t, s, &replica{leads: true}, interceptor.Funcs{})
			duplicated(c)
			canaryOn(c)
			c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
			tc.recreate(c)
			if _, err := c.decider.decideOne(t.Context(), key, priorityChanged); err != nil {
				t.Fatal(err)
			}
			p := c.state.desired(key)
			if p == nil || p.governed == nil {
				t.Fatalf("%s\nwant the object governed, got %s", tc.reason, summary(p))
			}
			if diff := cmp.Diff(tc.want, p.governed.recorded); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			for _, cluster := range []string{"eu-1", "us-1"} {
				if is := p.governed.keeps(cluster); is != (tc.want == nil) {
					t.Errorf("%s\nwant %s to keep its content: %t, got %t", tc.reason, cluster, tc.want == nil, is)
				}
			}
		})
	}
}

// TestRecordOutlivesCopies: the Propagation of a governed object stays for a while after its last copy, so that a
// replacement of the object is released in waves.
func TestRecordOutlivesCopies(t *testing.T) {
	key := keyOf("configmaps", "web")
	for name, tc := range map[string]struct {
		governed bool
		cause    cause
		want     time.Duration
	}{
		"Governed":   {true, causeDeleted, recreated},
		"Withdrawn":  {true, causeWithdrawn, recreated},
		"Ungoverned": {false, causeDeleted, 0},
		"Namespace":  {true, causeNamespace, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := recordOn("1")
				if tc.governed {
					r.Status.Rollout = &refractv1alpha1.RolloutStatus{Phase: refractv1alpha1.RolloutComplete, Target: revisionNamed("good"), LastGood: revisionNamed("good")}
				}
				d := &desk{}
				s, _ := hubOf(t)
				c := station(t, s, &replica{leads: true}, d.funcs(), r)
				see(t, c, key)
				c.state.setDesired(key, &desiredState{gvr: configMaps, kind: "ConfigMap", gone: true, cause: tc.cause}, previous{}, nil)
				d.wrote = nil
				result, err := c.reporter.reportOne(t.Context(), key)
				if err != nil || result.RequeueAfter != tc.want || len(d.wrote) > 0 != (tc.want == 0) {
					t.Fatalf("want the Propagation to stay for %s, got %s, %v, %v", tc.want, result.RequeueAfter, d.wrote, err)
				}
				<-time.After(result.RequeueAfter)
				if _, err := c.reporter.reportOne(t.Context(), key); err != nil || c.state.desired(key) != nil {
					t.Errorf("want the Propagation deleted then, got %v", err)
				}
			})
		})
	}
}

// TestRevisionCannotBeKept: a revision that cannot be stored is released to no cluster, and the Propagation gives the
// reason.
func TestRevisionCannotBeKept(t *testing.T) {
	key := keyOf("configmaps", "web")
	refused := errors.New("exceeded quota: count/controllerrevisions.apps")
	on := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, at client.ObjectKey, obj client.Object, o ...client.GetOption) error {
		if _, is := obj.(*appsv1.ControllerRevision); is {
			return refused
		}
		return c.Get(ctx, at, obj, o...)
	}}
	s, _ := hubOf(t, governedObject("new"))
	c := station(t, s, &replica{leads: true}, on)
	duplicated(c)
	canaryOn(c)
	c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
	for range 2 { // The report of the failure changes nothing.
		if _, err := c.decider.decideOne(t.Context(), key, priorityChanged); err != nil {
			t.Fatal(err)
		}
		if _, err := c.reporter.reportOne(t.Context(), key); err == nil || !strings.Contains(err.Error(), "exceeded quota") {
			t.Errorf("want another attempt, got %v", err)
		}
		see(t, c, key)
		k, _ := c.reporter.records.get(key)
		if k.rollout == nil || k.rollout.Phase != refractv1alpha1.RolloutWaiting || !strings.HasPrefix(k.rollout.Message, "the revision cannot be stored: ") {
			t.Fatalf("want the reason in the Propagation, got %+v", k.rollout)
		}
	}
	p := c.state.desired(key)
	for _, cluster := range []string{"eu-1", "us-1"} {
		if !p.governed.keeps(cluster) {
			t.Errorf("want no write on %s", cluster)
		}
	}
}

// TestRevisionCannotBeKeptInChangingWords: each attempt to store a revision fails with another error. The reports of
// these errors must not cause new attempts without a pause.
func TestRevisionCannotBeKeptInChangingWords(t *testing.T) {
	key := keyOf("configmaps", "web")
	tries := 0
	on := interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, at client.ObjectKey, obj client.Object, o ...client.GetOption) error {
		if _, is := obj.(*appsv1.ControllerRevision); is {
			tries++
			return fmt.Errorf("the connection %d broke", tries)
		}
		return c.Get(ctx, at, obj, o...)
	}}
	s, _ := hubOf(t, governedObject("new"))
	c := station(t, s, &replica{leads: true}, on)
	duplicated(c)
	canaryOn(c)
	c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
	now := time.Now()
	c.revisions.now = func() time.Time { return now }
	cycle := func() string {
		if _, err := c.decider.decideOne(t.Context(), key, priorityChanged); err != nil {
			t.Fatal(err)
		}
		_, _ = c.reporter.reportOne(t.Context(), key) // The call fails, and is retried.
		see(t, c, key)
		k, _ := c.reporter.records.get(key)
		return k.rollout.Message
	}
	want := "the revision cannot be stored: the connection 1 broke"
	for range 5 {
		if got := cycle(); tries != 1 || got != want {
			t.Fatalf("want one try and %q, got %d tries and %q", want, tries, got)
		}
	}
	now = now.Add(refusedFor)
	if cycle(); tries != 2 {
		t.Errorf("want a second try after %s, got %d tries", refusedFor, tries)
	}
}

// TestLastGoodIsLost: the last good content of a cluster is stored nowhere. The report names the cluster, and does not
// count it as reverted.
func TestLastGoodIsLost(t *testing.T) {
	key := keyOf("configmaps", "web")
	obj := governedObject("new")
	part, err := revision.ObjectPart(obj)
	if err != nil {
		t.Fatal(err)
	}
	r := recordOn("1", refractv1alpha1.ClusterStatus{Name: "eu-1", State: refractv1alpha1.StateSynced}, refractv1alpha1.ClusterStatus{Name: "us-1", State: refractv1alpha1.StateSynced})
	r.Status.Rollout = &refractv1alpha1.RolloutStatus{
		UID: "1", Attempt: 1, Phase: refractv1alpha1.RolloutReverting, Target: revision.Of(part.Name, 0, nil), LastGood: revision.Of("refract-gone", 0, nil),
		Reverting: []string{"eu-1"}, Failed: []refractv1alpha1.FailedCluster{{Name: "eu-1", Message: "it is not ready"}},
	}
	s, _ := hubOf(t, obj)
	c := station(t, s, &replica{leads: true}, interceptor.Funcs{}, r)
	duplicated(c)
	canaryOn(c)
	c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
	see(t, c, key)
	if _, err := c.decider.decideOne(t.Context(), key, priorityChanged); err != nil {
		t.Fatal(err)
	}
	p := c.state.desired(key)
	for _, cluster := range []string{"eu-1", "us-1"} {
		c.state.report(key, cluster, clusterStatus{seq: p.seq, state: refractv1alpha1.StateFailed, reason: reasonOverrideFailed, message: p.targets[cluster].err.Error(), hash: "bad"})
	}
	if _, err := c.reporter.reportOne(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	see(t, c, key)
	k, _ := c.reporter.records.get(key)
	if k.rollout.Phase != refractv1alpha1.RolloutStalled || !strings.Contains(k.rollout.Message, "eu-1 keeps the change") {
		t.Errorf("want the rollout stalled, and eu-1 named, got %s: %s", k.rollout.Phase, k.rollout.Message)
	}
	if !meta.IsStatusConditionTrue(k.conditions, refractv1alpha1.ConditionStalled) {
		t.Errorf("want the condition Stalled, got %v", k.conditions)
	}
}

// TestKeptAgain: deleted revisions are stored again while a rollout names them: the newest from the hub, and others
// from memory.
func TestKeptAgain(t *testing.T) {
	key := keyOf("configmaps", "web")
	s, _ := hubOf(t, governedObject("new"))
	c := station(t, s, &replica{leads: true}, interceptor.Funcs{})
	v := c.reporter.revisions
	var kept []revision.Part
	for _, value := range []string{"new", "good"} {
		part, err := revision.ObjectPart(governedObject(value))
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, part)
	}
	place := func(p *revision.Part) types.NamespacedName {
		return types.NamespacedName{Namespace: "shop", Name: p.Name}
	}
	if err := v.store(t.Context(), place(&kept[1]), &kept[1], false); err != nil {
		t.Fatal(err)
	}
	gone := &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: kept[1].Name}}
	if err := v.client.Delete(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	rollouts := map[Key]*refractv1alpha1.RolloutStatus{key: {
		Phase: refractv1alpha1.RolloutProgressing, Target: revision.Of(kept[0].Name, 0, nil), LastGood: revision.Of(kept[1].Name, 0, nil),
	}}
	v.rollouts = func() map[Key]*refractv1alpha1.RolloutStatus { return rollouts }
	if result, err := v.sweep(t.Context(), "shop"); err != nil || result.RequeueAfter != keptAgain {
		t.Errorf("want another check, got %s, %v", result.RequeueAfter, err)
	}
	if got := asked(c); !slices.Contains(got, "decide configmaps web: dependency") {
		t.Errorf("want the object decided, got %v", got)
	}
	for i := range kept {
		text, err := (&revisions{live: v.live, cache: &parts{}}).part(t.Context(), place(&kept[i]), false)
		if err != nil || revision.Check(text, kept[i].Name, nil) != nil {
			t.Errorf("want the revision stored again, got %q, %v", text, err)
		}
	}
	held := &appsv1.ControllerRevision{}
	if err := v.client.Get(t.Context(), place(&kept[1]), held); err != nil {
		t.Fatal(err)
	}
	held.Finalizers = []string{"example.com/hold"}
	if err := v.client.Update(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if err := v.client.Delete(t.Context(), held); err != nil {
		t.Fatal(err)
	}
	if _, err := v.sweep(t.Context(), "shop"); err == nil || !strings.Contains(err.Error(), "example.com/hold") {
		t.Errorf("want a revision in deletion stored again as soon as it is gone, got %v", err)
	}
	clear(rollouts)
	if result, err := v.sweep(t.Context(), "shop"); err != nil || result.RequeueAfter == keptAgain {
		t.Errorf("want no further check, got %s, %v", result.RequeueAfter, err)
	}
}

// released returns the governance of an object whose change is released to a cluster.
func released(cluster string, target refractv1alpha1.Revision) *governance {
	return &governance{target: target, placed: on(cluster), recorded: &refractv1alpha1.RolloutStatus{
		UID: "1", Attempt: 4, Phase: refractv1alpha1.RolloutProgressing, Target: target, LastGood: revisionNamed(rollout.Found),
		Current: []refractv1alpha1.ReleasedCluster{{Name: cluster}},
	}}
}

// TestAdoptedInTurn: if an object with a rollout policy adopts existing objects, it changes the content on their
// clusters. So each adoption waits for the wave of its cluster.
func TestAdoptedInTurn(t *testing.T) {
	key := keyOf("configmaps", "web")
	d := newDepot()
	a, _ := applierOf(t, d, 0)
	p := wanted(t, "web", "m")
	adopting, _ := placement.KeepingOf(map[string]string{
		corev1alpha1.ConflictResolutionAnnotation: "adopt", corev1alpha1.ClustersToAdoptAnnotation: `{"regexp": ".*"}`,
	})
	p.keeping = adopting
	target := revisionNamed("new")
	recorded := &refractv1alpha1.RolloutStatus{UID: "1", Attempt: 1, Phase: refractv1alpha1.RolloutComplete, Target: target, LastGood: target}
	p.governed = &governance{recorded: recorded, target: target, placed: on("m")}
	somebodys := d.copyOf("web", "")
	somebodys.Annotations, somebodys.Labels = nil, nil
	d.put(somebodys)
	a.state.setDesired(key, p, previous{uid: "1", placed: on("m"), statuses: []refractv1alpha1.ClusterStatus{{
		Name: "m", State: refractv1alpha1.StateFailed, Reason: reasonAlreadyExists,
	}}}, nil)
	look := func(want string, adopted bool) {
		t.Helper()
		if _, err := a.applyOne(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		r, _ := a.state.clusterStatus(key, "m")
		is := false
		d.change(func() { is = d.configMaps["web"].Annotations[refractv1alpha1.SourceAnnotation] != "" })
		if got := string(r.state) + " " + r.reason; got != want || is != adopted {
			t.Errorf("want %s, adopted %t, got %s, adopted %t", want, adopted, got, is)
		}
	}
	look("Pending KeepsContent", false)
	look("Pending KeepsContent", false)
	p = wanted(t, "web", "m")
	p.keeping = adopting
	noted := recorded.DeepCopy()
	noted.Phase, noted.Superseded, noted.OnSuperseded = refractv1alpha1.RolloutWaiting, &refractv1alpha1.Revision{Name: rollout.Found}, []string{"m"}
	p.governed = &governance{recorded: noted, target: target, placed: on("m")}
	a.state.setDesired(key, p, previous{uid: "1", placed: on("m")}, nil)
	look("Pending KeepsContent", false) // The watch does not show the object, which still exists.
	p = wanted(t, "web", "m")
	p.keeping = adopting
	p.governed = released("m", target)
	a.state.setDesired(key, p, previous{uid: "1", placed: on("m")}, nil)
	look("Synced ", true)
}

// TestHubSetBack: a hub is restored from a backup. According to the Propagation, a cluster has the content of the
// backup, but the cluster has newer content.
func TestHubSetBack(t *testing.T) {
	key := keyOf("configmaps", "web")
	d := newDepot()
	a, _ := applierOf(t, d, 0)
	p := wanted(t, "web", "m")
	target := revisionNamed("then")
	recorded := &refractv1alpha1.RolloutStatus{UID: "1", Attempt: 3, Phase: refractv1alpha1.RolloutComplete, Target: target, LastGood: target}
	p.governed = &governance{recorded: recorded, target: target, placed: on("m")}
	d.put(d.copyOf("web", "newer"))
	d.tell(t, a.member, key)
	a.state.setDesired(key, p, previous{uid: "1", placed: on("m"), statuses: []refractv1alpha1.ClusterStatus{{
		Name: "m", State: refractv1alpha1.StateSynced, Hash: p.targets["m"].variant.hash,
	}}}, nil)
	for range 2 {
		if _, err := a.applyOne(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		r, _ := a.state.clusterStatus(key, "m")
		if sent := d.sent(); len(sent) > 0 || r.reason != reasonKeepsContent {
			t.Errorf("want the copy kept, got %v, %s %s", sent, r.reason, r.message)
		}
	}
	p = wanted(t, "web", "m")
	p.governed = released("m", target)
	a.state.setDesired(key, p, previous{uid: "1", placed: on("m")}, nil)
	if _, err := a.applyOne(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if r, _ := a.state.clusterStatus(key, "m"); r.state != refractv1alpha1.StateSynced {
		t.Errorf("want the content of the backup after the turn of the cluster has come, got %s %s", r.state, r.message)
	}
}
