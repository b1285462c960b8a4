package propagation

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/tree"
)

var (
	configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	secrets    = schema.GroupVersionResource{Version: "v1", Resource: "secrets"}
)

// hubOf returns the sources of a hub that serves ConfigMaps, Secrets and Deployments, and has the namespace shop and
// these objects. The watches have reported all of them.
func hubOf(t *testing.T, objects ...*unstructured.Unstructured) (*sources, *fake.FakeDynamicClient) {
	t.Helper()
	namespace := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "shop"}}}
	all := []runtime.Object{namespace}
	for _, obj := range objects {
		all = append(all, obj)
	}
	hub := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		configMaps: "ConfigMapList", secrets: "SecretList", deployments: "DeploymentList",
		namespaceResource: "NamespaceList", crdResource: "CustomResourceDefinitionList",
	}, all...)
	s := newSources(hub, nil, discard)
	s.discovered = true
	for kind, gvr := range map[string]schema.GroupVersionResource{"ConfigMap": configMaps, "Secret": secrets, "Deployment": deployments} {
		typed := &sourceType{gvr: gvr, kind: kind, namespaced: true, others: s.viewOf(gvr.GroupResource())}
		for range viewLabels {
			typed.views = append(typed.views, s.viewOf(gvr.GroupResource()))
		}
		for _, v := range append(slices.Clone(typed.views), typed.others) {
			v.synced = true
		}
		s.types[gvr.GroupResource()] = typed
		for _, obj := range objects {
			switch {
			case obj.GetKind() != kind:
			case len(obj.GetLabels()) > 0:
				typed.views[0].fetched(obj)
			default:
				typed.others.fetched(obj)
			}
		}
	}
	return s, hub
}

// sourceObject returns an object of the hub.
func sourceObject(apiVersion, kind, name, policy string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": apiVersion, "kind": kind,
		"metadata": map[string]any{"namespace": "shop", "name": name, "uid": "1", "resourceVersion": "7"},
	}}
	if policy != "" {
		u.SetLabels(map[string]string{corev1alpha1.PropagationPolicyLabel: policy})
	}
	return u
}

// mounting returns a Deployment whose pods use the Secret db.
func mounting() *unstructured.Unstructured {
	u := sourceObject("apps/v1", "Deployment", "web", "pp")
	u.Object["spec"] = map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{
		map[string]any{"name": "web", "image": "web", "envFrom": []any{map[string]any{"secretRef": map[string]any{"name": "db"}}}},
	}}}}
	return u
}

// duplicated adds the PropagationPolicy shop/pp to the hub, which places objects on all clusters.
func duplicated(c *Controller) {
	c.decider.policies.store(&corev1alpha1.PropagationPolicy{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pp", UID: "p", Generation: 1},
		Spec:       corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDuplicate},
	})
	c.reviewer.queue.queue = queue[tree.Policy]{}
}

// summary describes a desired state.
func summary(p *desiredState) string {
	switch {
	case p == nil:
		return "nothing"
	case p.gone:
		return "gone: " + string(p.cause)
	case p.blocked != "":
		return "blocked: " + p.blocked
	default:
		return "on " + strings.Join(slices.Sorted(maps.Keys(p.targets)), ", ")
	}
}

