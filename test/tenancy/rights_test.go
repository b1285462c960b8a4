package tenancy

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// TestDocumentedRightsAreEnough: with the roles of config/rbac everything works
// that an object goes through.
func TestDocumentedRightsAreEnough(t *testing.T) {
	ns, _ := namespace(t)
	const manifest = `
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: web}
spec:
  overrideRules:
  - targetClusters: {clusters: [member-2]}
    overriders: {jsonpatch: [{path: /data/size, value: small}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, labels: {kubeadmiral.io/propagation-policy-name: everywhere, kubeadmiral.io/override-policy-name: web}}
data: {size: large}
---
apiVersion: v1
kind: Secret
metadata: {name: web, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
stringData: {key: open-sesame}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
spec:
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: i}]}}
`
	do(t, "hub", manifest, "apply", "-n", ns, "-f", "-")
	everywhere(t, "configmap", ns, "web", []string{"large", "small"}, "data", "size")
	everywhere(t, "secret", ns, "web", []string{"b3Blbi1zZXNhbWU=", "b3Blbi1zZXNhbWU="}, "data", "key")
	everywhere(t, "deployment", ns, "web", []string{"web", "web"}, "metadata", "name")
	eventually(t, "the Propagation of the Deployment", "True", func() string {
		return condition(get(t, "hub", "propagations.refract.dev", ns, "web.deployments.apps"), "Synced", "status")
	})
	eventually(t, "the policy", "True", func() string {
		return condition(get(t, "hub", "overridepolicies.core.kubeadmiral.io", ns, "web"), "Accepted", "status")
	})
	until(t, "there is an event", func() (bool, string) {
		out := do(t, "hub", "", "get", "events.events.k8s.io", "-n", ns, "-o", "name")
		return strings.TrimSpace(out) != "", out
	})
	for _, name := range shared.Members {
		if got := condition(get(t, "hub", "federatedclusters", "", name), "Ready", "status"); got != "True" {
			t.Errorf("cluster %s: condition Ready is %q", name, got)
		}
	}

	do(t, "hub", "", "patch", "configmap", "web", "-n", ns, "--type=merge", `-p={"data":{"size":"huge"}}`)
	everywhere(t, "configmap", ns, "web", []string{"huge", "small"}, "data", "size")
	do(t, "member-1", "", "delete", "configmap", "web", "-n", ns)
	everywhere(t, "configmap", ns, "web", []string{"huge", "small"}, "data", "size")
	do(t, "hub", "", "delete", "configmap/web", "secret/web", "deployment/web", "-n", ns)
	for _, kind := range []string{"configmap", "secret", "deployment"} {
		everywhere(t, kind, ns, "web", []string{"absent", "absent"})
	}
	nothingForbidden(t, "system:serviceaccount:"+system+":refract")
}

// nothingForbidden fails the test if an API server has refused the user something
// that it asked for.
func nothingForbidden(t *testing.T, user string) {
	t.Helper()
	log, err := os.ReadFile(shared.Log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "forbidden: User") && strings.Contains(line, user+`\"`) {
			t.Errorf("a right is missing: %s", line)
		}
	}
}

// TestCustomResourcesTakeARule: a type of one's own wants a rule on the members, and
// nothing on the hub.
func TestCustomResourcesTakeARule(t *testing.T) {
	ns, _ := namespace(t)
	const crd = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.tenancy.example.com}
