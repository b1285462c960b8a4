package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"
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

// webReplicas are the replicas of the source document: 1, 5 and 7.
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
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)

	do(t, "", "set", "image", "-n", ns, "deployment/web", "web=nginx:1.26")
	image := func(i int) string {
		u := get(t, fmt.Sprintf("member-%d", i), "deployment", ns, "web")
		return field(u, "spec", "template", "spec", "containers")
	}
	eventually(t, "edit", "true", func() string {
		return fmt.Sprint(strings.Contains(image(1), "nginx:1.26") && strings.Contains(image(3), "nginx:1.26"))
	})

	do(t, "", "patch", "overridepolicy", "-n", ns, "web", "--type=json",
		"-p", `[{"op":"replace","path":"/spec/overrideRules/0/overriders/jsonpatch/0/value","value":2}]`)
	everywhere(t, "policy edit", "deployment", ns, "web", []string{"2", "5", "7"}, replicas...)

	do(t, "", "label", "federatedcluster", "member-3", "region=moon", "--overwrite")
	everywhere(t, "cluster relabel", "deployment", ns, "web", []string{"2", "5", "3"}, replicas...)
	do(t, "", "label", "federatedcluster", "member-3", "region=ap", "--overwrite")
	everywhere(t, "cluster relabel", "deployment", ns, "web", []string{"2", "5", "7"}, replicas...)

	do(t, "", "label", "deployment", "-n", ns, "web", "kubeadmiral.io/override-policy-name-")
	everywhere(t, "relabel", "deployment", ns, "web", []string{"3", "3", "3"}, replicas...)
	do(t, "", "label", "deployment", "-n", ns, "web", "kubeadmiral.io/override-policy-name=web")
	everywhere(t, "relabel", "deployment", ns, "web", []string{"2", "5", "7"}, replicas...)

	do(t, "", "delete", "overridepolicy", "-n", ns, "web")
	everywhere(t, "policy deletion", "deployment", ns, "web", []string{"3", "3", "3"}, replicas...)
	p := status(t, ns, "web.deployments.apps", "Synced")
	if got := field(p, "status", "warnings"); !strings.Contains(got, "was deleted") {
		t.Errorf("status.warnings: want a word about the deleted policy, got %s", got)
	}
	do(t, "", "scale", "deployment", "-n", ns, "web", "--replicas=4")
	everywhere(t, "edit after policy deletion", "deployment", ns, "web", []string{"4", "4", "4"}, replicas...)

	do(t, "", "patch", "propagationpolicy", "-n", ns, "everywhere", "--type=merge", "-p", `{"spec":{"clusterSelector":{"region":"us"}}}`)
	everywhere(t, "placement edit", "deployment", ns, "web", []string{"absent", "4", "absent"}, replicas...)

	do(t, "", "delete", "deployment", "-n", ns, "web")
	everywhere(t, "object deletion", "deployment", ns, "web", []string{"absent", "absent", "absent"}, replicas...)
	eventually(t, "end of the report", "absent", func() string {
		return field(get(t, "hub", "propagations.refract.dev", ns, "web.deployments.apps"), "metadata", "name")
	})
}

func TestCopySaysWhereItCameFrom(t *testing.T) {
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	source := get(t, "hub", "deployment", ns, "web")
	if f := source.GetFinalizers(); len(f) > 0 {
		t.Errorf("the source object: want no finalizers, got %v", f)
	}
	u := get(t, "member-1", "deployment", ns, "web")
	if got := u.GetLabels()["kubeadmiral.io/managed"]; got != "true" {
		t.Errorf("label kubeadmiral.io/managed: want true, got %q", got)
	}
	for key := range u.GetLabels() {
		if strings.HasSuffix(key, "-policy-name") {
			t.Errorf("label %s speaks to the hub and should not be on a copy", key)
		}
	}
	if got := u.GetAnnotations()["refract.dev/source"]; !strings.HasSuffix(got, "/"+string(source.GetUID())+"/deployments.apps/"+ns+"/web") {
		t.Errorf("annotation refract.dev/source: want the UID %s and the copy's own name in it, got %q", source.GetUID(), got)
	}
	p := status(t, ns, "web.deployments.apps", "Synced")
	want := "/spec/replicas: 3 → 1 (OverridePolicy " + ns + "/web rule 0 jsonpatch[0])"
	if got := field(p, "status", "variants"); !strings.Contains(got, want) {
		t.Errorf("status.variants: want %q in it, got %s", want, got)
	}
}

