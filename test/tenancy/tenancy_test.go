package tenancy

import (
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// tenants makes two namespaces for a test: one of the user, and one of others, with
// objects that the user must not affect. Everything outside the first is compared
// with how it was when the test ends.
func tenants(t *testing.T) (ns, others, user string) {
	t.Helper()
	ns, user = namespace(t)
	others = "others-" + ns
	do(t, "hub", "", "create", "namespace", others)
	t.Cleanup(func() { do(t, "hub", "", "delete", "namespace", others, "--wait=false") })
	do(t, "hub", strings.ReplaceAll(author, "USER", "somebody-else"), "apply", "-n", others, "-f", "-")
	do(t, "hub", configMap("theirs", labelled, ""), "apply", "-n", others, "-f", "-")
	do(t, "hub", configMap("only-theirs", "", ""), "apply", "-n", others, "-f", "-")
	everywhere(t, "configmap", others, "theirs", []string{"1", "1"}, "data", "size")
	before := outside(t, ns, others)
	t.Cleanup(func() {
		// When something that was written last has arrived, so has all before it.
		do(t, "hub", configMap("last", labelled, ""), "apply", "-n", ns, "-f", "-")
		everywhere(t, "configmap", ns, "last", []string{"1", "1"}, "data", "size")
		if after := outside(t, ns, others); after != before {
			t.Errorf("something outside namespace %s is not as it was:\n--- before\n%s--- after\n%s", ns, before, after)
		}
	})
	return ns, others, user
}

// configMap returns a manifest.
func configMap(name, labels, annotations string) string {
	return fmt.Sprintf("{apiVersion: v1, kind: ConfigMap, metadata: {name: %s, labels: {%s}, annotations: {%s}}, data: {size: \"1\"}}", name, labels, annotations)
}

// outside lists what the members hold that a user of a namespace could be after,
// with versions: of others, of the clusters, and of namespaces that tests do not
// make.
func outside(t *testing.T, ns, others string) string {
	t.Helper()
	const columns = "-o=custom-columns=KIND:.kind,NS:.metadata.namespace,NAME:.metadata.name,VERSION:.metadata.resourceVersion,UID:.metadata.uid"
	var all strings.Builder
	for _, cluster := range shared.Members {
		fmt.Fprintf(&all, "%s\n", cluster)
		for _, in := range []string{others, "kube-system", "default", system} {
			all.WriteString(do(t, cluster, "", "get", "configmaps,secrets,serviceaccounts,deployments,roles,rolebindings", "-n", in, "--no-headers", columns))
		}
		for line := range strings.Lines(do(t, cluster, "", "get", "clusterroles,clusterrolebindings,namespaces", "--no-headers", columns)) {
			if f := strings.Fields(line); f[0] != "Namespace" && f[2] != "refract-member" {
				all.WriteString(line)
			}
		}
		for line := range strings.Lines(do(t, cluster, "", "get", "configmaps", "-A", "--no-headers", columns)) {
			if f := strings.Fields(line); f[1] != ns && strings.HasPrefix(f[1], ns) {
				all.WriteString(line)
			}
		}
	}
	return all.String()
}

// TestAnnotationsDecideNothing: KubeAdmiral's annotations by which an object's
// author steps over the policy are not heeded.
func TestAnnotationsDecideNothing(t *testing.T) {
	ns, _, user := tenants(t)
	for name, annotation := range map[string]string{
		"placements":  `kubeadmiral.io/placements: '[{"cluster":"member-2"}]'`,
		"tolerations": `kubeadmiral.io/tolerations: '[{"operator":"Exists"}]'`,
		"selector":    `kubeadmiral.io/clusterSelector: '{}'`,
		"affinity":    `kubeadmiral.io/affinity: '{}'`,
		"max":         `kubeadmiral.io/maxClusters: "5"`,
		"mode":        `kubeadmiral.io/scheduling-mode: Duplicate`,
		"sticky":      `kubeadmiral.io/sticky-cluster: "true"`,
	} {
		out, refused := as(t, user, configMap(name, "kubeadmiral.io/propagation-policy-name: first", annotation), "apply", "-n", ns, "-f", "-")
		if refused {
			t.Fatal(out)
		}
		everywhere(t, "configmap", ns, name, []string{"1", "absent"}, "data", "size")
	}
}

// TestPoliciesOfOthers: a label names a policy of the object's own namespace.
func TestPoliciesOfOthers(t *testing.T) {
	ns, others, user := tenants(t)
	do(t, "hub", `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: only-theirs}
spec: {schedulingMode: Duplicate}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: only-theirs}
spec: {overrideRules: [{overriders: {jsonpatch: [{path: /data/size, value: "2"}]}}]}
`, "apply", "-n", others, "-f", "-")
	expect(t, "A label's value has no slash.", "metadata.labels", user, configMap("slash", "kubeadmiral.io/propagation-policy-name: "+others+"/only-theirs", ""), "apply", "-n", ns, "-f", "-")
	expect(t, "A name can be anything.", "", user, configMap("placed", "kubeadmiral.io/propagation-policy-name: only-theirs", ""), "apply", "-n", ns, "-f", "-")
	expect(t, "A name can be anything.", "", user, configMap("changed", labelled+", kubeadmiral.io/override-policy-name: only-theirs", ""), "apply", "-n", ns, "-f", "-")
	for _, name := range []string{"placed", "changed"} {
		eventually(t, "the reason of "+name, "PolicyNotFound", func() string {
			return condition(get(t, "hub", "propagations.refract.dev", ns, name+".configmaps"), "Synced", "reason")
		})
		everywhere(t, "configmap", ns, name, []string{"absent", "absent"})
	}
}

// TestOverridesOfIdentity: an override does not make another object of a copy.
func TestOverridesOfIdentity(t *testing.T) {
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
	}
	for name, patch := range cases {
		t.Run(name, func(t *testing.T) {
			policy := "{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: " + name + "}, spec: {overrideRules: [{overriders: {jsonpatch: [" + patch + "]}}]}}"
			if out, refused := as(t, user, policy, "apply", "-n", ns, "-f", "-"); refused {
				if !strings.Contains(out, "may not be overridden") && !strings.Contains(out, "path in body should match") {
					t.Errorf("it is refused, and not for what it does: %s", out)
				}
				return
			}
			expect(t, "The object is like any other.", "", user, configMap(name, labelled+", kubeadmiral.io/override-policy-name: "+name, ""), "apply", "-n", ns, "-f", "-")
			until(t, "the override fails", func() (bool, string) {
				is := condition(get(t, "hub", "propagations.refract.dev", ns, name+".configmaps"), "Synced", "reason")
				return is == "OverrideFailed" || is == "InvalidPolicy", is
			})
			everywhere(t, "configmap", ns, name, []string{"absent", "absent"})
		})
	}
}