spec:
  group: tenancy.example.com
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}
`
	// Taken back last: what is there must be allowed.
	restore := changeRole(t, shared.Members, func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		return append(rules, rbacv1.PolicyRule{
			APIGroups: []string{"tenancy.example.com"}, Resources: []string{"widgets"},
			Verbs: []string{"get", "list", "watch", "create", "patch", "delete"},
		})
	})
	t.Cleanup(restore)
	for _, cluster := range append([]string{"hub"}, shared.Members...) {
		do(t, cluster, crd, "apply", "-f", "-")
		do(t, cluster, "", "wait", "--for=condition=Established", "crd/widgets.tenancy.example.com")
		t.Cleanup(func() { do(t, cluster, "", "delete", "crd", "widgets.tenancy.example.com") })
	}
	do(t, "hub", "{apiVersion: tenancy.example.com/v1, kind: Widget, metadata: {name: web, labels: {"+labelled+"}}, size: 1}", "apply", "-n", ns, "-f", "-")
	everywhere(t, "widget", ns, "web", []string{"1", "1"}, "size")
}

// changeRole changes the rules of refract-member on the clusters, and returns what
// restores them.
func changeRole(t *testing.T, clusters []string, change func([]rbacv1.PolicyRule) []rbacv1.PolicyRule) (restore func()) {
	t.Helper()
	write := func(rules []rbacv1.PolicyRule) {
		patch, err := json.Marshal(map[string]any{"rules": rules})
		if err != nil {
			t.Fatal(err)
		}
		for _, cluster := range clusters {
			do(t, cluster, "", "patch", "clusterrole", "refract-member", "--type=merge", "-p", string(patch))
		}
	}
	role := &rbacv1.ClusterRole{}
	if err := json.Unmarshal([]byte(do(t, clusters[0], "", "get", "clusterrole", "refract-member", "-o", "json")), role); err != nil {
		t.Fatal(err)
	}
	write(change(role.DeepCopy().Rules))
	return func() { write(role.Rules) }
}

// without takes a verb on a resource from the rules.
func without(verb, resource string) func([]rbacv1.PolicyRule) []rbacv1.PolicyRule {
	return func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
		var out []rbacv1.PolicyRule
		for _, r := range rules {
			if !slices.Contains(r.Resources, resource) {
				out = append(out, r)
				continue
			}
			others, less := *r.DeepCopy(), *r.DeepCopy()
			others.Resources = slices.DeleteFunc(others.Resources, func(s string) bool { return s == resource })
			less.Resources = []string{resource}
			less.Verbs = slices.DeleteFunc(less.Verbs, func(s string) bool { return s == verb })
			if len(others.Resources) > 0 {
				out = append(out, others)
			}
			out = append(out, less)
		}
		return out
	}
}

// TestMissingRightIsNamed: what a member does not allow is said in the condition
// Authorized of its FederatedCluster, and other types and clusters go on.
func TestMissingRightIsNamed(t *testing.T) {
	object := func(kind, labels string) string {
		if kind == "deployment" {
			return workload(labels, "")
		}
		return fmt.Sprintf("{apiVersion: v1, kind: %s, metadata: {name: web, labels: {%s}}}", map[string]string{"secret": "Secret", "configmap": "ConfigMap"}[kind], labels)
	}
	cases := map[string]struct {
		reason, verb, resource, kind string
		// before: the copies are there when the right is taken away, and the object is
		// deleted then.
		before bool
	}{
		"PatchSecrets":      {reason: "Secrets cannot be written.", verb: "patch", resource: "secrets", kind: "secret"},
		"CreateSecrets":     {reason: "Nor be made anew: a server-side apply asks for both.", verb: "create", resource: "secrets", kind: "secret"},
		"CreateNamespaces":  {reason: "The namespace cannot be made.", verb: "create", resource: "namespaces", kind: "secret"},
		"DeleteDeployments": {reason: "The copy cannot be removed.", verb: "delete", resource: "deployments", kind: "deployment", before: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ns, _ := namespace(t)
			if tc.resource != "namespaces" {
				// One that Refract made would go with its last copy, and bare members have no
				// controller that brings that to an end.
				for _, cluster := range shared.Members {
					do(t, cluster, "", "create", "namespace", ns)
				}
			}
			if tc.before {
				do(t, "hub", object(tc.kind, labelled), "apply", "-n", ns, "-f", "-")
				everywhere(t, tc.kind, ns, "web", []string{"web", "web"}, "metadata", "name")
			}
			restore := changeRole(t, []string{"member-2"}, without(tc.verb, tc.resource))
			t.Cleanup(restore)
			allowed(t, "member-2", "system:serviceaccount:"+system+":refract-member", "no", tc.verb, tc.resource, "-n", ns)
			there, gone := []string{"web", "absent"}, []string{"web", "web"}
			if tc.before {
				do(t, "hub", "", "delete", tc.kind, "web", "-n", ns)
				there, gone = []string{"absent", "web"}, []string{"absent", "absent"}
			} else {
				do(t, "hub", object(tc.kind, labelled), "apply", "-n", ns, "-f", "-")
			}
			until(t, tc.reason+" The condition Authorized says so", func() (bool, string) {
				fc := get(t, "hub", "federatedclusters", "", "member-2")
				is := condition(fc, "Authorized", "status") + ": " + condition(fc, "Authorized", "message")
				return strings.HasPrefix(is, "False: ") && strings.Contains(is, tc.verb+" "+tc.resource), is
			})
			everywhere(t, tc.kind, ns, "web", there, "metadata", "name")
			if tc.resource != "namespaces" {
				do(t, "hub", object("configmap", labelled), "apply", "-n", ns, "-f", "-")
				everywhere(t, "configmap", ns, "web", []string{"web", "web"}, "metadata", "name")
			}
			restore()
			everywhere(t, tc.kind, ns, "web", gone, "metadata", "name")
			until(t, "nothing is missing any more", func() (bool, string) {
				fc := get(t, "hub", "federatedclusters", "", "member-2")
				is := condition(fc, "Authorized", "status")
				return is == "True", is + ": " + condition(fc, "Authorized", "message")
			})
		})
	}
}

// TestUserRoles: who may edit or view a namespace may do the same to what is
// Refract's there, and does not decide where things go.
func TestUserRoles(t *testing.T) {
	ns, _ := namespace(t)
	for _, role := range []string{"edit", "view"} {
		do(t, "hub", "", "create", "rolebinding", role, "--clusterrole="+role, "--user="+role+"-of-"+ns, "-n", ns)
	}
	cases := []struct {
		role, verb, resource string
		want                 bool
	}{
		{"edit", "create", "overridepolicies.core.kubeadmiral.io", true},
		{"edit", "list", "propagations.refract.dev", true},
		{"edit", "list", "propagationpolicies.core.kubeadmiral.io", true},
		{"edit", "create", "propagationpolicies.core.kubeadmiral.io", false},
		{"edit", "update", "propagations.refract.dev", false},
		{"edit", "patch", "overridepolicies.core.kubeadmiral.io/status", false},
		{"view", "get", "overridepolicies.core.kubeadmiral.io", true},
		{"view", "get", "propagations.refract.dev", true},
		{"view", "create", "overridepolicies.core.kubeadmiral.io", false},
	}
	for _, tc := range cases {
		t.Run(tc.role+"/"+tc.verb+"/"+tc.resource, func(t *testing.T) {
			want := map[bool]string{true: "yes", false: "no"}[tc.want]
			resource, sub, _ := strings.Cut(tc.resource, "/")
			what := []string{tc.verb, resource, "-n", ns}
			if sub != "" {
				what = append(what, "--subresource="+sub)
			}
			allowed(t, "hub", tc.role+"-of-"+ns, want, what...) // The aggregation of roles is a controller's work, too.
		})
	}
}
