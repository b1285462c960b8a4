package adversary

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"refract.dev/test/harness"
)

// native is an object that each cluster creates for itself.
type native struct {
	kind, resource string // The resource, as in the names of reports.
	ns, name       string // Empty ns: the object is cluster-scoped.
}

func (n native) String() string { return strings.TrimSpace(n.kind + " " + n.ns + "/" + n.name) }

// record returns the kind and the name of the object's Propagation or ClusterPropagation.
func (n native) record() (kind, name string) {
	kind = "propagations.refract.dev"
	if n.ns == "" {
		kind = "clusterpropagations.refract.dev"
	}
	return kind, n.name + "." + n.resource
}

// synced returns a field of the condition Synced of its report; "absent" if there is no report.
func (n native) synced(t *testing.T, member string) string {
	t.Helper()
	kind, name := n.record()
	u := get(t, "hub", kind, n.ns, name)
	if u == nil {
		return "absent"
	}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if m, ok := c.(map[string]any); ok && m["type"] == "Synced" {
			return fmt.Sprint(m[member])
		}
	}
	return ""
}

// places adds the label and annotations to the object on the hub that request its placement on all members and the
// adoption of existing objects there.
func (n native) places(t *testing.T, policy string) {
	t.Helper()
	change(t, "hub", n, fmt.Sprintf(`{"metadata":{"labels":{"kubeadmiral.io/cluster-propagation-policy-name":%q},"annotations":{
		"kubeadmiral.io/conflict-resolution":"adopt","kubeadmiral.io/clusters-to-adopt":"{\"regexp\":\".*\"}"}}}`, policy))
	t.Cleanup(func() { n.takesOff(t) })
}

// takesOff removes the request.
func (n native) takesOff(t *testing.T) {
	t.Helper()
	change(t, "hub", n, `{"metadata":{"labels":{"kubeadmiral.io/cluster-propagation-policy-name":null},"annotations":{
		"kubeadmiral.io/conflict-resolution":null,"kubeadmiral.io/clusters-to-adopt":null}}}`)
}

// apply applies a manifest to a cluster.
func apply(t *testing.T, cluster, manifest string) {
	t.Helper()
	if err := harness.ApplyAll(t.Context(), clients[cluster], manifest); err != nil {
		t.Fatal(err)
	}
}

func change(t *testing.T, cluster string, n native, patch string) {
	t.Helper()
	if err := env.Patch(context.WithoutCancel(t.Context()), cluster, n.kind, n.ns, n.name, patch); err != nil {
		t.Fatal(err)
	}
}

// anywhere is a policy that places objects on all members.
const anywhere = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: POLICY}
spec: {schedulingMode: Duplicate}
`

// natives creates a namespace on all clusters. On the hub and on member-1, it also creates the objects that a cluster's
// controllers create in each namespace; on the other members, these do not exist yet. natives returns the name of a
// policy that places on all members, and one object of each sort that a cluster creates for itself.
func natives(t *testing.T) (ns, policy string, all []native) {
	t.Helper()
	verbs := []string{"get", "list", "watch", "create", "patch", "delete"}
	for _, rule := range []rbacv1.PolicyRule{
		{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"clusterroles"}, Verbs: verbs},
		{APIGroups: []string{"scheduling.k8s.io"}, Resources: []string{"priorityclasses"}, Verbs: verbs},
	} {
		grant(t, rule)
	}
	ns = env.Namespace(t)
	policy = ns
	apply(t, "hub", strings.ReplaceAll(anywhere, "POLICY", policy))
	t.Cleanup(func() {
		if err := env.Delete(context.WithoutCancel(t.Context()), "hub", "clusterpropagationpolicy", "", policy); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the controllers' log ends:\n%s", harness.LogTail(controllers.Log))
		}
	})
	for _, cluster := range append([]string{"hub"}, env.Members...) {
		manifest := "{apiVersion: v1, kind: Namespace, metadata: {name: NS}}\n"
		if cluster == "hub" || cluster == "member-1" {
			manifest += `---
{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt, namespace: NS}, data: {ca.crt: "that of CLUSTER"}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: NS}}
`
		}
		apply(t, cluster, strings.NewReplacer("NS", ns, "CLUSTER", cluster).Replace(manifest))
	}
	return ns, policy, []native{
		{"service", "services", "default", "kubernetes"},
		{"configmap", "configmaps", ns, "kube-root-ca.crt"},
		{"serviceaccount", "serviceaccounts", ns, "default"},
		{"namespace", "namespaces", "", "kube-system"},
		{"namespace", "namespaces", "", "kube-node-lease"},
		{"clusterrole", "clusterroles.rbac.authorization.k8s.io", "", "view"},
		{"priorityclass", "priorityclasses.scheduling.k8s.io", "", "system-node-critical"},
	}
}

// others creates users' objects of the same types in the same namespaces, and waits until they are on the members. Now
// the controllers look for copies of these types on the members.
func others(t *testing.T, ns, policy string) {
	t.Helper()
	const manifest = `
{apiVersion: v1, kind: ConfigMap, metadata: {name: NS, namespace: NS, labels: {LABEL: POLICY}}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: NS, namespace: NS, labels: {LABEL: POLICY}}}
---
{apiVersion: v1, kind: Service, metadata: {name: NS, namespace: default, labels: {LABEL: POLICY}}, spec: {clusterIP: None, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: NS-placed, labels: {LABEL: POLICY}}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: "system:NS", labels: {LABEL: POLICY}}, rules: []}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: NS, namespace: kube-system, labels: {LABEL: POLICY}}
spec:
  selector: {matchLabels: {app: NS}}
  template:
    metadata: {labels: {app: NS}}
    spec: {containers: [{name: agent, image: agent}]}
