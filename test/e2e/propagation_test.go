package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1alpha1 "refract.dev/api/refract/v1alpha1"
	"refract.dev/test/harness"
)

const placeEverywhere = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere, namespace: NS}
spec: {schedulingMode: Duplicate}
`

const web = `
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: NS
  labels:
    app: web
    kubeadmiral.io/propagation-policy-name: everywhere
    kubeadmiral.io/override-policy-name: web
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "nginx:1.25"}]}
`

// webReplicas sets the replicas as in KubeAdmiral's documentation: 1, 5 and 7.
const webReplicas = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: web, namespace: NS}
spec:
  overrideRules:
  - targetClusters: {clusters: [member-1]}
    overriders: {jsonpatch: [{path: /spec/replicas, operator: replace, value: 1}]}
  - targetClusters: {clusters: [member-2]}
    overriders: {jsonpatch: [{path: /spec/replicas, operator: replace, value: 5}]}
  - targetClusters: {clusterSelector: {region: ap}}
    overriders: {jsonpatch: [{path: /spec/replicas, operator: replace, value: 7}]}
`

func in(ns string, manifests ...string) string {
	return strings.ReplaceAll(strings.Join(manifests, "\n---\n"), "NS", ns)
}

var replicas = []string{"spec", "replicas"}

func TestLifeOfAnObject(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	// The test has its own label, because parallel tests select by the region of the cluster.
	t.Cleanup(func() { label(t, "federatedcluster", "", "member-3", `"life":null`) })
	label(t, "federatedcluster", "", "member-3", `"life":"ap"`)
	do(t, in(ns, placeEverywhere, strings.ReplaceAll(webReplicas, "{region: ap}", "{life: ap}"), web), "apply", "-f", "-")
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)

	do(t, "", "set", "image", "-n", ns, "deployment/web", "web=nginx:1.26")
	image := func(i int) string {
		u := get(t, fmt.Sprintf("member-%d", i), "deployment", ns, "web")
		return harness.Field(u, "spec", "template", "spec", "containers")
	}
	eventually(t, "edit", "true", func() string {
		return fmt.Sprint(strings.Contains(image(1), "nginx:1.26") && strings.Contains(image(3), "nginx:1.26"))
	})

	change(t, "hub", "overridepolicy", ns, "web", `[{"op":"replace","path":"/spec/overrideRules/0/overriders/jsonpatch/0/value","value":2}]`)
	everywhere(t, "policy edit", "deployment", ns, "web", []string{"2", "5", "7"}, replicas...)

	label(t, "federatedcluster", "", "member-3", `"life":"moon"`)
	everywhere(t, "cluster relabel", "deployment", ns, "web", []string{"2", "5", "3"}, replicas...)
	label(t, "federatedcluster", "", "member-3", `"life":"ap"`)
	everywhere(t, "cluster relabel", "deployment", ns, "web", []string{"2", "5", "7"}, replicas...)

	label(t, "deployment", ns, "web", `"kubeadmiral.io/override-policy-name":null`)
	everywhere(t, "relabel", "deployment", ns, "web", []string{"3", "3", "3"}, replicas...)
	label(t, "deployment", ns, "web", `"kubeadmiral.io/override-policy-name":"web"`)
	everywhere(t, "relabel", "deployment", ns, "web", []string{"2", "5", "7"}, replicas...)

	remove(t, "hub", "overridepolicy", ns, "web")
	everywhere(t, "policy deletion", "deployment", ns, "web", []string{"3", "3", "3"}, replicas...)
	eventually(t, "a warning about the deleted policy", "true", func() string { // The warning appears a moment after the writes of the copies.
		return fmt.Sprint(strings.Contains(harness.Field(get(t, "hub", "propagations.refract.dev", ns, "web.deployments.apps"), "status", "warnings"), "was deleted"))
	})
	status(t, ns, "web.deployments.apps", "Synced")
	do(t, "", "scale", "deployment", "-n", ns, "web", "--replicas=4")
	everywhere(t, "edit after policy deletion", "deployment", ns, "web", []string{"4", "4", "4"}, replicas...)

	change(t, "hub", "propagationpolicy", ns, "everywhere", `{"spec":{"clusterSelector":{"region":"us"}}}`)
	everywhere(t, "placement edit", "deployment", ns, "web", []string{"absent", "4", "absent"}, replicas...)

	remove(t, "hub", "deployment", ns, "web")
	everywhere(t, "object deletion", "deployment", ns, "web", []string{"absent", "absent", "absent"}, replicas...)
	eventually(t, "end of the report", "absent", func() string {
		return harness.Field(get(t, "hub", "propagations.refract.dev", ns, "web.deployments.apps"), "metadata", "name")
	})
}