// TestDecideOne: the decider takes a key, decides the object in the caches, records the desired state, and passes the
// key to the appliers of all clusters concerned. The followers of the object and the policies that it names are
// enqueued. A key that cannot be decided yet is retried; after an error the state is unchanged.
func TestDecideOne(t *testing.T) {
	var (
		web, db, leader = keyOf("configmaps", "web"), keyOf("secrets", "db"), keyOf("deployments", "web")
		placed          = func(c *Controller) {
			c.state.setDesired(web, &desiredState{uid: "1", targets: map[string]*target{"eu-1": {}}, placed: on("eu-1")}, previous{uid: "1"}, nil)
		}
		told = func(c *Controller) { c.decider.sources.deletions[web] = &deletion{} }
		row  = refractv1alpha1.ClusterStatus{Name: "eu-1", State: refractv1alpha1.StateSynced}
	)
	leader.Group = "apps"
	tried := sourceObject("v1", "ConfigMap", "web", "")
	tried.SetAnnotations(map[string]string{corev1alpha1.DryRunAnnotation: "true"})
	type want struct {
		Desired  string
		Asked    []string
		Again    time.Duration
		Err      string
		Followed []string // Objects that are watched without a label.
		Kept     bool     // Whether the reported statuses are still stored, because they were not taken over.
		Unknown  bool     // Whether the start must wait for the object.
	}
	cases := map[string]struct {
		reason  string
		key     Key
		hub     []*unstructured.Unstructured
		record  *known
		before  func(*Controller)
		listing func(*Controller) error // Called when the hub is asked for the object by name.
		want    want
	}{
		"Placed": {
			reason: "All clusters with a copy are enqueued, and the policy has one user more. Reports follow the statuses of the clusters.",
			key:    web, hub: []*unstructured.Unstructured{sourceObject("v1", "ConfigMap", "web", "pp")},
			want: want{Desired: "on eu-1, us-1", Asked: []string{
				"eu-1 configmaps web: dependency", "review pp: after 2.005s", "us-1 configmaps web: dependency",
			}},
		},
		"NotPlacedAnyMore": {
			reason: "The cluster that has a copy has to remove it.",
			key:    web, hub: []*unstructured.Unstructured{sourceObject("v1", "ConfigMap", "web", "")}, before: placed,
			want: want{Desired: "gone: " + string(causeWithdrawn), Asked: []string{"eu-1 configmaps web: dependency"}},
		},
		"WithdrawnInADryRun": {
			reason: "Nothing is removed. The object is watched without its label, because the removal of the annotation deletes the copies.",
			key:    web, hub: []*unstructured.Unstructured{tried}, before: placed,
			want: want{Desired: "blocked: " + reasonDryRun, Followed: []string{"configmaps web"}, Asked: []string{
				"eu-1 configmaps web: dependency", "report configmaps web: after 100ms",
			}},
		},
		"WithdrawnAndTriedOutElsewhere": {
			reason: "The object never had a copy, so there is nothing to keep.",
			key:    web, hub: []*unstructured.Unstructured{tried}, record: &known{source: "1", status: &refractv1alpha1.PropagationStatus{}},
			want: want{Desired: "gone: " + string(causeWithdrawn), Asked: []string{"report configmaps web: after 100ms"}},
		},
		"Blocked": {
			reason: "The clusters have no work, so the decider itself requests the report.",
			key:    web, hub: []*unstructured.Unstructured{sourceObject("v1", "ConfigMap", "web", "missing")},
			want: want{Desired: "blocked: " + reasonPolicyNotFound, Asked: []string{"report configmaps web: after 100ms", "review missing: after 2.005s"}},
		},
		"Leads": {
			reason: "The object's reference is a follower: it is decided, and watched without a label.",
			key:    leader, hub: []*unstructured.Unstructured{mounting()},
			want: want{Desired: "on eu-1, us-1", Followed: []string{"secrets db"}, Asked: []string{
				"decide secrets db: dependency", "eu-1 deployments web: dependency",
				"review pp: after 2.005s", "us-1 deployments web: dependency",
			}},
		},
		"LeaderUnknown": {
			reason: "After a restart, a follower keeps its clusters until the object that it travels with (its leader) is decided. That comes first.",
			key:    db, hub: []*unstructured.Unstructured{sourceObject("v1", "Secret", "db", "")},
			record: &known{source: "1", status: &refractv1alpha1.PropagationStatus{
				Clusters: []refractv1alpha1.ClusterStatus{row}, Follows: []refractv1alpha1.FollowedObject{{Resource: "deployments.apps", Name: "web"}},
			}},
			want: want{Desired: "on eu-1", Again: 200 * time.Millisecond, Followed: []string{"secrets db"}, Asked: []string{
				"decide deployments web: dependency", "eu-1 secrets db: dependency",
			}},
		},
		"TakenUp": {
			reason: "A cluster that had a copy before a restart is enqueued, and the reported status is taken over.",
			key:    web, before: told, record: &known{source: "1", status: &refractv1alpha1.PropagationStatus{Clusters: []refractv1alpha1.ClusterStatus{row}}},
			want: want{Desired: "gone: " + string(causeDeleted), Asked: []string{"eu-1 configmaps web: dependency"}},
		},
		"ReportedAndGone": {
			reason: "An object that is gone has a Propagation left: the decision leads to the deletion of the Propagation.",
			key:    web, record: &known{source: "1", status: &refractv1alpha1.PropagationStatus{}},
			want: want{Desired: "gone: " + string(causeMissing), Asked: []string{"report configmaps web: after 100ms"}},
		},
		"NeverWas": {
			reason: "The key is unknown everywhere, so there is no work, and the start need not wait for it.",
			key:    web, want: want{Desired: "nothing"},
		},
		"HubDoesNotAnswer": {
			reason: "A cache without the object proves no deletion: copies stay until the hub confirms it.",
			key:    web, before: placed, listing: func(*Controller) error { return errors.New("no answer") },
			want: want{Desired: "on eu-1", Err: "looking for the source of copies: no answer"},
		},
		"ChangedMeanwhile": {
			reason: "A policy has changed during the decision, so the decision is repeated.",
			key:    web, before: placed, listing: func(c *Controller) error {
				c.decider.edited.Add(1)
				return nil
			},
			want: want{Desired: "gone: " + string(causeForgotten), Asked: []string{
				"decide configmaps web: dependency", "eu-1 configmaps web: dependency",
			}},
		},
		"NotListed": {
			reason: "Its type is still being listed.",
			key:    web, before: func(c *Controller) { c.decider.sources.types[web.GroupResource].views[1].synced = false },
			want: want{Desired: "nothing", Again: 200 * time.Millisecond, Unknown: true},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, hub := hubOf(t, tc.hub...)
				c := station(t, s, &replica{leads: true}, interceptor.Funcs{})
				duplicated(c)
				if tc.record != nil {
					c.decider.records.items[tc.key] = tc.record
				}
				if tc.before != nil {
					tc.before(c)
				}
				hub.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
					if tc.listing == nil {
						return false, nil, nil
					}
					err := tc.listing(c)
					return err != nil, nil, err
				})
				result, err := c.decider.decideOne(t.Context(), tc.key, priorityDependency)
				got := want{Desired: summary(c.state.desired(tc.key)), Asked: asked(c), Again: result.RequeueAfter}
				if err != nil {
					got.Err = err.Error()
				}
				for resource, names := range s.wanted {
					for name := range names {
						got.Followed = append(got.Followed, resource.Resource+" "+name.Name)
					}
				}
				got.Kept = tc.record != nil && c.decider.records.items[tc.key].status != nil
				got.Unknown = c.state.unknown([]Key{tc.key}) > 0
				if diff := cmp.Diff(tc.want, got); diff != "" {
					t.Errorf("%s\ndecideOne(): -want, +got:\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestDeciderIsTold: each change of an input enqueues the decisions that depend on it, with the right priority.
func TestDeciderIsTold(t *testing.T) {
	user, other := keyOf("configmaps", "user"), keyOf("configmaps", "other")
	namespace := Key{GroupResource: namespaceResource.GroupResource(), NamespacedName: types.NamespacedName{Name: "shop"}}
	definition := Key{GroupResource: crdResource.GroupResource(), NamespacedName: types.NamespacedName{Name: "gears.example.com"}}
	pp := tree.Policy{Kind: corev1alpha1.KindPropagationPolicy, Namespace: "shop", Name: "pp"}
	cases := map[string]struct {
		reason string
		tell   func(*decider)
		asked  []string
		epochs int64
	}{
		"SourceFirstListed":    {"The object existed before: recent edits come first.", func(d *decider) { d.sourceChanged(other, true) }, []string{"decide configmaps other: resync"}, 0},
		"SourceChanged":        {"A user has just changed the object.", func(d *decider) { d.sourceChanged(other, false) }, []string{"decide configmaps other: changed"}, 0},
		"NamespaceChanged":     {"The objects in the namespace wait for it.", func(d *decider) { d.sourceChanged(namespace, false) }, []string{"decide namespaces shop: required"}, 0},
		"NamespaceFirstListed": {"At the start, the namespace is one of many.", func(d *decider) { d.sourceChanged(namespace, true) }, []string{"decide namespaces shop: resync"}, 0},
		"DefinitionChanged":    {"The custom resources wait for their definition.", func(d *decider) { d.sourceChanged(definition, false) }, []string{"decide customresourcedefinitions gears.example.com: required"}, 0},
		"PolicyChanged": {
			"The objects that name the policy are decided again, and then its status is written. Decisions under way are outdated.",
			func(d *decider) { d.policyChanged(pp) }, []string{"decide configmaps user: dependency", "review pp: dependency"}, 1,
		},
		"ClustersChanged": {"More changes of clusters are likely to follow soon.", func(d *decider) { d.clustersChanged() }, []string{"place all: after 50ms"}, 0},
		"ClustersChangeOften": {
			"The last round took long, so the next one leaves time for other work.",
			func(d *decider) {
				d.last.Store(time.Now().Add(-time.Second).UnixNano())
				d.spent.Store(int64(deciders * 3 * time.Second))
				d.clustersChanged()
			}, []string{"place all: after 2s"}, 0,
		},
		"ClustersChangeAlways": {
			"The delay of the next round is bounded.",
			func(d *decider) {
				d.last.Store(time.Now().UnixNano())
				d.spent.Store(int64(time.Hour))
				d.clustersChanged()
			}, []string{"place all: after 10s"}, 0,
		},
		"ClustersChangeSeldom": {
			"Many decisions were made, but not because of clusters.",
			func(d *decider) {
				d.last.Store(time.Now().Add(-time.Minute).UnixNano())
				d.spent.Store(int64(time.Hour))
				d.clustersChanged()
			}, []string{"place all: after 50ms"}, 0,
		},
		"Everything": {
			"All labelled objects, and all objects that were decided before.",
			func(d *decider) { _, _ = d.decideEverything(t.Context(), struct{}{}) },
			[]string{"decide configmaps other: resync", "decide configmaps user: resync", "decide configmaps web: resync"}, 0,
		},
		"Again": {"A decision that the objects depend on has changed.", func(d *decider) { d.decideAgain([]Key{user, other}) }, []string{"decide configmaps other: dependency", "decide configmaps user: dependency"}, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := hubOf(t, sourceObject("v1", "ConfigMap", "web", "pp"))
				c := station(t, s, &replica{leads: true}, interceptor.Funcs{})
				c.state.setDesired(user, &desiredState{}, previous{}, []tree.Policy{pp})
				c.state.setDesired(other, &desiredState{}, previous{}, nil)
				before := c.state.epoch.Load()
				tc.tell(c.decider)
				if diff := cmp.Diff(tc.asked, asked(c)); diff != "" {
					t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
				}
				if got := c.state.epoch.Load() - before; got != tc.epochs {
					t.Errorf("%s\nwant %d epochs more, got %d", tc.reason, tc.epochs, got)
				}
			})
		})
	}
}