// TestObjectMovesBetweenLabels has an object pass from one policy label to the
// other in one update: two watches tell of that, in any order.
func TestObjectMovesBetweenLabels(t *testing.T) {
	ns := namespace(t)
	const clusterWide = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: e2e-labels}
spec: {schedulingMode: Duplicate}
`
	apply(t, in(ns, clusterWide, placeEverywhere, webReplicas, web))
	t.Cleanup(func() { do(t, "", "delete", "clusterpropagationpolicy", "e2e-labels") })
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	uid := get(t, "member-1", "deployment", ns, "web").GetUID()
	for i := range 10 {
		do(t, "", "label", "deployment", "-n", ns, "web", "kubeadmiral.io/propagation-policy-name-", "kubeadmiral.io/cluster-propagation-policy-name=e2e-labels", "--overwrite", fmt.Sprintf("step=%d", 2*i))
		do(t, "", "label", "deployment", "-n", ns, "web", "kubeadmiral.io/cluster-propagation-policy-name-", "kubeadmiral.io/propagation-policy-name=everywhere", "--overwrite", fmt.Sprintf("step=%d", 2*i+1))
	}
	everywhere(t, "the last step", "deployment", ns, "web", []string{"19", "19", "19"}, "metadata", "labels", "step")
	if got := get(t, "member-1", "deployment", ns, "web").GetUID(); got != uid {
		t.Errorf("the copy was deleted on the way: UID was %s and is %s", uid, got)
	}
}

// TestDerivedObjectIsNoCopy has something on a member carry the label and the
// annotations of a copy, as controllers do that hand them down.
func TestDerivedObjectIsNoCopy(t *testing.T) {
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	parent := get(t, "member-1", "deployment", ns, "web")
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
	if _, err := shared.Kubectl("member-1", child, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	// When a later change has arrived, the derived object has been looked at.
	do(t, "", "label", "deployment", "-n", ns, "web", "later=yes")
	everywhere(t, "a later change", "deployment", ns, "web", []string{"yes", "yes", "yes"}, "metadata", "labels", "later")
	time.Sleep(quiet) //nolint:forbidigo // That nothing happens cannot be waited for.
	if get(t, "member-1", "deployment", ns, "derived") == nil {
		t.Error("an object that was derived from a copy was deleted")
	}
}

func TestMissingPolicyHoldsTheObject(t *testing.T) {
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
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	do(t, "", "patch", "overridepolicy", "-n", ns, "web", "--type=json", "-p",
		`[{"op":"replace","path":"/spec/overrideRules/1/overriders/jsonpatch/0","value":{"path":"/spec/no/where","operator":"add","value":9}},
		  {"op":"replace","path":"/spec/overrideRules/0/overriders/jsonpatch/0/value","value":2}]`)
	everywhere(t, "others get theirs", "deployment", ns, "web", []string{"2", "5", "7"}, replicas...)
	p := status(t, ns, "web.deployments.apps", "OverrideFailed")
	want := "member-2: OverridePolicy " + ns + "/web rule 1 jsonpatch[0]: /spec/no does not exist"
	if got := condition(p, "Synced", "message"); got != want {
		t.Errorf("message: want %q, got %q", want, got)
	}
	do(t, "", "scale", "deployment", "-n", ns, "web", "--replicas=4")
	do(t, "", "label", "deployment", "-n", ns, "web", "new=yes")
	everywhere(t, "the template changes elsewhere", "deployment", ns, "web", []string{"yes", "", "yes"}, "metadata", "labels", "new")
	everywhere(t, "the last good version", "deployment", ns, "web", []string{"2", "5", "7"}, replicas...)
}

func TestForeignObjectIsLeftAlone(t *testing.T) {
	ns := namespace(t)
	if _, err := shared.Kubectl("member-2", "", "create", "namespace", ns); err != nil {
		t.Fatal(err)
	}
	if _, err := shared.Kubectl("member-2", "", "create", "deployment", "-n", ns, "web", "--image=theirs", "--replicas=9"); err != nil {
		t.Fatal(err)
	}
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "9", "7"}, replicas...)
	status(t, ns, "web.deployments.apps", "AlreadyExists")
	do(t, "", "delete", "deployment", "-n", ns, "web")
	everywhere(t, "delete", "deployment", ns, "web", []string{"absent", "9", "absent"}, replicas...)
}

func TestDeletedCopyComesBack(t *testing.T) {
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	uid := get(t, "member-1", "deployment", ns, "web").GetUID()
	if _, err := shared.Kubectl("member-1", "", "delete", "deployment", "-n", ns, "web"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "another copy", "true", func() string {
		u := get(t, "member-1", "deployment", ns, "web")
		return fmt.Sprint(u != nil && u.GetUID() != uid && field(u, replicas...) == "1")
	})
}

func TestAnyType(t *testing.T) {
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
	apply(t, crd)
	do(t, "", "wait", "--for=condition=Established", "crd/gadgets.e2e.refract.dev")
	t.Cleanup(func() {
		do(t, "", "delete", "clusterrole", "e2e:pod-reader")
		do(t, "", "delete", "crd", "gadgets.e2e.refract.dev")
		everywhere(t, "CRD gone", "crd", "", "gadgets.e2e.refract.dev", []string{"absent", "absent", "absent"}, "metadata", "name")
		everywhere(t, "role gone", "clusterrole", "", "e2e:pod-reader", []string{"absent", "absent", "absent"}, "metadata", "name")
		do(t, "", "delete", "clusterpropagationpolicy", "e2e-everywhere")
		do(t, "", "delete", "clusteroverridepolicy", "e2e-where")
	})
	apply(t, in(ns, objects))
	do(t, "", "label", "crd", "gadgets.e2e.refract.dev", "kubeadmiral.io/cluster-propagation-policy-name=e2e-everywhere")
	annotation := []string{"metadata", "annotations", "apps.my.company/running-in"}
	everywhere(t, "cluster-scoped", "clusterrole", "", "e2e:pod-reader", []string{"", "member-2", ""}, annotation...)
	everywhere(t, "without generation", "configmap", ns, "settings", []string{"1", "1", "1"}, "data", "a")
	everywhere(t, "custom resource", "gadgets.e2e.refract.dev", ns, "one", []string{"", "member-2", ""}, annotation...)
	for i := range shared.Members {
		out, err := shared.Kubectl(fmt.Sprintf("member-%d", i+1), "", "get", "gadgets.e2e.refract.dev", "-n", ns, "one", "-o", "jsonpath={.spec.big}")
		if err != nil || out != "9007199254740993" {
			t.Errorf("a large integer on member-%d: want 9007199254740993, got %s, %v", i+1, out, err)
		}
	}
}

// TestMemberServesAnotherVersion has a member serve an older version of a type
// only than the one that the hub prefers; an override says so.
func TestMemberServesAnotherVersion(t *testing.T) {
	ns := namespace(t)
	const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.e2e.refract.dev}
spec:
  group: e2e.refract.dev
  names: {kind: Widget, plural: widgets, singular: widget}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`
	const v2 = `
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`
	for cluster, manifest := range map[string]string{"hub": crd + v2, "member-1": crd} {
		if _, err := shared.Kubectl(cluster, manifest, "apply", "-f", "-"); err != nil {
			t.Fatal(err)
		}
		if _, err := shared.Kubectl(cluster, "", "wait", "--for=condition=Established", "crd/widgets.e2e.refract.dev"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if _, err := shared.Kubectl(cluster, "", "delete", "crd", "widgets.e2e.refract.dev"); err != nil {
				t.Error(err)
			}
		})
	}
	const widget = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: one, namespace: NS}