func TestCopySaysWhereItCameFrom(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	source := there(t, "hub", "deployment", ns, "web")
	if f := source.GetFinalizers(); len(f) > 0 {
		t.Errorf("the source object: want no finalizers, got %v", f)
	}
	u := there(t, "member-1", "deployment", ns, "web")
	if got := u.GetLabels()["kubeadmiral.io/managed"]; got != "true" {
		t.Errorf("label kubeadmiral.io/managed: want true, got %q", got)
	}
	for key := range u.GetLabels() {
		if strings.HasSuffix(key, "-policy-name") {
			t.Errorf("label %s controls the hub, and must not be on a copy", key)
		}
	}
	if got := u.GetAnnotations()["refract.dev/source"]; !strings.HasSuffix(got, "/"+string(source.GetUID())+"/deployments.apps/"+ns+"/web") {
		t.Errorf("annotation refract.dev/source: want the UID %s and the name of the copy in it, got %q", source.GetUID(), got)
	}
	p := status(t, ns, "web.deployments.apps", "Synced")
	want := "/spec/replicas: 3 → 1 (OverridePolicy " + ns + "/web rule 0 jsonpatch[0])"
	if got := harness.Field(p, "status", "variants"); !strings.Contains(got, want) {
		t.Errorf("status.variants: want %q in it, got %s", want, got)
	}
}

// TestObjectMovesBetweenLabels replaces one of the two policy labels of an object by the other in one update. Each
// label has its own watch, and the two watches may report the update in any order.
func TestObjectMovesBetweenLabels(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	const clusterWide = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: e2e-labels}
spec: {schedulingMode: Duplicate}
`
	apply(t, in(ns, clusterWide, placeEverywhere, webReplicas, web))
	t.Cleanup(func() { remove(t, "hub", "clusterpropagationpolicy", "", "e2e-labels") })
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	uid := there(t, "member-1", "deployment", ns, "web").GetUID()
	const one, other = `"kubeadmiral.io/propagation-policy-name"`, `"kubeadmiral.io/cluster-propagation-policy-name"`
	for i := range 10 {
		label(t, "deployment", ns, "web", fmt.Sprintf(`%s:null,%s:"e2e-labels","step":"%d"`, one, other, 2*i))
		if i%2 == 0 { // Without a pause, the label may be back before the controllers notice.
			arrived(t, ns, fmt.Sprint(2*i))
		}
		label(t, "deployment", ns, "web", fmt.Sprintf(`%s:null,%s:"everywhere","step":"%d"`, other, one, 2*i+1))
		arrived(t, ns, fmt.Sprint(2*i+1))
	}
	if got := there(t, "member-1", "deployment", ns, "web").GetUID(); got != uid {
		t.Errorf("the copy was deleted in between: UID was %s and is %s", uid, got)
	}
}

// arrived waits until the copies of web have the label step.
func arrived(t *testing.T, ns, step string) {
	t.Helper()
	everywhere(t, "step "+step, "deployment", ns, "web", []string{step, step, step}, "metadata", "labels", "step")
}

// TestDerivedObjectIsNoCopy gives an object on a member the label and the annotations of a copy, as controllers do that
// copy them to derived objects.
func TestDerivedObjectIsNoCopy(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	parent := there(t, "member-1", "deployment", ns, "web")
	child := fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata:
  name: derived
  namespace: %s
  labels: {kubeadmiral.io/managed: "true"}
  annotations: {refract.dev/source: %q, refract.dev/applied: %q}
spec:
  selector: {matchLabels: {app: derived}}
  template: {metadata: {labels: {app: derived}}, spec: {containers: [{name: c, image: c}]}}
`, ns, parent.GetAnnotations()["refract.dev/source"], parent.GetAnnotations()["refract.dev/applied"])
	if err := harness.ApplyAll(t.Context(), clients["member-1"], child); err != nil {
		t.Fatal(err)
	}
	// When a later change has arrived, the controllers have processed the derived object.
	label(t, "deployment", ns, "web", `"later":"yes"`)
	everywhere(t, "a later change", "deployment", ns, "web", []string{"yes", "yes", "yes"}, "metadata", "labels", "later")
	harness.Consistently(t, "an object that was derived from a copy", quiet, func(context.Context) error {
		return is("derived", harness.Field(get(t, "member-1", "deployment", ns, "derived"), "metadata", "name"))
	})
}

