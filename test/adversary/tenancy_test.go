package adversary

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
)

// tenants creates two namespaces for a test: ns of the user, and others of another tenant, with objects that the user
// must not affect. At the end of the test, everything outside ns must be unchanged.
func tenants(t *testing.T) (ns, others, user string) {
	t.Helper()
	ns, user = namespace(t)
	others = "others-" + ns
	given(t, "hub", "", "{apiVersion: v1, kind: Namespace, metadata: {name: "+others+"}}")
	t.Cleanup(func() { remove(t, "hub", "namespace", "", others) })
	given(t, "hub", others, strings.ReplaceAll(author, "USER", "somebody-else"))
	given(t, "hub", others, configMap("theirs", labelled, ""))
	given(t, "hub", others, configMap("only-theirs", "", ""))
	everywhere(t, "configmap", others, "theirs", []string{"1", "1"}, "data", "size")
	before := outside(t, ns, others)
	t.Cleanup(func() {
		// When the last write has arrived, all earlier writes have arrived, too.
		given(t, "hub", ns, configMap("last", labelled, ""))
		everywhere(t, "configmap", ns, "last", []string{"1", "1"}, "data", "size")
		if after := outside(t, ns, others); after != before {
			t.Errorf("objects outside namespace %s have changed:\n--- before\n%s--- after\n%s", ns, before, after)
		}
	})
	return ns, others, user
}

// configMap returns the manifest of a ConfigMap.
func configMap(name, labels, annotations string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, labels: {%s}, annotations: {%s}}, data: {size: \"1\"}}", name, labels, annotations)
}

// outside lists the objects on the members that a user of namespace ns could attack, with their versions: objects of
// the other tenant, of the cluster, and of system namespaces. Parallel tests do not change these objects, because they
// use other namespaces; their only other change, a rule of Refract's role, is excluded.
func outside(t *testing.T, ns, others string) string {
	t.Helper()
	var all strings.Builder
	list := func(cluster string, of schema.GroupVersion, kind string, counts func(*metav1.PartialObjectMetadata) bool) {
		found := &metav1.PartialObjectMetadataList{}
		found.SetGroupVersionKind(of.WithKind(kind + "List"))
		if err := clients[cluster].List(context.WithoutCancel(t.Context()), found); err != nil { // A cleanup calls outside, too.
			t.Fatal(err)
		}
		for i := range found.Items {
			if o := &found.Items[i]; counts(o) {
				fmt.Fprintf(&all, "%s %s/%s: version %s, UID %s\n", kind, o.Namespace, o.Name, o.ResourceVersion, o.UID)
			}
		}
	}
	in := []string{others, "kube-system", "default", system}
	theirs := func(o *metav1.PartialObjectMetadata) bool {
		return slices.Contains(in, o.Namespace) || o.Namespace == "" && o.Name != "refract-member"
	}
	like := func(o *metav1.PartialObjectMetadata) bool {
		return theirs(o) || o.Namespace != ns && strings.HasPrefix(o.Namespace, ns)
	}
	for _, cluster := range env.Members {
		fmt.Fprintf(&all, "%s\n", cluster)
		list(cluster, corev1.SchemeGroupVersion, "ConfigMap", like)
		for _, kind := range []string{"Secret", "ServiceAccount"} {
			list(cluster, corev1.SchemeGroupVersion, kind, theirs)
		}
		list(cluster, appsv1.SchemeGroupVersion, "Deployment", theirs)
		for _, kind := range []string{"Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"} {
			list(cluster, rbacv1.SchemeGroupVersion, kind, theirs)
		}
	}
	return all.String()
}

// TestAnnotationsDecideNothing: in KubeAdmiral, some annotations let the author of an object bypass the policy. They
// have no effect here.
func TestAnnotationsDecideNothing(t *testing.T) {
	t.Parallel()
	ns, _, user := tenants(t)
	annotations := map[string]string{
		"placements":  `kubeadmiral.io/placements: '[{"cluster":"member-2"}]'`,
		"tolerations": `kubeadmiral.io/tolerations: '[{"operator":"Exists"}]'`,
		"selector":    `kubeadmiral.io/clusterSelector: '{}'`,
		"affinity":    `kubeadmiral.io/affinity: '{}'`,
		"max":         `kubeadmiral.io/maxClusters: "5"`,
		"mode":        `kubeadmiral.io/scheduling-mode: Duplicate`,
		"sticky":      `kubeadmiral.io/sticky-cluster: "true"`,
	}
	for name, annotation := range annotations {
		if err := create(t, as(t, user), ns, configMap(name, "kubeadmiral.io/propagation-policy-name: first", annotation)); err != nil {
			t.Fatal(err)
		}
		everywhere(t, "configmap", ns, name, []string{"1", "absent"}, "data", "size")
	}
	// When a later write has arrived, these objects have arrived on all of their clusters.
	given(t, "hub", ns, configMap("everywhere", labelled, ""))
	everywhere(t, "configmap", ns, "everywhere", []string{"1", "1"}, "data", "size")
	for name := range annotations {
		everywhere(t, "configmap", ns, name, []string{"1", "absent"}, "data", "size")
	}
}