// TestClusterLeavesMeanwhile: a cluster leaves during the first decision on an object after a restart. The decision is
// made again without the cluster, because no later event would remove the row of the cluster.
func TestClusterLeavesMeanwhile(t *testing.T) {
	key := keyOf("configmaps", "web")
	rows := []refractv1alpha1.ClusterStatus{{Name: "eu-1", State: refractv1alpha1.StateSynced}, {Name: "us-1", State: refractv1alpha1.StateSynced}}
	cases := map[string]struct {
		reason string
		object *unstructured.Unstructured // The object on the hub, which the watches have not reported yet.
		told   *deletion
		want   string
	}{
		"Placed":        {reason: "The policy places the object on the other cluster.", object: sourceObject("v1", "ConfigMap", "web", "pp"), want: "on us-1"},
		"PolicyDeleted": {reason: "The object stays on the other cluster.", object: sourceObject("v1", "ConfigMap", "web", "missing"), want: "on us-1"},
		"Missing":       {reason: "No watch has reported a deletion.", want: "gone: " + string(causeMissing)},
		"Deleted":       {reason: "The reported deletion also counts for the repeated decision.", told: &deletion{}, want: "gone: " + string(causeDeleted)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, hub := hubOf(t)
				c := station(t, s, &replica{leads: true}, interceptor.Funcs{})
				duplicated(c)
				c.dispatcher.ctx = t.Context()
				c.decider.records.items[key] = &known{source: "1", status: &refractv1alpha1.PropagationStatus{Clusters: rows}}
				if tc.told != nil {
					s.deletions[key] = tc.told
				}
				leave := sync.OnceValue(func() error {
					fc := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1"}}
					if err := c.reporter.client.Delete(t.Context(), fc); err != nil {
						return err
					}
					_, err := c.clusters.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(fc)})
					return err
				})
				hub.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
					err := leave()
					return err != nil, nil, err
				})
				if tc.object != nil {
					s.want(key)
					if err := hub.Tracker().Create(configMaps, tc.object.DeepCopy(), "shop"); err != nil {
						t.Fatal(err)
					}
				}
				decide := func() {
					t.Helper()
					if _, err := c.decider.decideOne(t.Context(), key, priorityDependency); err != nil {
						t.Fatal(err)
					}
				}
				decide()
				if got := asked(c); !slices.Contains(got, "decide configmaps web: dependency") {
					t.Errorf("%s\ndecideOne(): want another decision, asked %v", tc.reason, got)
				}
				decide()
				if got := summary(c.state.desired(key)); got != tc.want {
					t.Errorf("%s\ndecideOne(): want %q, got %q", tc.reason, tc.want, got)
				}
				if c.state.concerns(key, "eu-1") || !c.state.concerns(key, "us-1") {
					t.Errorf("%s\ndecideOne(): want a row of us-1, and none of the cluster that has left", tc.reason)
				}
			})
		})
	}
}

