package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
)

// theirs creates a Deployment on a member without Refract.
func theirs(t *testing.T, member, ns string) {
	t.Helper()
	const deployment = `
apiVersion: v1
kind: Namespace
metadata: {name: NS}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: NS, labels: {app: web}}
spec:
  replicas: 9
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: theirs, image: theirs}]}
`
	if err := harness.ApplyAll(t.Context(), clients[member], in(ns, deployment)); err != nil {
		t.Fatal(err)
	}
}

// scale scales the Deployment web of a cluster by its subresource, as kubectl and autoscalers do.
func scale(t *testing.T, cluster, ns string, replicas int) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))
	if err := clients[cluster].SubResource("scale").Patch(t.Context(), there(t, cluster, "deployment", ns, "web"), patch); err != nil {
		t.Fatal(err)
	}
}

// row returns the row of a cluster in a Propagation.
func row(t *testing.T, ns, record, cluster string) map[string]any {
	t.Helper()
	p := get(t, "hub", "propagations.refract.dev", ns, record)
	if p == nil {
		return nil
	}
	status, _ := p.Object["status"].(map[string]any)
	rows, _ := status["clusters"].([]any)
	for _, r := range rows {
		if m, ok := r.(map[string]any); ok && m["name"] == cluster {
			return m
		}
	}
	return nil
}

// rowSays waits until the row of a cluster contains each of these texts.
func rowSays(t *testing.T, ns, record, cluster string, words ...string) {
	t.Helper()
	eventually(t, record+" on "+cluster, strings.Join(words, " "), func() string {
		text := fmt.Sprint(row(t, ns, record, cluster))
		var found []string
		for _, w := range words {
			if strings.Contains(text, w) {
				found = append(found, w)
			}
		}
		if len(found) == len(words) {
			return strings.Join(words, " ")
		}
		return text
	})
}

// marked sets a label of web on the hub, and waits for its values on the copies. By then, the copies also have all
// earlier changes.
func marked(t *testing.T, ns, mark string, want ...string) {
	t.Helper()
	label(t, "deployment", ns, "web", `"`+mark+`":"yes"`)
	everywhere(t, "label "+mark, "deployment", ns, "web", want, "metadata", "labels", mark)
}

