package adversary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
)

// TestDocumentedRightsAreEnough: the roles of config/rbac are sufficient for the whole life of an object.
func TestDocumentedRightsAreEnough(t *testing.T) {
	t.Parallel()
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
	given(t, "hub", ns, manifest)
	everywhere(t, "configmap", ns, "web", []string{"large", "small"}, "data", "size")
	everywhere(t, "secret", ns, "web", []string{"b3Blbi1zZXNhbWU=", "b3Blbi1zZXNhbWU="}, "data", "key")
	everywhere(t, "deployment", ns, "web", []string{"web", "web"}, "metadata", "name")
	eventually(t, "the Propagation of the Deployment", "True", func() string {
		return condition(get(t, "hub", "propagations.refract.dev", ns, "web.deployments.apps"), "Synced", "status")
	})
	eventually(t, "the policy", "True", func() string {
		return condition(get(t, "hub", "overridepolicies.core.kubeadmiral.io", ns, "web"), "Accepted", "status")
	})
	harness.Eventually(t, "an event exists", func(ctx context.Context) error {
		var events eventsv1.EventList
		if err := clients["hub"].List(ctx, &events, client.InNamespace(ns)); err != nil {
			return err
		}
		if len(events.Items) == 0 {
			return errors.New("there is no event")
		}
		return nil
	})
	for _, name := range env.Members {
		if got := condition(get(t, "hub", "federatedclusters", "", name), "Ready", "status"); got != "True" {
			t.Errorf("cluster %s: condition Ready is %q", name, got)
		}
	}

	web := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: ns}}
	if err := clients["hub"].Patch(t.Context(), web, client.RawPatch(types.MergePatchType, []byte(`{"data":{"size":"huge"}}`))); err != nil {
		t.Fatal(err)
	}
	everywhere(t, "configmap", ns, "web", []string{"huge", "small"}, "data", "size")
	remove(t, "member-1", "configmap", ns, "web")
	everywhere(t, "configmap", ns, "web", []string{"huge", "small"}, "data", "size")
	for _, kind := range []string{"configmap", "secret", "deployment"} {
		remove(t, "hub", kind, ns, "web")
	}
	for _, kind := range []string{"configmap", "secret", "deployment"} {
		everywhere(t, kind, ns, "web", []string{"absent", "absent"})
	}
	nothingForbidden(t, "system:serviceaccount:"+system+":refract")
}

// nothingForbidden fails the test if an API server has refused a request of the user.
func nothingForbidden(t *testing.T, user string) {
	t.Helper()
	log, err := os.ReadFile(controllers.Log)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "forbidden: User") && strings.Contains(line, user+`\"`) {
			t.Errorf("a right is missing: %s", line)
		}
	}
}

// TestCustomResourcesTakeARule: a custom resource needs a rule on the members, and none on the hub.
func TestCustomResourcesTakeARule(t *testing.T) {
	t.Parallel()
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
	// The cleanup of the rule runs last: copies that exist still need it.
	grant(t, rbacv1.PolicyRule{
		APIGroups: []string{"tenancy.example.com"}, Resources: []string{"widgets"},
		Verbs: []string{"get", "list", "watch", "create", "patch", "delete"},
	})
	for _, cluster := range append([]string{"hub"}, env.Members...) {
		given(t, cluster, "", crd)
		t.Cleanup(func() {
			remove(t, cluster, "crd", "", "widgets.tenancy.example.com")
			eventually(t, "the type on "+cluster, "absent", func() string { return harness.Field(get(t, cluster, "crd", "", "widgets.tenancy.example.com")) })
		})
		eventually(t, "the type on "+cluster, "True", func() string {
			return condition(get(t, cluster, "crd", "", "widgets.tenancy.example.com"), "Established", "status")
		})
	}
	given(t, "hub", ns, "{apiVersion: tenancy.example.com/v1, kind: Widget, metadata: {name: web, labels: {"+labelled+"}}, size: 1}")
	everywhere(t, "widget", ns, "web", []string{"1", "1"}, "size")
}

// changeRole changes the rules of refract-member on a cluster, and returns its former rules. Parallel tests may change
// them at the same time.
func changeRole(t *testing.T, cluster string, change func([]rbacv1.PolicyRule) []rbacv1.PolicyRule) (before []rbacv1.PolicyRule) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // A cleanup may call changeRole.
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "refract-member"}}
		if err := clients[cluster].Get(ctx, client.ObjectKeyFromObject(role), role); err != nil {
			return err
		}
		before = role.DeepCopy().Rules
		role.Rules = change(role.Rules)
		return clients[cluster].Update(ctx, role)
	})
	if err != nil {
		t.Fatal(err)
	}
	return before
}

// grant adds a rule to refract-member on all members until the test ends.
func grant(t *testing.T, rule rbacv1.PolicyRule) {
	t.Helper()
	for _, cluster := range env.Members {
		changeRole(t, cluster, func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule { return append(rules, rule) })
		t.Cleanup(func() {
			changeRole(t, cluster, func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
				return slices.DeleteFunc(rules, func(r rbacv1.PolicyRule) bool { return reflect.DeepEqual(r, rule) })
			})
		})
	}
}

