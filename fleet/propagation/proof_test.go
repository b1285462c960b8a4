package propagation

import (
	"errors"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

// TestNothingIsRemovedByWhatWasNeverSo: according to the watches of this replica, a policy moves an object from the
// cluster m to the cluster other. Each watch may be behind the others. The copy is removed only if the hub confirms
// all inputs of the placement.
func TestNothingIsRemovedByWhatWasNeverSo(t *testing.T) {
	edited := func(o *unstructured.Unstructured) {
		o.SetResourceVersion("8")
		o.SetGeneration(o.GetGeneration() + 1)
	}
	cluster := func(change func(fc *corev1alpha1.FederatedCluster)) func(*testing.T, client.Client) {
		return func(t *testing.T, hub client.Client) {
			t.Helper()
			fc := &corev1alpha1.FederatedCluster{}
			if err := hub.Get(t.Context(), types.NamespacedName{Name: "other"}, fc); err != nil {
				t.Fatal(err)
			}
			change(fc)
			if err := hub.Update(t.Context(), fc); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, tc := range map[string]struct {
		reason string
		// The function clusters edits the clusters on the hub. The functions object, policy and leader edit the object on
		// the hub that they are named after.
		clusters               func(*testing.T, client.Client)
		object, policy, leader func(*unstructured.Unstructured)
		gone                   string // The type of the object that is missing on the hub.
		silent                 string // The type that the hub does not list.
		follows                bool   // Whether the object travels with another (its leader), and names no policy.
		goes                   bool
	}{
		"AsItWas":         {reason: "The hub confirms what the watches reported.", goes: true},
		"Travels":         {reason: "The leader has moved to the other cluster.", follows: true, goes: true},
		"ClusterRelabels": {reason: "The policy may not select the other cluster any more.", clusters: cluster(func(fc *corev1alpha1.FederatedCluster) { fc.Labels = map[string]string{"a": "b"} })},
		"ClusterTainted":  {reason: "The object may not tolerate it now.", clusters: cluster(func(fc *corev1alpha1.FederatedCluster) { fc.Generation = 2 })},
		"ClusterSpeaks": {
			reason: "The status of a cluster does not affect the placement.", goes: true,
			clusters: cluster(func(fc *corev1alpha1.FederatedCluster) { fc.Annotations = map[string]string{"a": "b"} }),
		},
		"ClusterLeft": {reason: "The cluster m may be the only one left.", clusters: func(t *testing.T, hub client.Client) {
			t.Helper()
			if err := hub.Delete(t.Context(), &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "other"}}); err != nil {
				t.Fatal(err)
			}
		}},
		"ClusterJoined": {reason: "The division of the replicas may have changed.", clusters: func(t *testing.T, hub client.Client) {
			t.Helper()
			if err := hub.Create(t.Context(), &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "new"}}); err != nil {
				t.Fatal(err)
			}
		}},
		"PolicyEdited":     {reason: "The policy may select m again.", policy: edited},
		"PolicyMadeAnew":   {reason: "The recreated policy has the first generation again.", policy: func(o *unstructured.Unstructured) { o.SetUID("2") }},
		"PolicyGone":       {reason: "The deletion of a policy removes no copies.", gone: "propagationpolicies"},
		"PolicyReported":   {reason: "Its status has no effect.", policy: func(o *unstructured.Unstructured) { o.SetResourceVersion("8") }, goes: true},
		"ObjectEdited":     {reason: "The object may have other replicas.", object: edited},
		"ObjectRelabelled": {reason: "It may name another policy.", object: func(o *unstructured.Unstructured) { o.SetResourceVersion("8"); o.SetLabels(nil) }},
		"ObjectAnnotated": {
			reason: "The placement may be frozen.",
			object: func(o *unstructured.Unstructured) {
				o.SetResourceVersion("8")
				o.SetAnnotations(map[string]string{"a": "b"})
			},
		},
		"ObjectReported": {reason: "Its status has no effect.", object: func(o *unstructured.Unstructured) { o.SetResourceVersion("8") }, goes: true},
		"ObjectGone":     {reason: "The cause of the deletion is determined first.", gone: "configmaps"},
		"LeaderEdited":   {reason: "The leader may be on m again.", follows: true, leader: edited},
		"Silent":         {reason: "Nobody knows.", silent: "configmaps"},
		"PolicySilent":   {reason: "Nobody knows.", silent: "propagationpolicies"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDepot()
			d.put(d.copyOf("web", "h"))
			c, m := joined(t, d, 0, onHub(nil), &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
			if _, err := c.clusters.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: "other"}}); err != nil {
				t.Fatal(err)
			}
			spec := corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDuplicate}
			spec.Placements = []corev1alpha1.DesiredPlacement{{Cluster: "other"}}
			c.decider.policies.store(&corev1alpha1.PropagationPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "pp", Generation: 1}, Spec: spec})
			obj, leader := sourceObject("v1", "ConfigMap", "web", "pp"), sourceObject("apps/v1", "Deployment", "web", "pp")
			if tc.follows {
				obj.SetLabels(nil)
			}
			told, _ := hubOf(t, obj.DeepCopy(), leader.DeepCopy())
			c.decider.sources.types, c.decider.sources.discovered = told.types, true

			key, leaderKey := keyOf("configmaps", "web"), Key{GroupResource: deployments.GroupResource(), NamespacedName: keyOf("", "web").NamespacedName}
			c.decider.sources.wanted[key.GroupResource] = map[types.NamespacedName]bool{key.NamespacedName: true}
			s := around(t, "", false, nil)
			s.hub, s.clusters, s.propagation = theHub, c.members.Clusters(), c.decider.policies.propagation
			was := previous{uid: "1", placed: on("m", "other")}
			c.state.setDesired(leaderKey, decide(source{gvr: deployments, kind: "Deployment", object: leader.DeepCopy()}, was, s), previous{}, nil)
			if tc.follows {
				s.followed = followed{clusters: []string{"other"}, by: []Key{leaderKey}}
			}
			c.state.setDesired(key, decide(source{gvr: configMaps, kind: "ConfigMap", object: obj.DeepCopy()}, was, s), previous{}, nil)

			policy := &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": "core.kubeadmiral.io/v1alpha1", "kind": "PropagationPolicy",
				"metadata": map[string]any{"namespace": "shop", "name": "pp", "generation": int64(1), "resourceVersion": "7"},
			}}
			policies := corev1alpha1.GroupVersion.WithResource("propagationpolicies")
			for o, change := range map[*unstructured.Unstructured]func(*unstructured.Unstructured){obj: tc.object, policy: tc.policy, leader: tc.leader} {
				if change != nil {
					change(o)
				}
			}
			hub := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
				configMaps: "ConfigMapList", deployments: "DeploymentList", policies: "PropagationPolicyList",
			}, obj, leader, policy)
			hub.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
				switch a.GetResource().Resource {
				case tc.gone:
					return true, &unstructured.UnstructuredList{}, nil
				case tc.silent:
					return true, nil, errors.New("the hub does not answer")
				default:
					return false, nil, nil
				}
			})
			c.decider.sources.dynamic = hub
			if tc.clusters != nil {
				tc.clusters(t, c.clusters.Client)
			}

			a, err := c.dispatcher.newApplier(m)
			if err != nil {
				t.Fatal(err)
			}
			<-a.member.Copies.Watch(configMaps)
			e := &neighbours{state: a.state}
			a.stations, a.cluster = e, e
			a.guard = newGuard(100, time.Now)
			d.sent()
			for range 2 { // The guard collects further deletions.
				if _, err := a.applyOne(t.Context(), key); err != nil {
					t.Fatal(err)
				}
				a.guard.changed, a.guard.since = a.guard.now().Add(-guardSettles), a.guard.now().Add(-guardSettles)
			}
			if sent := d.sent(); (len(sent) > 0) != tc.goes {
				t.Errorf("%s\nwant the copy deleted: %t, got %v", tc.reason, tc.goes, sent)
			}
			if r, _ := a.state.clusterStatus(key, "m"); (r.reason == reasonDeletionFailed) != (tc.silent != "") {
				t.Errorf("%s\nwant a failed deletion: %t, got reason %q: %s", tc.reason, tc.silent != "", r.reason, r.message)
			}
		})
	}
}