// TestDriftIsCorrected changes a copy on a member. Refract restores the fields that it applied and leaves other fields
// unchanged. The Propagation names the field manager and the fields.
func TestDriftIsCorrected(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	status(t, ns, "web.deployments.apps", "Synced")

	change(t, "member-2", "deployment", ns, "web", `{"metadata":{"labels":{"theirs":"stays"}},"spec":{"replicas":9,"minReadySeconds":3}}`, somebody)
	everywhere(t, "corrected", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	u := there(t, "member-2", "deployment", ns, "web")
	if got := u.GetLabels()["theirs"] + " " + harness.Field(u, "spec", "minReadySeconds"); got != "stays 3" {
		t.Errorf("want the cluster's own field to stay, got %q", got)
	}
	rowSays(t, ns, "web.deployments.apps", "member-2", "state:Synced", "count:1", "fields:[.spec.replicas]", "manager:somebody")

	// A user removes a field from the copy of an object without a generation.
	const config = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
data: {color: blue, size: large}
`
	apply(t, in(ns, config))
	everywhere(t, "create", "configmap", ns, "settings", []string{"blue", "blue", "blue"}, "data", "color")
	status(t, ns, "settings.configmaps", "Synced")
	change(t, "member-3", "configmap", ns, "settings", `[{"op":"remove","path":"/data/color"}]`, somebody)
	everywhere(t, "corrected", "configmap", ns, "settings", []string{"blue", "blue", "blue"}, "data", "color")
	rowSays(t, ns, "settings.configmaps", "member-3", "fields:[.data.color]")

	// A field that the hub's object no longer has is removed.
	change(t, "hub", "configmap", ns, "settings", `[{"op":"remove","path":"/data/size"}]`)
	everywhere(t, "removed", "configmap", ns, "settings", []string{"", "", ""}, "data", "size")

	// A deleted copy is created again, and reported.
	remove(t, "member-1", "configmap", ns, "settings")
	everywhere(t, "restored", "configmap", ns, "settings", []string{"blue", "blue", "blue"}, "data", "color")
	rowSays(t, ns, "settings.configmaps", "member-1", "deleted:true")
	harness.Eventually(t, "event", func(ctx context.Context) error {
		var events corev1.EventList
		if err := clients["hub"].List(ctx, &events, client.InNamespace(ns)); err != nil {
			return err
		}
		var reasons []string
		for i := range events.Items {
			reasons = append(reasons, events.Items[i].Reason)
		}
		if !slices.Contains(reasons, "DriftCorrected") {
			return fmt.Errorf("want one event DriftCorrected, got %q", reasons)
		}
		return nil
	})
}

// TestTugOfWar changes a copy again and again: it is corrected at increasing intervals, and this is reported.
func TestTugOfWar(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	status(t, ns, "web.deployments.apps", "Synced")
	eventually(t, "row", "Drifted", func() string {
		scale(t, "member-2", ns, 9)
		return fmt.Sprint(row(t, ns, "web.deployments.apps", "member-2")["state"])
	})
	rowSays(t, ns, "web.deployments.apps", "member-2", "ChangedAgainAndAgain", `refract.dev/left-to-members='["/spec/replicas"]'`)
	everywhere(t, "corrected in the end", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
}

// TestReplicasAreRetained leaves the number of replicas to the member, for example for an autoscaler there.
func TestReplicasAreRetained(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	annotate(t, "deployment", ns, "web", `"kubeadmiral.io/retain-replicas":"true"`)
	marked(t, ns, "retained", "yes", "yes", "yes")
	status(t, ns, "web.deployments.apps", "Synced")
	everywhere(t, "no replicas are changed", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	scale(t, "member-2", ns, 9)
	// A change of another field arrives, and does not change the replicas.
	change(t, "hub", "deployment", ns, "web", `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"nginx:1.27"}]`)
	eventually(t, "edit", "true", func() string {
		return fmt.Sprint(strings.Contains(harness.Field(get(t, "member-2", "deployment", ns, "web"), "spec", "template", "spec", "containers"), "nginx:1.27"))
	})
	everywhere(t, "retained", "deployment", ns, "web", []string{"1", "9", "7"}, replicas...)
	scale(t, "hub", ns, 4)
	marked(t, ns, "scaled", "yes", "yes", "yes")
	status(t, ns, "web.deployments.apps", "Synced")
	everywhere(t, "still retained", "deployment", ns, "web", []string{"1", "9", "7"}, replicas...)
	annotate(t, "deployment", ns, "web", `"kubeadmiral.io/retain-replicas":null`)
	everywhere(t, "taken back", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
}

// TestAdoption adopts an existing object only if the annotation requests it. The adopted object stays when the hub's
// object is deleted.
func TestAdoption(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	for _, m := range []string{"member-2", "member-3"} {
		theirs(t, m, ns)
	}
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	status(t, ns, "web.deployments.apps", "AlreadyExists")
	everywhere(t, "without the annotation", "deployment", ns, "web", []string{"1", "9", "9"}, replicas...)
	annotate(t, "deployment", ns, "web",
		`"kubeadmiral.io/conflict-resolution":"adopt","kubeadmiral.io/clusters-to-adopt":"{\"clusters\":[\"member-2\"]}","kubeadmiral.io/orphan":"adopted"`)
	everywhere(t, "adopted on one", "deployment", ns, "web", []string{"1", "5", "9"}, replicas...)
	rowSays(t, ns, "web.deployments.apps", "member-2", "adopted:true", "state:Synced")
	remove(t, "hub", "deployment", ns, "web")
	everywhere(t, "kept where it was adopted", "deployment", ns, "web", []string{"absent", "5", "9"}, replicas...)
	eventually(t, "the adopted object is a plain object again", "", func() string {
		u := there(t, "member-2", "deployment", ns, "web")
		return u.GetLabels()["kubeadmiral.io/managed"] + u.GetAnnotations()["refract.dev/source"]
	})
}

// TestOrphans keeps the copies of a deleted object.
func TestOrphans(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	annotate(t, "deployment", ns, "web", `"kubeadmiral.io/orphan":"all"`)
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	everywhere(t, "the copies have the annotation", "deployment", ns, "web", []string{"all", "all", "all"}, "metadata", "annotations", "refract.dev/orphan")
	remove(t, "hub", "deployment", ns, "web")
	eventually(t, "end of the report", "absent", func() string {
		return harness.Field(get(t, "hub", "propagations.refract.dev", ns, "web.deployments.apps"), "metadata", "name")
	})
	everywhere(t, "kept", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
}

// TestHeldByAnnotation: annotations freeze the placement or the copies of an object.
func TestHeldByAnnotation(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	const usOnly = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere, namespace: NS}
spec: {schedulingMode: Duplicate, clusterSelector: {region: us}}
`
	apply(t, in(ns, usOnly, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"absent", "5", "absent"}, replicas...)

	annotate(t, "deployment", ns, "web", `"kubeadmiral.io/no-scheduling":"true"`)
	marked(t, ns, "held", "absent", "yes", "absent") // Before the policy changes.
	apply(t, in(ns, placeEverywhere))
	change(t, "hub", "overridepolicy", ns, "web", `[{"op":"replace","path":"/spec/overrideRules/1/overriders/jsonpatch/0/value","value":6}]`)
	everywhere(t, "the copy on its cluster is still updated", "deployment", ns, "web", []string{"absent", "6", "absent"}, replicas...)
	eventually(t, "the report says why", "true", func() string {
		return fmt.Sprint(strings.Contains(harness.Field(get(t, "hub", "propagations.refract.dev", ns, "web.deployments.apps"), "status", "warnings"), "member-1"))
	})

	annotate(t, "deployment", ns, "web", `"kubeadmiral.io/dry-run":"true","kubeadmiral.io/no-scheduling":null`)
	rowSays(t, ns, "web.deployments.apps", "member-1", "DryRun", "a copy would be created")
	scale(t, "hub", ns, 2)
	rowSays(t, ns, "web.deployments.apps", "member-2", "DryRun", "the copy would")
	everywhere(t, "nothing is written", "deployment", ns, "web", []string{"absent", "6", "absent"}, replicas...)
	annotate(t, "deployment", ns, "web", `"kubeadmiral.io/dry-run":null`)
	everywhere(t, "released", "deployment", ns, "web", []string{"1", "6", "7"}, replicas...)
}