// TestReported: after a restart, the controller takes over the statements of a Propagation that are true.
func TestReported(t *testing.T) {
	key := keyOf("configmaps", "web")
	eu := refractv1alpha1.ClusterStatus{Name: "eu-1", State: refractv1alpha1.StateSynced, Replicas: new(int64(2))}
	us := refractv1alpha1.ClusterStatus{Name: "us-1", State: refractv1alpha1.StateDeleting}
	left := refractv1alpha1.ClusterStatus{Name: "left", State: refractv1alpha1.StateSynced}
	cases := map[string]struct {
		reason string
		record *known
		want   previous
	}{
		"NoRecord": {reason: "Nothing is known of the object."},
		"TakenUp":  {reason: "The statuses were taken over already.", record: &known{source: "1"}},
		"Clusters": {
			reason: "A copy in deletion still exists, but is no target. No report is expected from a cluster that left.",
			record: &known{source: "1", status: &refractv1alpha1.PropagationStatus{
				PlacementHash: "h", Warnings: []string{"w"}, Clusters: []refractv1alpha1.ClusterStatus{eu, left, us},
			}},
			want: previous{uid: "1", hash: "h", warned: []string{"w"}, statuses: []refractv1alpha1.ClusterStatus{eu, us}, placed: on("eu-1")},
		},
		"PoliciesAndLeaders": {
			reason: "Policies that are gone count, too, because the object was rendered with them. Leaders (the objects that it travels with) are in its namespace.",
			record: &known{source: "1", status: &refractv1alpha1.PropagationStatus{
				OverridePolicies: []refractv1alpha1.PolicyReference{{Kind: "OverridePolicy", Namespace: "shop", Name: "op", Generation: 3}},
				DeletedPolicies:  []refractv1alpha1.PolicyReference{{Kind: "ClusterOverridePolicy", Name: "gone"}},
				Follows:          []refractv1alpha1.FollowedObject{{Resource: "secrets", Name: "db"}},
			}},
			want: previous{
				uid:      "1",
				rendered: []tree.Policy{{Kind: "OverridePolicy", Namespace: "shop", Name: "op"}, {Kind: "ClusterOverridePolicy", Name: "gone"}},
				follows:  []Key{keyOf("secrets", "db")},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := station(t, nil, &replica{leads: true}, interceptor.Funcs{})
			if tc.record != nil {
				c.decider.records.items[key] = tc.record
			}
			for i := range tc.want.placed {
				tc.want.placed[i].Replicas = eu.Replicas
			}
			if diff := cmp.Diff(tc.want, c.decider.reported(key), cmp.AllowUnexported(previous{})); diff != "" {
				t.Errorf("%s\nreported(): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestForget: an object without copies is forgotten, and its followers are decided again.
func TestForget(t *testing.T) {
	leader, follower := keyOf("deployments", "web"), keyOf("secrets", "db")
	p, other := &desiredState{gone: true, followers: map[Key][]string{follower: {"eu-1"}}}, &desiredState{}
	cases := map[string]struct {
		reason string
		key    Key
		p      *desiredState // The desired state that is to be forgotten.
		leads  bool          // Whether a known object has the object as a follower.
		asked  []string
		known  bool
		stays  bool // Whether the object stays watched without a label.
	}{
		"Leader":   {reason: "Its followers lose their clusters.", key: leader, p: p, asked: []string{"decide secrets db: dependency", "review local: after 2s"}},
		"Anew":     {reason: "The object was recreated, and has a newer decision.", key: leader, p: other, known: true},
		"Follower": {reason: "No object refers to it any more, so it is not watched any more.", key: follower, p: nil},
		"Awaited":  {reason: "An object still refers to it, so it may appear.", key: follower, p: nil, leads: true, stays: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, _ := hubOf(t)
				c := station(t, s, &replica{leads: true}, interceptor.Funcs{})
				s.want(tc.key)
				if tc.key == leader || tc.leads {
					desired := *p
					if tc.p == p {
						tc.p = &desired
					}
					c.state.setDesired(leader, &desired, previous{}, []tree.Policy{{Kind: corev1alpha1.KindOverridePolicy, Name: "local"}})
				}
				c.decider.forget(tc.key, tc.p)
				if diff := cmp.Diff(tc.asked, asked(c)); diff != "" {
					t.Errorf("%s\nforget(): asked: -want, +got:\n%s", tc.reason, diff)
				}
				if got := c.state.desired(tc.key) != nil; got != tc.known {
					t.Errorf("%s\nforget(): want it known %t, got %t", tc.reason, tc.known, got)
				}
				if got := s.wanted[tc.key.GroupResource][tc.key.NamespacedName]; got != tc.stays {
					t.Errorf("%s\nforget(): want it followed %t, got %t", tc.reason, tc.stays, got)
				}
			})
		})
	}
}

// TestDeciderGoesOn: a failing decision is retried until it succeeds, and requests that arrive meanwhile are carried
// out.
func TestDeciderGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, hub := hubOf(t)
		c := station(t, s, &replica{leads: true}, interceptor.Funcs{})
		key := keyOf("configmaps", "web")
		c.state.setDesired(key, &desiredState{uid: "1", placed: on("eu-1")}, previous{}, nil)
		fails := 3
		hub.PrependReactor("list", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
			fails--
			if fails >= 0 {
				return true, nil, errors.New("no answer")
			}
			return false, nil, nil
		})
		end := begin(t, c.decider.queue)
		c.decider.add(key, priorityChanged)
		synctest.Wait()
		if got := summary(c.state.desired(key)); got != "on " {
			t.Errorf("while the hub does not answer: want the former decision, got %s", got)
		}
		time.Sleep(time.Second) //nolint:forbidigo // Fake time in the synctest bubble.
		end()
		if got := summary(c.state.desired(key)); got != "gone: "+string(causeForgotten) {
			t.Errorf("when the hub answers: want a decision, got %s", got)
		}
	})
}