// TestPoliciesOfOthers: a label can only name a policy of the object's own namespace.
func TestPoliciesOfOthers(t *testing.T) {
	t.Parallel()
	ns, others, user := tenants(t)
	given(t, "hub", others, `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: only-theirs}
spec: {schedulingMode: Duplicate}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: only-theirs}
spec: {overrideRules: [{overriders: {jsonpatch: [{path: /data/size, value: "2"}]}}]}
`)
	c := as(t, user)
	expect(t, "The value of a label cannot contain a slash.", "metadata.labels", create(t, c, ns, configMap("slash", "kubeadmiral.io/propagation-policy-name: "+others+"/only-theirs", "")))
	expect(t, "A label may name a missing policy.", "", create(t, c, ns, configMap("placed", "kubeadmiral.io/propagation-policy-name: only-theirs", "")))
	expect(t, "A label may name a missing policy.", "", create(t, c, ns, configMap("changed", labelled+", kubeadmiral.io/override-policy-name: only-theirs", "")))
	for _, name := range []string{"placed", "changed"} {
		eventually(t, "the reason of "+name, "PolicyNotFound", func() string {
			return condition(get(t, "hub", "propagations.refract.dev", ns, name+".configmaps"), "Synced", "reason")
		})
		everywhere(t, "configmap", ns, name, []string{"absent", "absent"})
	}
}

// TestOverridesOfIdentity: an override cannot change the identity of a copy, or prevent its deletion.
func TestOverridesOfIdentity(t *testing.T) {
	t.Parallel()
	ns, others, user := tenants(t)
	source := fmt.Sprintf("11111111-1111-1111-1111-111111111111/22222222-2222-2222-2222-222222222222/configmaps/%s/theirs", others)
	cases := map[string]string{
		"namespace":         `{path: /metadata/namespace, value: ` + others + `}`,
		"name":              `{path: /metadata/name, value: theirs}`,
		"generate-name":     `{path: /metadata/generateName, operator: add, value: theirs}`,
		"metadata":          `{path: /metadata, value: {name: theirs, namespace: ` + others + `}}`,
		"all":               `{path: "", operator: replace, value: {apiVersion: v1, kind: ConfigMap, metadata: {name: theirs, namespace: ` + others + `}}}`,
		"kind":              `{path: /kind, value: Secret}`,
		"group":             `{path: /apiVersion, value: rbac.authorization.k8s.io/v1}`,
		"uid":               `{path: /metadata/uid, operator: add, value: 22222222-2222-2222-2222-222222222222}`,
		"resource-version":  `{path: /metadata/resourceVersion, operator: add, value: "1"}`,
		"owners":            `{path: /metadata/ownerReferences, operator: add, value: [{apiVersion: v1, kind: Namespace, name: ` + others + `, uid: x}]}`,
		"managed-fields":    `{path: /metadata/managedFields, operator: add, value: []}`,
		"managed":           `{path: /metadata/labels/kubeadmiral.io~1managed, operator: add, value: "false"}`,
		"labels":            `{path: /metadata/labels, value: {kubeadmiral.io/managed: "false"}}`,
		"source":            `{path: /metadata/annotations/refract.dev~1source, operator: add, value: ` + source + `}`,
		"applied":           `{path: /metadata/annotations/refract.dev~1applied, operator: add, value: "0"}`,
		"annotations":       `{path: /metadata/annotations, value: {refract.dev/source: ` + source + `}}`,
		"created-by":        `{path: /metadata/annotations/refract.dev~1created-by, operator: add, value: x}`,
		"adopted":           `{path: /metadata/annotations/refract.dev~1adopted, operator: add, value: "true"}`,
		"orphan":            `{path: /metadata/annotations/refract.dev~1orphan, operator: add, value: all}`,
		"deletion":          `{path: /metadata/deletionTimestamp, operator: add, value: "2026-01-01T00:00:00Z"}`,
		"namespace-removed": `{path: /metadata/namespace, operator: remove}`,
		"finalizer":         `{path: /metadata/finalizers/-, operator: add, value: example.com/hold}`,
		"finalizers":        `{path: /metadata/finalizers, operator: add, value: [example.com/hold]}`,
	}
	for name, patch := range cases {
		t.Run(name, func(t *testing.T) {
			policy := "{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: " + name + "}, spec: {overrideRules: [{overriders: {jsonpatch: [" + patch + "]}}]}}"
			if err := create(t, as(t, user), ns, policy); err != nil {
				if !strings.Contains(err.Error(), "may not be overridden") && !strings.Contains(err.Error(), "path in body should match") {
					t.Errorf("the refusal has another reason: %v", err)
				}
				return
			}
			expect(t, "The object itself is valid.", "", create(t, as(t, user), ns, configMap(name, labelled+", kubeadmiral.io/override-policy-name: "+name, "")))
			until(t, "the override fails", func() (bool, string) {
				is := condition(get(t, "hub", "propagations.refract.dev", ns, name+".configmaps"), "Synced", "reason")
				return is == "OverrideFailed" || is == "InvalidPolicy", is
			})
			everywhere(t, "configmap", ns, name, []string{"absent", "absent"})
		})
	}
}