func TestMissingPolicyHoldsTheObject(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, web))
	p := status(t, ns, "web.deployments.apps", "PolicyNotFound")
	if got := condition(p, "Synced", "message"); !strings.Contains(got, "OverridePolicy "+ns+"/web does not exist") {
		t.Errorf("message: want the policy named, got %q", got)
	}
	everywhere(t, "held", "deployment", ns, "web", []string{"absent", "absent", "absent"}, replicas...)
	apply(t, in(ns, webReplicas))
	everywhere(t, "released", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
}

func TestLastGoodVersionStays(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	change(t, "hub", "overridepolicy", ns, "web",
		`[{"op":"replace","path":"/spec/overrideRules/1/overriders/jsonpatch/0","value":{"path":"/spec/no/where","operator":"add","value":9}},
		  {"op":"replace","path":"/spec/overrideRules/0/overriders/jsonpatch/0/value","value":2}]`)
	everywhere(t, "the other clusters get their content", "deployment", ns, "web", []string{"2", "5", "7"}, replicas...)
	p := status(t, ns, "web.deployments.apps", "OverrideFailed")
	want := "member-2: OverridePolicy " + ns + "/web rule 1 jsonpatch[0]: /spec/no does not exist"
	if got := condition(p, "Synced", "message"); got != want {
		t.Errorf("message: want %q, got %q", want, got)
	}
	scale(t, "hub", ns, 4)
	label(t, "deployment", ns, "web", `"new":"yes"`)
	everywhere(t, "the template changes elsewhere", "deployment", ns, "web", []string{"yes", "", "yes"}, "metadata", "labels", "new")
	everywhere(t, "the last good version", "deployment", ns, "web", []string{"2", "5", "7"}, replicas...)
}

func TestForeignObjectIsLeftAlone(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	theirs(t, "member-2", ns)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "9", "7"}, replicas...)
	status(t, ns, "web.deployments.apps", "AlreadyExists")
	remove(t, "hub", "deployment", ns, "web")
	everywhere(t, "delete", "deployment", ns, "web", []string{"absent", "9", "absent"}, replicas...)
}

func TestDeletedCopyComesBack(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	uid := there(t, "member-1", "deployment", ns, "web").GetUID()
	remove(t, "member-1", "deployment", ns, "web")
	eventually(t, "another copy", "true", func() string {
		u := get(t, "member-1", "deployment", ns, "web")
		return fmt.Sprint(u != nil && u.GetUID() != uid && harness.Field(u, replicas...) == "1")
	})
}