// without returns a function that removes a verb on a resource from rules.
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

// TestMissingRightIsNamed: the condition Authorized of a FederatedCluster names a right that is missing on the member,
// and other types and clusters are not affected. The test is not parallel, since the right is missing for all tests.
func TestMissingRightIsNamed(t *testing.T) {
	object := func(kind, labels string) string {
		if kind == "deployment" {
			return workload(labels, "")
		}
		return fmt.Sprintf("{apiVersion: v1, kind: %s, metadata: {name: web, labels: {%s}}}", map[string]string{"secret": "Secret", "configmap": "ConfigMap"}[kind], labels)
	}
	// The first member keeps all rights. On the others, each case removes a right on a different type, so the cases do
	// not affect each other.
	for _, cluster := range env.Members[1:] {
		before := changeRole(t, cluster, func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule { return rules })
		t.Cleanup(func() {
			changeRole(t, cluster, func([]rbacv1.PolicyRule) []rbacv1.PolicyRule { return before })
		})
	}
	cases := map[string]struct {
		reason, cluster, verb, resource, kind string
		// before is true if the copies exist before the right is removed; the case then deletes the object.
		before bool
	}{
		"PatchSecrets": {reason: "Secrets cannot be written.", cluster: "member-2", verb: "patch", resource: "secrets", kind: "secret"},
		"CreateSecrets": {
			reason:  "Secrets cannot be created: a server-side apply needs both rights.",
			cluster: "member-3", verb: "create", resource: "secrets", kind: "secret",
		},
		"CreateNamespaces":  {reason: "The namespace cannot be created.", cluster: "member-2", verb: "create", resource: "namespaces", kind: "configmap"},
		"DeleteDeployments": {reason: "The copy cannot be removed.", cluster: "member-3", verb: "delete", resource: "deployments.apps", kind: "deployment", before: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // The cases spend most of their time waiting for the next check of the cluster.
			ns, _ := namespace(t)
			if tc.resource != "namespaces" {
				// Another case removes the right to create namespaces.
				for _, cluster := range env.Members {
					given(t, cluster, "", "{apiVersion: v1, kind: Namespace, metadata: {name: "+ns+"}}")
				}
			}
			if tc.before {
				given(t, "hub", ns, object(tc.kind, labelled))
				everywhere(t, tc.kind, ns, "web", []string{"web", "web", "web"}, "metadata", "name")
			}
			resource, group, _ := strings.Cut(tc.resource, ".")
			restore := func() {
				changeRole(t, tc.cluster, func(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
					return append(rules, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{tc.verb}})
				})
			}
			t.Cleanup(restore) // The other cases need the right.
			changeRole(t, tc.cluster, without(tc.verb, resource))
			allowed(t, tc.cluster, "system:serviceaccount:"+system+":refract-member", false, tc.verb, tc.resource, ns)
			there, gone := []string{"web", "absent"}, []string{"web", "web"}
			if tc.before {
				remove(t, "hub", tc.kind, ns, "web")
				there, gone = []string{"absent", "web"}, []string{"absent", "absent"}
			} else {
				given(t, "hub", ns, object(tc.kind, labelled))
			}
			until(t, tc.reason+" Condition Authorized names the right", func() (bool, string) {
				fc := get(t, "hub", "federatedclusters", "", tc.cluster)
				is := condition(fc, "Authorized", "status") + ": " + condition(fc, "Authorized", "message")
				return strings.HasPrefix(is, "False: ") && strings.Contains(is, tc.verb+" "+resource), is
			})
			names := func(kind string, want []string) {
				t.Helper()
				eventually(t, kind+" on member-1 and "+tc.cluster, strings.Join(want, " "), func() string {
					name := func(cluster string) string {
						return harness.Field(get(t, cluster, kind, ns, "web"), "metadata", "name")
					}
					return name("member-1") + " " + name(tc.cluster)
				})
			}
			names(tc.kind, there)
			if tc.resource != "namespaces" {
				given(t, "hub", ns, object("configmap", labelled))
				names("configmap", []string{"web", "web"})
			}
			restore()
			names(tc.kind, gone)
			until(t, "no right is missing any more", func() (bool, string) {
				fc := get(t, "hub", "federatedclusters", "", tc.cluster)
				is := condition(fc, "Authorized", "status")
				return is == "True", is + ": " + condition(fc, "Authorized", "message")
			})
		})
	}
}

// TestUserRoles: users with the role edit or view of a namespace may read Refract's objects there. Only edit may write
// override policies. Neither role may write propagation policies, Propagations or statuses.
func TestUserRoles(t *testing.T) {
	t.Parallel()
	ns, _ := namespace(t)
	for _, role := range []string{"edit", "view"} {
		given(t, "hub", ns, fmt.Sprintf(`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: %[1]s},
			roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s}, subjects: [{kind: User, name: %[1]s-of-%[2]s}]}`, role, ns))
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
			allowed(t, "hub", tc.role+"-of-"+ns, tc.want, tc.verb, tc.resource, ns) // Waits, because a controller of the hub aggregates the roles.
		})
	}
}