// TestCopyKeepsItsIdentity: the labels and annotations of an object on the hub cannot make its copies belong to another
// object.
func TestCopyKeepsItsIdentity(t *testing.T) {
	t.Parallel()
	ns, others, user := tenants(t)
	theirs := get(t, "member-1", "configmap", others, "theirs")
	source := harness.Field(theirs, "metadata", "annotations", "refract.dev/source")
	annotations := "refract.dev/source: " + source + ", refract.dev/applied: '0', refract.dev/created-by: x, refract.dev/adopted: 'true'"
	expect(t, "Users may write any annotation.", "", create(t, as(t, user), ns, configMap("mine", labelled+", kubeadmiral.io/managed: 'true'", annotations)))
	everywhere(t, "configmap", ns, "mine", []string{"1", "1"}, "data", "size")
	copied := get(t, "member-1", "configmap", ns, "mine")
	if got := harness.Field(copied, "metadata", "annotations", "refract.dev/source"); got == source || !strings.HasSuffix(got, "/configmaps/"+ns+"/mine") {
		t.Errorf("the copy claims to come from %q", got)
	}
	for _, key := range []string{"refract.dev/created-by", "refract.dev/adopted"} {
		if got := harness.Field(copied, "metadata", "annotations", key); got != "" {
			t.Errorf("the copy has annotation %s: %q", key, got)
		}
	}
	if got := harness.Field(copied, "metadata", "ownerReferences"); got != "" {
		t.Errorf("the copy has owners: %s", got)
	}
	// On the hub, an owner in another namespace has no effect; copies on members have no owners.
	owned := strings.Replace(configMap("owned", labelled, ""), "annotations: {}", "ownerReferences: [{apiVersion: v1, kind: ServiceAccount, name: default, uid: "+
		harness.Field(get(t, "hub", "serviceaccount", ns, "default"), "metadata", "uid")+"}]", 1)
	expect(t, "Users may write owners.", "", create(t, as(t, user), ns, owned))
	everywhere(t, "configmap", ns, "owned", []string{"1", "1"}, "data", "size")
	for _, cluster := range env.Members {
		if got := harness.Field(get(t, cluster, "configmap", ns, "owned"), "metadata", "ownerReferences"); got != "" {
			t.Errorf("the copy on %s has owners: %s", cluster, got)
		}
	}
}