`
	apply(t, "hub", strings.NewReplacer("NS", ns, "LABEL", "kubeadmiral.io/cluster-propagation-policy-name", "POLICY", policy).Replace(manifest))
	for _, o := range []native{
		{"configmap", "", ns, ns},
		{"serviceaccount", "", ns, ns},
		{"service", "", "default", ns},
		{"namespace", "", "", ns + "-placed"},
		{"clusterrole", "", "", "system:" + ns},
		{"daemonset", "", "kube-system", ns},
	} {
		t.Cleanup(func() {
			if err := env.Delete(context.WithoutCancel(t.Context()), "hub", o.kind, o.ns, o.name); err != nil {
				t.Error(err)
			}
		})
		for _, member := range env.Members {
			eventually(t, o.String()+" of "+member, "true", func() string {
				return harness.Field(get(t, member, o.kind, o.ns, o.name), "metadata", "labels", "kubeadmiral.io/managed")
			})
		}
	}
}

// versions returns the UIDs and resource versions of objects on the members.
func versions(t *testing.T, all []native) map[string]string {
	t.Helper()
	is := map[string]string{}
	for _, member := range env.Members {
		for _, n := range all {
			u := get(t, member, n.kind, n.ns, n.name)
			is[member+": "+n.String()] = harness.Field(u, "metadata", "uid") + " " + harness.Field(u, "metadata", "resourceVersion")
		}
	}
	return is
}

// TestRow11WhatClustersMakeForThemselvesIsNotTouched requests the placement and adoption of objects that each cluster
// creates for itself, and withdraws the request. Without protection, Refract would change these objects on all members
// and then delete them.
func TestRow11WhatClustersMakeForThemselvesIsNotTouched(t *testing.T) {
	ns, policy, all := natives(t)
	before := versions(t, all)
	for _, n := range all {
		n.places(t, policy)
	}
	others(t, ns, policy)
	for _, n := range all {
		eventually(t, "the reason of "+n.String(), "MadeByEachCluster", func() string { return n.synced(t, "reason") })
		harness.WantAll(t, "The report names the reason.", n.synced(t, "message"), []string{"each cluster creates this object itself"})
	}
	if diff := cmp.Diff(before, versions(t, all)); diff != "" {
		t.Errorf("while they are placed: -before, +after:\n%s", diff)
	}
	for _, n := range all {
		n.takesOff(t)
	}
	for _, n := range all {
		eventually(t, "the report on "+n.String(), "absent", func() string { return n.synced(t, "reason") })
	}
	if diff := cmp.Diff(before, versions(t, all)); diff != "" {
		t.Errorf("after their labels were taken off: -before, +after:\n%s", diff)
	}
}

// TestRow11WhatClustersMakeForThemselvesIsReleased: an older version of Refract adopted objects on a member that the
// cluster had created for itself. When the hub no longer places them, Refract leaves their content unchanged and no
// longer treats them as copies.
func TestRow11WhatClustersMakeForThemselvesIsReleased(t *testing.T) {
	ns, policy, all := natives(t)
	others(t, ns, policy)
	// The controllers look for copies of a type when they start, or when they write an object of the type. This test
	// writes no PriorityClass. Only a user who has all rights in a ClusterRole can change it.
	all = slices.DeleteFunc(all, func(n native) bool { return n.kind == "priorityclass" || n.kind == "clusterrole" })
	hub := harness.Field(get(t, "hub", "namespace", "", "kube-system"), "metadata", "uid")
	const member = "member-1"
	type state struct{ UID, Spec, Data, Source, Managed, Adopted string }
	states := func() map[string]state {
		is := map[string]state{}
		for _, n := range all {
			u := get(t, member, n.kind, n.ns, n.name)
			is[n.String()] = state{
				harness.Field(u, "metadata", "uid"), harness.Field(u, "spec"), harness.Field(u, "data"),
				harness.Field(u, "metadata", "annotations", "refract.dev/source"),
				harness.Field(u, "metadata", "labels", "kubeadmiral.io/managed"),
				harness.Field(u, "metadata", "annotations", "refract.dev/adopted"),
			}
		}
		return is
	}
	before := states()
	for _, n := range all {
		n.places(t, policy)
		eventually(t, "the reason of "+n.String(), "MadeByEachCluster", func() string { return n.synced(t, "reason") })
		uid := harness.Field(get(t, "hub", n.kind, n.ns, n.name), "metadata", "uid")
		source := strings.Join([]string{hub, uid, n.resource, n.ns, n.name}, "/")
		change(t, member, n, fmt.Sprintf(`{"metadata":{"labels":{"kubeadmiral.io/managed":"true"},"annotations":{
			"refract.dev/source":%q,"refract.dev/applied":"x","refract.dev/adopted":"true"}}}`, source))
	}
	for _, n := range all {
		n.takesOff(t)
	}
	harness.Eventually(t, "no object is marked as a copy any more", func(context.Context) error {
		if diff := cmp.Diff(before, states()); diff != "" {
			return fmt.Errorf("-before, +after:\n%s", diff)
		}
		return nil
	})
	for _, n := range all {
		eventually(t, "the report on "+n.String(), "absent", func() string { return n.synced(t, "reason") })
	}
}