// TestOutdated: a decision is repeated if a policy has changed since it began. A change of clusters repeats the
// decisions of all objects that were decided before, so it repeats a decision under way only if that is the first of
// its object.
func TestOutdated(t *testing.T) {
	for name, tc := range map[string]struct {
		meanwhile func(*decider)
		first     bool
		want      bool
	}{
		"Nothing":         {func(*decider) {}, true, false},
		"Policy":          {func(d *decider) { d.edited.Add(1) }, false, true},
		"Clusters":        {func(d *decider) { d.rounds.Add(1) }, false, false},
		"ClustersAtFirst": {func(d *decider) { d.rounds.Add(1) }, true, true},
	} {
		d := &decider{}
		at := d.now()
		tc.meanwhile(d)
		if got := d.outdated(at, tc.first); got != tc.want {
			t.Errorf("%s: outdated(): want %t, got %t", name, tc.want, got)
		}
	}
}

// TestLeadershipReviewsPolicies: a policy is edited while this replica does not lead. When it leads, it writes the
// status of the policy.
func TestLeadershipReviewsPolicies(t *testing.T) {
	s, _ := hubOf(t)
	leading := &replica{}
	c := station(t, s, leading, interceptor.Funcs{})
	duplicated(c)
	ref := tree.Policy{Kind: "PropagationPolicy", Namespace: "shop", Name: "pp"}
	if _, err := c.reviewer.reviewOne(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	leading.leads = true
	if _, err := c.dispatcher.takeOver(t.Context(), struct{}{}); err != nil {
		t.Fatal(err)
	}
	if c.reviewer.queue.queue.items[ref] == nil {
		t.Error("want the status of the policy written by the new leader")
	}
}

// TestFollowerAfterRestart: after a restart, the Propagation names the leader of an object (the object that it travels
// with), but the placement of the leader has not been computed yet. If the object were placed without its leader, its
// copies would get new content at once, and would lose the mark that keeps them when the object is deleted.
func TestFollowerAfterRestart(t *testing.T) {
	web, db := keyOf("configmaps", "web"), keyOf("secrets", "db")
	web.GroupResource = deployments.GroupResource()
	for name, tc := range map[string]struct {
		reason string
		before func(*sources) // Prepares the sources of the leader.
		want   string
	}{
		"Known": {"The leader exists on the hub, and names a missing rollout policy.", func(*sources) {}, "on us-1, orphan all, led"},
		"BeingListed": {
			"The leader may have a rollout policy.",
			func(s *sources) { s.types[deployments.GroupResource()].views[0].synced = false }, "nothing",
		},
		"MayNotBeListed": {
			"The leader will stay unknown.", func(s *sources) {
				s.types[deployments.GroupResource()].views[0].synced = false
				s.passOver(deployments.GroupResource())
			}, "on us-1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leader := mounting()
				labels := leader.GetLabels()
				labels[refractv1alpha1.RolloutPolicyLabel] = "gone"
				leader.SetLabels(labels)
				leader.SetAnnotations(map[string]string{corev1alpha1.OrphanAnnotation: "all"})
				s, _ := hubOf(t, sourceObject("v1", "Secret", "db", ""), leader)
				tc.before(s)
				c := station(t, s, &replica{leads: true}, interceptor.Funcs{})
				duplicated(c)
				c.decider.floor = func(string) (map[string]string, bool) { return nil, true }
				c.decider.records.items[db] = &known{
					source: "1", placed: on("us-1"), status: &refractv1alpha1.PropagationStatus{
						Clusters: []refractv1alpha1.ClusterStatus{{Name: "us-1"}},
						Follows:  []refractv1alpha1.FollowedObject{{Resource: "deployments.apps", Name: web.Name}},
					},
				}
				result, err := c.decider.decideOne(t.Context(), db, priorityResync)
				if err != nil || result.RequeueAfter != rolloutTick {
					t.Fatalf("%s\nwant it to come again after %s, got %+v, %v", tc.reason, rolloutTick, result, err)
				}
				p := c.state.desired(db)
				got := summary(p)
				if p != nil && p.keeping.Orphan != "" {
					got += ", orphan " + p.keeping.Orphan
				}
				if p != nil && p.governed.isLedBy(web) {
					got += ", led"
				}
				if got != tc.want {
					t.Errorf("%s\nwant the Secret %q, got %q", tc.reason, tc.want, got)
				}
			})
		})
	}
}