spec: {schedulingMode: Duplicate, placement: [{cluster: member-1}]}
---
apiVersion: e2e.refract.dev/v2
kind: Widget
metadata:
  name: one
  namespace: NS
  labels: {kubeadmiral.io/propagation-policy-name: one}
spec: {a: b}
`
	apply(t, in(ns, widget))
	status(t, ns, "one.widgets.e2e.refract.dev", "TypeNotServed")
	const older = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: older, namespace: NS}
spec: {overrideRules: [{overriders: {jsonpatch: [{path: /apiVersion, operator: replace, value: e2e.refract.dev/v1}]}}]}
`
	apply(t, in(ns, older))
	do(t, "", "label", "widgets.e2e.refract.dev", "-n", ns, "one", "kubeadmiral.io/override-policy-name=older")
	status(t, ns, "one.widgets.e2e.refract.dev", "Synced")
	everywhere(t, "the version that is served", "widgets.e2e.refract.dev", ns, "one", []string{"b"}, "spec", "a")
	do(t, "", "delete", "widgets.e2e.refract.dev", "-n", ns, "one")
	everywhere(t, "deleted", "widgets.e2e.refract.dev", ns, "one", []string{"absent"}, "spec", "a")
	eventually(t, "end of the report", "absent", func() string {
		return field(get(t, "hub", "propagations.refract.dev", ns, "one.widgets.e2e.refract.dev"), "metadata", "name")
	})
}