// TestFollowers: the objects to which a workload refers follow it to its clusters, as long as the workload refers to
// them. The test kills the controllers, so it is not parallel.
func TestFollowers(t *testing.T) {
	ns := namespace(t)
	const manifests = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: NS}
data: {color: blue}
---
apiVersion: v1
kind: Secret
metadata: {name: eu, namespace: NS}
stringData: {password: one}
---
apiVersion: v1
kind: Secret
metadata: {name: elsewhere, namespace: NS}
stringData: {password: two}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: web, namespace: NS}
spec:
  overrideRules:
  - targetClusters: {clusters: [member-1]}
    overriders: {jsonpatch: [{path: /spec/template/spec/containers/0/envFrom/1/secretRef/name, operator: replace, value: eu}]}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: NS
  labels: {kubeadmiral.io/propagation-policy-name: everywhere, kubeadmiral.io/override-policy-name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - {name: web, image: "nginx:1.25", envFrom: [{configMapRef: {name: settings}}, {secretRef: {name: elsewhere}}]}
`
	apply(t, in(ns, placeEverywhere, manifests))
	everywhere(t, "the ConfigMap", "configmap", ns, "settings", []string{"blue", "blue", "blue"}, "data", "color")
	name := []string{"metadata", "name"}
	everywhere(t, "the Secret of two clusters", "secret", ns, "elsewhere", []string{"absent", "elsewhere", "elsewhere"}, name...)
	// An override adds the reference to the third Secret. This fleet has no webhook that checks the author's rights;
	// test/adversary has.
	eventually(t, "the Secret whose reference an override adds", "true", func() string {
		p := get(t, "hub", "propagations.refract.dev", ns, "web.deployments.apps")
		return fmt.Sprint(strings.Contains(harness.Field(p, "status", "warnings"), "Secret eu, which OverridePolicy "+ns+"/web adds"))
	})
	p := status(t, ns, "settings.configmaps", "Synced")
	if got := harness.Field(p, "status", "follows"); !strings.Contains(got, "deployments.apps") || !strings.Contains(got, "name:web") {
		t.Errorf("status.follows: want the Deployment, got %s", got)
	}

	change(t, "hub", "configmap", ns, "settings", `{"data":{"color":"red"}}`)
	everywhere(t, "an edit", "configmap", ns, "settings", []string{"red", "red", "red"}, "data", "color")

	// A Secret is created after the workload that refers to it.
	change(t, "hub", "deployment", ns, "web", `[{"op":"add","path":"/spec/template/spec/imagePullSecrets","value":[{"name":"late"}]}]`)
	apply(t, in(ns, "apiVersion: v1\nkind: Secret\nmetadata: {name: late, namespace: NS}\n"))
	everywhere(t, "a Secret created later", "secret", ns, "late", []string{"late", "late", "late"}, name...)

	// The controllers restart before and after the next change, so they must know the earlier references from the
	// Propagations.
	stop(t, syscall.SIGTERM)
	start(t, brief)
	annotate(t, "secret", ns, "late", `"kubeadmiral.io/disable-following":"true"`)
	everywhere(t, "a Secret that must not travel", "secret", ns, "late", []string{"absent", "absent", "absent"}, name...)

	stop(t, syscall.SIGKILL)
	start(t, usual)
	// The test keeps the Deployment, because Refract would keep the followers of a deleted Deployment for a minute: see
	// TestClaims.
	change(t, "hub", "deployment", ns, "web", `[{"op":"replace","path":"/spec/template/spec/containers/0/envFrom",
		"value":[{"configMapRef":{"name":"other"}},{"secretRef":{"name":"other"}}]}]`)
	for _, kind := range []string{"configmap/settings", "secret/elsewhere"} {
		of, what, _ := strings.Cut(kind, "/")
		everywhere(t, "after the Deployment refers to others", of, ns, what, []string{"absent", "absent", "absent"}, name...)
	}
}

// TestNamespaceStays: Refract keeps a namespace that it created for copies, because it may contain other objects by
// now. test/adversary tests a requested deletion.
func TestNamespaceStays(t *testing.T) {
	t.Parallel()
	ns := namespace(t)
	apply(t, in(ns, placeEverywhere, webReplicas, web))
	everywhere(t, "create", "deployment", ns, "web", []string{"1", "5", "7"}, replicas...)
	remove(t, "hub", "deployment", ns, "web")
	everywhere(t, "remove", "deployment", ns, "web", []string{"absent", "absent", "absent"}, replicas...)
	harness.Consistently(t, "the namespace stays", quiet, func(context.Context) error {
		u := get(t, "member-1", "namespace", "", ns)
		if u != nil && u.GetDeletionTimestamp() != nil {
			u = nil // The member has no controller that completes the deletion, so this counts as deleted.
		}
		return is(ns, harness.Field(u, "metadata", "name"))
	})
}

// TestDivide divides replicas over clusters, and moves few of them when clusters change. It removes all objects from a
// cluster, so it is not parallel.
func TestDivide(t *testing.T) {
	ns := namespace(t)
	const divide = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere, namespace: NS}
spec:
  schedulingMode: Divide
  placement:
  - {cluster: member-1, preferences: {weight: 1}}
  - {cluster: member-2, preferences: {weight: 2}}
  - {cluster: member-3, preferences: {weight: 3, maxReplicas: 4}}
`
	divided := strings.ReplaceAll(strings.ReplaceAll(web, "replicas: 3", "replicas: 12"), "    kubeadmiral.io/override-policy-name: web\n", "")
	apply(t, in(ns, divide, divided))
	everywhere(t, "divide", "deployment", ns, "web", []string{"3", "5", "4"}, replicas...)
	rowSays(t, ns, "web.deployments.apps", "member-3", "replicas:4", "state:Synced")
	t.Cleanup(func() { change(t, "hub", "federatedcluster", "", "member-2", `{"spec":{"taints":null}}`) })
	change(t, "hub", "federatedcluster", "", "member-2", `{"spec":{"taints":[{"key":"drain","effect":"NoExecute"}]}}`)
	everywhere(t, "drained", "deployment", ns, "web", []string{"8", "absent", "4"}, replicas...)
}