func TestAnyType(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: gadgets.e2e.refract.dev}
spec:
  group: e2e.refract.dev
  names: {kind: Gadget, plural: gadgets, singular: gadget}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`
	const objects = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: e2e-everywhere}
spec: {schedulingMode: Duplicate}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: ClusterOverridePolicy
metadata: {name: e2e-where}
spec:
  overrideRules:
  - targetClusters: {clusters: [member-2]}
    overriders:
      annotations: [{operator: addIfAbsent, value: {apps.my.company/running-in: member-2}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: "e2e:pod-reader"
  labels: {kubeadmiral.io/cluster-propagation-policy-name: e2e-everywhere, kubeadmiral.io/cluster-override-policy-name: e2e-where}
rules: [{apiGroups: [""], resources: [pods], verbs: [get]}]
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: NS
  labels: {kubeadmiral.io/cluster-propagation-policy-name: e2e-everywhere}
data: {a: "1"}
---
apiVersion: e2e.refract.dev/v1
kind: Gadget
metadata:
  name: one
  namespace: NS
  labels: {kubeadmiral.io/cluster-propagation-policy-name: e2e-everywhere, kubeadmiral.io/cluster-override-policy-name: e2e-where}
spec: {big: 9007199254740993}
`
	define(t, "hub", crd, "gadgets.e2e.refract.dev")
	t.Cleanup(func() {
		remove(t, "hub", "clusterrole", "", "e2e:pod-reader")
		remove(t, "hub", "crd", "", "gadgets.e2e.refract.dev")
		everywhere(t, "CRD gone", "crd", "", "gadgets.e2e.refract.dev", []string{"absent", "absent", "absent"}, "metadata", "name")
		everywhere(t, "role gone", "clusterrole", "", "e2e:pod-reader", []string{"absent", "absent", "absent"}, "metadata", "name")
		remove(t, "hub", "clusterpropagationpolicy", "", "e2e-everywhere")
		remove(t, "hub", "clusteroverridepolicy", "", "e2e-where")
	})
	do(t, in(ns, objects), "apply", "-f", "-")
	label(t, "crd", "", "gadgets.e2e.refract.dev", `"kubeadmiral.io/cluster-propagation-policy-name":"e2e-everywhere"`)
	annotation := []string{"metadata", "annotations", "apps.my.company/running-in"}
	everywhere(t, "cluster-scoped", "clusterrole", "", "e2e:pod-reader", []string{"", "member-2", ""}, annotation...)
	everywhere(t, "without generation", "configmap", ns, "settings", []string{"1", "1", "1"}, "data", "a")
	everywhere(t, "custom resource", "gadgets.e2e.refract.dev", ns, "one", []string{"", "member-2", ""}, annotation...)
	for _, m := range env.Members {
		if got := harness.Field(get(t, m, "gadgets.e2e.refract.dev", ns, "one"), "spec", "big"); got != "9007199254740993" {
			t.Errorf("a large integer on %s: want 9007199254740993, got %s", m, got)
		}
	}
}

// TestMembersServeOtherVersions adds a version to the CRD of existing copies. A member that serves only the old version
// keeps its copy and gets changes in the old version. A member that serves both gets changes in the new one. No copy is
// recreated. The Propagation reports a member that serves none of the hub's versions.
func TestMembersServeOtherVersions(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	const name = "widgets.versions.e2e.refract.dev"
	crd := func(stored string, others ...string) string {
		const version = `
  - {name: VERSION, served: true, storage: STORED, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}`
		text := `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.versions.e2e.refract.dev}
spec:
  group: versions.e2e.refract.dev
  names: {kind: Widget, plural: widgets, singular: widget}
  scope: Namespaced
  versions:` + strings.NewReplacer("VERSION", stored, "STORED", "true").Replace(version)
		texts := []string{text}
		for _, other := range others {
			texts = append(texts, strings.NewReplacer("VERSION", other, "STORED", "false").Replace(version))
		}
		return strings.Join(texts, "")
	}
	for cluster, version := range map[string]string{"hub": "v1", "member-1": "v1", "member-2": "v1", "member-3": "v0"} {
		define(t, cluster, crd(version), name)
	}
	const widgets = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: two, namespace: NS}