// TestCopyKeepsItsIdentity: what a user writes on the object on the hub does not make
// its copies somebody else's.
func TestCopyKeepsItsIdentity(t *testing.T) {
	ns, others, user := tenants(t)
	theirs := get(t, "member-1", "configmap", others, "theirs")
	source := field(theirs, "metadata", "annotations", "refract.dev/source")
	annotations := "refract.dev/source: " + source + ", refract.dev/applied: '0', refract.dev/created-by: x, refract.dev/adopted: 'true'"
	expect(t, "Annotations are free.", "", user, configMap("mine", labelled+", kubeadmiral.io/managed: 'true'", annotations), "apply", "-n", ns, "-f", "-")
	everywhere(t, "configmap", ns, "mine", []string{"1", "1"}, "data", "size")
	copied := get(t, "member-1", "configmap", ns, "mine")
	if got := field(copied, "metadata", "annotations", "refract.dev/source"); got == source || !strings.HasSuffix(got, "/configmaps/"+ns+"/mine") {
		t.Errorf("the copy claims to come from %q", got)
	}
	for _, key := range []string{"refract.dev/created-by", "refract.dev/adopted"} {
		if got := field(copied, "metadata", "annotations", key); got != "" {
			t.Errorf("the copy has annotation %s: %q", key, got)
		}
	}
	if got := field(copied, "metadata", "ownerReferences"); got != "" {
		t.Errorf("the copy has owners: %s", got)
	}
	// On the hub, an owner in another namespace is none; on members there are none.
	owned := strings.Replace(configMap("owned", labelled, ""), "annotations: {}", "ownerReferences: [{apiVersion: v1, kind: ServiceAccount, name: default, uid: "+
		field(get(t, "hub", "serviceaccount", ns, "default"), "metadata", "uid")+"}]", 1)
	expect(t, "Owners are free.", "", user, owned, "apply", "-n", ns, "-f", "-")
	everywhere(t, "configmap", ns, "owned", []string{"1", "1"}, "data", "size")
	for _, cluster := range shared.Members {
		if got := field(get(t, cluster, "configmap", ns, "owned"), "metadata", "ownerReferences"); got != "" {
			t.Errorf("the copy on %s has owners: %s", cluster, got)
		}
	}
}