// TestNamespaceThatTravelsLate has a namespace propagated after members got it for
// the sake of what is in it.
func TestNamespaceThatTravelsLate(t *testing.T) {
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
	t.Cleanup(func() { do(t, "", "delete", "clusterpropagationpolicy", "e2e-late") })
	do(t, "", "label", "namespace", ns, "kubeadmiral.io/cluster-propagation-policy-name=e2e-late", "team=shop")
	everywhere(t, "the namespace's own labels", "namespace", "", ns, []string{"shop", "shop", "shop"}, "metadata", "labels", "team")
}

func TestRemovalWhileTheControllersAreDown(t *testing.T) {
	ns := namespace(t)
	second := strings.ReplaceAll(web, "name: web\n  namespace", "name: second\n  namespace")
	apply(t, in(ns, placeEverywhere, webReplicas, web, second))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	everywhere(t, "create", "deployment", ns, "second", []string{"1", "5", "7"}, replicas...)
	status(t, ns, "second.deployments.apps", "Synced")
	shared.StopControllers(syscall.SIGTERM)
	do(t, "", "delete", "deployment", "-n", ns, "web", "--cascade=orphan")
	do(t, "", "label", "deployment", "-n", ns, "second", "kubeadmiral.io/propagation-policy-name-")
	if err := shared.StartControllers(); err != nil {
		t.Fatal(err)
	}
	everywhere(t, "deleted unseen", "deployment", ns, "web", []string{"absent", "absent", "absent"}, replicas...)
	everywhere(t, "unlabelled unseen", "deployment", ns, "second", []string{"absent", "absent", "absent"}, replicas...)
}

func TestKilledInTheMiddle(t *testing.T) {
	const n = 300
	ns := namespace(t)
	var all []string
	for i := range n {
		all = append(all, strings.ReplaceAll(web, "name: web\n  namespace", fmt.Sprintf("name: web-%03d\n  namespace", i)))
	}
	apply(t, in(ns, placeEverywhere, webReplicas))
	applied := make(chan error, 1)
	go func() {
		_, err := shared.Kubectl("hub", in(ns, all...), "apply", "-f", "-")
		applied <- err
	}()
	placed := func() (counts []string) {
		for i := range shared.Members {
			out, err := shared.Kubectl(fmt.Sprintf("member-%d", i+1), "", "get", "deployments", "-n", ns, "-o", "jsonpath={range .items[*]}{.spec.replicas}/{.metadata.generation} {end}")
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"1/1", "5/1", "7/1"}[i]
			fields := strings.Fields(out)
			right := 0
			for _, f := range fields {
				if f == want {
					right++
				}
			}
			counts = append(counts, fmt.Sprintf("%d of %d", right, len(fields)))
		}
		return counts
	}
	eventually(t, "the middle", "true", func() string {
		out, err := shared.Kubectl("member-1", "", "get", "deployments", "-n", ns, "-o", "name")
		return fmt.Sprint(err == nil && strings.Count(out, "\n") > n/10)
	})
	shared.StopControllers(syscall.SIGKILL)
	t.Logf("killed when the members had %v right copies", placed())
	if err := <-applied; err != nil {
		t.Fatal(err)
	}
	if err := shared.StartControllers(); err != nil {
		t.Fatal(err)
	}
	// A copy that was written twice with the same content has generation 1 all the
	// same; one that was written without its overrides first has not.
	want := fmt.Sprintf("%d of %d", n, n)
	eventually(t, "copies", strings.Join([]string{want, want, want}, ", "), func() string { return strings.Join(placed(), ", ") })
	eventually(t, "reports", fmt.Sprint(n), func() string {
		out := do(t, "", "get", "propagations", "-n", ns, "-o", "jsonpath={range .items[*]}{.status.synced} {end}")
		return fmt.Sprint(strings.Count(out, "3"))
	})
	do(t, "", "delete", "deployments", "-n", ns, "--all", "--wait=false")
	eventually(t, "nothing orphaned", "0 of 0, 0 of 0, 0 of 0", func() string { return strings.Join(placed(), ", ") })
}