spec: {schedulingMode: Duplicate, placement: [{cluster: member-1}, {cluster: member-2}]}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: third, namespace: NS}
spec: {schedulingMode: Duplicate, placement: [{cluster: member-3}]}
---
apiVersion: versions.e2e.refract.dev/v1
kind: Widget
metadata: {name: one, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: two}}
spec: {a: b}
---
apiVersion: versions.e2e.refract.dev/v1
kind: Widget
metadata: {name: none, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: third}}
spec: {a: b}
`
	do(t, in(ns, widgets), "apply", "-f", "-")
	everywhere(t, "create", name, ns, "one", []string{"b", "b"}, "spec", "a")
	status(t, ns, "one."+name, "Synced")
	eventually(t, "the message of a cluster without a common version", "true", func() string {
		const want = "the cluster serves widgets.versions.e2e.refract.dev in version v0, the hub has it in version v1"
		p := get(t, "hub", "propagations.refract.dev", ns, "none."+name)
		return fmt.Sprint(condition(p, "Synced", "reason") == "TypeNotServed" && strings.Contains(condition(p, "Synced", "message"), want))
	})
	uids := map[string]types.UID{}
	for _, m := range env.Members[:2] {
		uids[m] = there(t, m, name, ns, "one").GetUID()
	}

	define(t, "member-2", crd("v1", "v2"), name)
	define(t, "hub", crd("v1", "v2"), name)
	written := func(member string) string {
		u := get(t, member, name, ns, "one")
		if u == nil {
			return "absent"
		}
		for _, by := range u.GetManagedFields() {
			if by.Manager == "refract" && by.Operation == metav1.ManagedFieldsOperationApply {
				_, version, _ := strings.Cut(by.APIVersion, "/")
				return version + " " + harness.Field(u, "spec", "a")
			}
		}
		return "not written"
	}
	eventually(t, "the version that both serve", "v2 b", func() string { return written("member-2") })
	if err := env.Patch(t.Context(), "hub", name, ns, "one", `{"spec":{"a":"c"}}`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a change in the new version", "v2 c", func() string { return written("member-2") })
	eventually(t, "a change in the old version", "v1 c", func() string { return written("member-1") })
	status(t, ns, "one."+name, "Synced")
	for _, m := range env.Members[:2] {
		if got := there(t, m, name, ns, "one").GetUID(); got != uids[m] {
			t.Errorf("want the same copy on %s, got another one", m)
		}
	}
	eventually(t, "the version in the report", "the copy is sent in version v1: the cluster does not serve version v2, which the hub prefers", func() string {
		p := get(t, "hub", "propagations.refract.dev", ns, "one."+name)
		clusters, _, _ := unstructured.NestedSlice(p.Object, "status", "clusters")
		for _, c := range clusters {
			if row, ok := c.(map[string]any); ok && row["name"] == "member-1" {
				said, _, _ := unstructured.NestedStringSlice(row, "warnings")
				return strings.Join(said, "; ")
			}
		}
		return fmt.Sprint(clusters)
	})
	remove(t, "hub", name, ns, "one")
	everywhere(t, "deleted", name, ns, "one", []string{"absent", "absent"}, "spec", "a")
}

// TestNamespaceThatTravelsLate propagates a namespace that Refract has already created on members for copies.
func TestNamespaceThatTravelsLate(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	const everywhereAndAll = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: e2e-late}
spec: {schedulingMode: Duplicate}
`
	apply(t, everywhereAndAll)
	t.Cleanup(func() { remove(t, "hub", "clusterpropagationpolicy", "", "e2e-late") })
	label(t, "namespace", "", ns, `"kubeadmiral.io/cluster-propagation-policy-name":"e2e-late","team":"shop"`)
	everywhere(t, "the namespace's own labels", "namespace", "", ns, []string{"shop", "shop", "shop"}, "metadata", "labels", "team")
}