// TestAdoption: adoption takes over what has the object's own namespace and name, and
// belongs to nobody.
func TestAdoption(t *testing.T) {
	ns, _, user := tenants(t)
	do(t, "member-1", "", "create", "namespace", ns)
	const elsewhere = "refract.dev/source: 11111111-1111-1111-1111-111111111111/22222222-2222-2222-2222-222222222222/configmaps/"
	do(t, "member-1", configMap("foreign", "kubeadmiral.io/managed: 'true'", elsewhere+ns+"/foreign"), "create", "-n", ns, "-f", "-")
	do(t, "member-1", configMap("unasked", "", ""), "create", "-n", ns, "-f", "-")
	do(t, "member-1", configMap("asked", "", ""), "create", "-n", ns, "-f", "-")
	const adopt = `kubeadmiral.io/conflict-resolution: adopt, kubeadmiral.io/clusters-to-adopt: '{"regexp":".*"}'`
	for name, annotations := range map[string]string{"foreign": adopt, "unasked": "", "asked": adopt} {
		expect(t, "The annotation is free.", "", user, strings.Replace(configMap(name, labelled, annotations), `"1"`, `"2"`, 1), "apply", "-n", ns, "-f", "-")
	}
	everywhere(t, "configmap", ns, "asked", []string{"2", "2"}, "data", "size")
	for _, name := range []string{"foreign", "unasked"} {
		everywhere(t, "configmap", ns, name, []string{"1", "2"}, "data", "size")
		eventually(t, "the reason of "+name, "AlreadyExists", func() string {
			return condition(get(t, "hub", "propagations.refract.dev", ns, name+".configmaps"), "Synced", "reason")
		})
	}
}

// TestClusterScopedTargets: the user of a namespace has no way to what has none.
func TestClusterScopedTargets(t *testing.T) {
	ns, _, user := tenants(t)
	expect(t, "RBAC says so.", "forbidden", user, "", "label", "clusterrole", "view", "kubeadmiral.io/cluster-propagation-policy-name=x")
	expect(t, "RBAC says so.", "forbidden", user, "", "label", "namespace", ns, "kubeadmiral.io/cluster-propagation-policy-name=x")
	// A policy of a namespace has no say about what has none, even if the label is there.
	t.Cleanup(changeRole(t, shared.Members, func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		return append(rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"patch"}})
	}))
	do(t, "hub", `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: ClusterPropagationPolicy
metadata: {name: `+ns+`}
spec: {schedulingMode: Duplicate}
---
apiVersion: v1
kind: Namespace
metadata: {name: `+ns+`-scoped, labels: {kubeadmiral.io/cluster-propagation-policy-name: `+ns+`, kubeadmiral.io/override-policy-name: mine}}
`, "apply", "-f", "-")
	t.Cleanup(func() {
		do(t, "hub", "", "delete", "namespace/"+ns+"-scoped", "clusterpropagationpolicy.core.kubeadmiral.io/"+ns, "--wait=false")
	})
	const policy = `{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: mine},
		spec: {overrideRules: [{overriders: {labels: [{operator: addIfAbsent, value: {taken: over}}]}}]}}`
	expect(t, "The policy is a policy like others.", "", user, policy, "apply", "-n", ns, "-f", "-")
	for _, cluster := range shared.Members {
		eventually(t, "the namespace on "+cluster, ns+"-scoped ", func() string {
			u := get(t, cluster, "namespace", "", ns+"-scoped")
			return field(u, "metadata", "name") + " " + strings.TrimPrefix(field(u, "metadata", "labels", "taken"), "absent")
		})
	}
}

// TestReportsAndClustersAreNotTheirs: what Refract remembers, and how members are
// reached, is out of reach of the users of a namespace.
func TestReportsAndClustersAreNotTheirs(t *testing.T) {
	ns, _, user := tenants(t)
	for _, args := range []string{
		"create propagations.refract.dev -n " + ns, "patch propagations.refract.dev/status -n " + ns, "delete propagations.refract.dev -n " + ns,
		"create propagationpolicies.core.kubeadmiral.io -n " + ns, "patch federatedclusters.core.kubeadmiral.io",
		"create clusterpropagationpolicies.core.kubeadmiral.io", "create clusteroverridepolicies.core.kubeadmiral.io",
		"get secrets -n " + system, "create secrets -n " + system, "patch leases -n " + system,
		"patch validatingadmissionpolicies.admissionregistration.k8s.io",
	} {
		out, _ := shared.Kubectl("hub", "", append([]string{"auth", "can-i", "--as=" + user}, strings.Fields(args)...)...) // kubectl exits with 1 to say no.
		if got := strings.TrimSpace(out); got != "no" {
			t.Errorf("may %s? want no, got %q", args, got)
		}
	}
}