// TestAdoption: adoption takes over an existing object only if it has the namespace and name of the hub's object and is
// not a copy of another object.
func TestAdoption(t *testing.T) {
	t.Parallel()
	ns, _, user := tenants(t)
	given(t, "member-1", "", "{apiVersion: v1, kind: Namespace, metadata: {name: "+ns+"}}")
	const elsewhere = "refract.dev/source: 11111111-1111-1111-1111-111111111111/22222222-2222-2222-2222-222222222222/configmaps/"
	given(t, "member-1", ns, configMap("foreign", "kubeadmiral.io/managed: 'true'", elsewhere+ns+"/foreign"))
	given(t, "member-1", ns, configMap("unasked", "", ""))
	given(t, "member-1", ns, configMap("asked", "", ""))
	const adopt = `kubeadmiral.io/conflict-resolution: adopt, kubeadmiral.io/clusters-to-adopt: '{"regexp":".*"}'`
	for name, annotations := range map[string]string{"foreign": adopt, "unasked": "", "asked": adopt} {
		expect(t, "Users may write the annotation.", "", create(t, as(t, user), ns, strings.Replace(configMap(name, labelled, annotations), `"1"`, `"2"`, 1)))
	}
	everywhere(t, "configmap", ns, "asked", []string{"2", "2"}, "data", "size")
	for _, name := range []string{"foreign", "unasked"} {
		everywhere(t, "configmap", ns, name, []string{"1", "2"}, "data", "size")
		eventually(t, "the reason of "+name, "AlreadyExists", func() string {
			return condition(get(t, "hub", "propagations.refract.dev", ns, name+".configmaps"), "Synced", "reason")
		})
	}
}

// TestClusterScopedTargets: the user of a namespace cannot affect cluster-scoped objects.
func TestClusterScopedTargets(t *testing.T) {
	t.Parallel()
	ns, _, user := tenants(t)
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"kubeadmiral.io/cluster-propagation-policy-name":"x"}}}`))
	for _, o := range []client.Object{
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}}, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
	} {
		expect(t, "RBAC forbids it.", "forbidden", as(t, user).Patch(t.Context(), o, label))
	}
	// A policy of a namespace has no effect on a cluster-scoped object, even if the object's label names it.
	given(t, "hub", "", `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: `+ns+`}
spec: {schedulingMode: Duplicate}
---
apiVersion: v1
kind: Namespace
metadata: {name: `+ns+`-scoped, labels: {kubeadmiral.io/cluster-propagation-policy-name: `+ns+`, kubeadmiral.io/override-policy-name: mine}}
`)
	t.Cleanup(func() {
		remove(t, "hub", "namespace", "", ns+"-scoped")
		remove(t, "hub", "clusterpropagationpolicy.core.kubeadmiral.io", "", ns)
	})
	const policy = `{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: mine},
		spec: {overrideRules: [{overriders: {labels: [{operator: addIfAbsent, value: {taken: over}}]}}]}}`
	expect(t, "The policy itself is valid.", "", create(t, as(t, user), ns, policy))
	eventually(t, "condition Accepted of the policy", "True", func() string {
		return condition(get(t, "hub", "overridepolicies.core.kubeadmiral.io", ns, "mine"), "Accepted", "status")
	})
	later := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"later":"yes"}}}`))
	if err := clients["hub"].Patch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns + "-scoped"}}, later); err != nil {
		t.Fatal(err)
	}
	for _, cluster := range env.Members {
		eventually(t, "the namespace on "+cluster, "yes ", func() string {
			u := get(t, cluster, "namespace", "", ns+"-scoped")
			return harness.Field(u, "metadata", "labels", "later") + " " + strings.TrimPrefix(harness.Field(u, "metadata", "labels", "taken"), "absent")
		})
	}
}

// TestReportsAndClustersAreNotTheirs: users of a namespace cannot write Refract's reports, or the connections to
// members.
func TestReportsAndClustersAreNotTheirs(t *testing.T) {
	t.Parallel()
	ns, _, user := tenants(t)
	for _, what := range []struct{ verb, resource, ns string }{
		{"create", "propagations.refract.dev", ns}, {"patch", "propagations.refract.dev", ns}, {"patch", "propagations.refract.dev/status", ns},
		{"delete", "propagations.refract.dev", ns}, {"create", "propagationpolicies.core.kubeadmiral.io", ns},
		{"patch", "federatedclusters.core.kubeadmiral.io", ""},
		{"create", "clusterpropagationpolicies.core.kubeadmiral.io", ""}, {"create", "clusteroverridepolicies.core.kubeadmiral.io", ""},
		{"get", "secrets", system}, {"create", "secrets", system}, {"patch", "leases.coordination.k8s.io", system},
		{"patch", "validatingadmissionpolicies.admissionregistration.k8s.io", ""},
	} {
		if may(t, "hub", user, what.verb, what.resource, what.ns) {
			t.Errorf("may %s %s in namespace %q? want no, got yes", what.verb, what.resource, what.ns)
		}
	}
}