// TestRemovalWhileTheControllersAreDown stops the controllers, so it is not parallel.
func TestRemovalWhileTheControllersAreDown(t *testing.T) {
	ns := namespace(t)
	second := strings.ReplaceAll(web, "name: web\n  namespace", "name: second\n  namespace")
	apply(t, in(ns, placeEverywhere, webReplicas, web, second))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	everywhere(t, "create", "deployment", ns, "second", []string{"1", "5", "7"}, replicas...)
	status(t, ns, "second.deployments.apps", "Synced")
	stop(t, syscall.SIGTERM)
	do(t, "", "delete", "deployment", "-n", ns, "web", "--cascade=orphan")
	label(t, "deployment", ns, "second", `"kubeadmiral.io/propagation-policy-name":null`)
	start(t, usual)
	everywhere(t, "deleted unseen", "deployment", ns, "web", []string{"absent", "absent", "absent"}, replicas...)
	everywhere(t, "unlabelled unseen", "deployment", ns, "second", []string{"absent", "absent", "absent"}, replicas...)
}

// TestKilledInTheMiddle kills the controllers, so it is not parallel.
func TestKilledInTheMiddle(t *testing.T) {
	const n = 300
	ns := namespace(t)
	stop(t, syscall.SIGTERM)
	start(t, brief)
	var all []string
	for i := range n {
		all = append(all, strings.ReplaceAll(web, "name: web\n  namespace", fmt.Sprintf("name: web-%03d\n  namespace", i)))
	}
	apply(t, in(ns, placeEverywhere, webReplicas))
	applied := make(chan error, 1)
	go func() { applied <- harness.ApplyAll(t.Context(), clients["hub"], in(ns, all...)) }()
	deployments := func(ctx context.Context, cluster string) ([]appsv1.Deployment, error) {
		var list appsv1.DeploymentList
		err := clients[cluster].List(ctx, &list, client.InNamespace(ns))
		return list.Items, err
	}
	placed := func(ctx context.Context) (string, error) {
		var counts []string
		for i, m := range env.Members {
			there, err := deployments(ctx, m)
			if err != nil {
				return "", err
			}
			right := 0
			for j := range there {
				if *there[j].Spec.Replicas == []int32{1, 5, 7}[i] && there[j].Generation == 1 {
					right++
				}
			}
			counts = append(counts, fmt.Sprintf("%d of %d", right, len(there)))
		}
		return strings.Join(counts, ", "), nil
	}
	until := func(what, want string) {
		t.Helper()
		harness.Eventually(t, what, func(ctx context.Context) error {
			got, err := placed(ctx)
			return errors.Join(err, is(want, got))
		})
	}
	harness.Eventually(t, "the middle", func(ctx context.Context) error {
		there, err := deployments(ctx, "member-1")
		if len(there) <= n/10 {
			return errors.Join(err, fmt.Errorf("want more than %d copies, got %d", n/10, len(there)))
		}
		return nil
	})
	stop(t, syscall.SIGKILL)
	middle, err := placed(t.Context())
	t.Logf("killed when the members had %s correct copies, %v", middle, err)
	if err := <-applied; err != nil {
		t.Fatal(err)
	}
	start(t, usual)
	// A copy that was written twice with the same content still has generation 1. A copy that was first written without
	// the overrides does not.
	want := fmt.Sprintf("%d of %d", n, n)
	until("copies", strings.Join([]string{want, want, want}, ", "))
	harness.Eventually(t, "reports", func(ctx context.Context) error {
		var reports refractv1alpha1.PropagationList
		err := clients["hub"].List(ctx, &reports, client.InNamespace(ns))
		synced := 0
		for i := range reports.Items {
			if reports.Items[i].Status.Synced == members {
				synced++
			}
		}
		return errors.Join(err, is(fmt.Sprint(n), fmt.Sprint(synced)))
	})
	if err := clients["hub"].DeleteAllOf(t.Context(), &appsv1.Deployment{}, client.InNamespace(ns), client.PropagationPolicy("Background")); err != nil {
		t.Fatal(err)
	}
	until("nothing orphaned", "0 of 0, 0 of 0, 0 of 0")
}
