package adversary

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"

	"refract.dev/test/harness"
)

// roleUser is somebody whom the roles of config/rbac are for.
type roleUser string

// The accounts of the programs, and a user who looks after the fleet.
const (
	ofHub        roleUser = "system:serviceaccount:kube-admiral-system:refract"
	ofInjection  roleUser = "system:serviceaccount:kube-admiral-system:refract-injection"
	ofConversion roleUser = "system:serviceaccount:kube-admiral-system:refract-conversion"
	ofMember     roleUser = "system:serviceaccount:kube-admiral-system:refract-member"
	ofFleet      roleUser = "looks-after-the-fleet"
)

// roleRight is something that a user may do, or may not: a verb, and resource.group
// with /subresource, or a path; in a namespace if there is one, and by name if there
// is one.
type roleRight struct{ reason, verb, resource, namespace, name string }

// roleRights are what must be allowed, since it is made use of.
var roleRights = map[roleUser][]roleRight{
	ofHub: {
		{"What is labelled is seen, of any type.", "list", "deployments.apps", "", ""},
		{"And followed.", "watch", "widgets.example.com", "", ""},
		{"What follows is read by a list of its name.", "list", "secrets", "shop", "db"},
		{"So is the type that copies were of.", "list", "customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.com"},
		{"Which cluster it is.", "get", "namespaces", "", "kube-system"},
		{"Which labels a namespace has, and whether it is being deleted.", "get", "namespaces", "", "shop"},
		{"Whether a type is being deleted.", "get", "customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.com"},
		{"What its author may read is noted on a policy as it is.", "get", "overridepolicies.core.kubeadmiral.io", "shop", "web"},
		{"Whether its types are served.", "get", "customresourcedefinitions.apiextensions.k8s.io", "", "federatedclusters.core.kubeadmiral.io"},
		{"It keeps its types.", "patch", "customresourcedefinitions.apiextensions.k8s.io", "", "propagations.refract.dev"},
		{"It makes them: a server-side apply asks with the name.", "create", "customresourcedefinitions.apiextensions.k8s.io", "", "propagations.refract.dev"},
		{"It has the API server ask.", "create", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-policies"},
		{"It sees what others made of that.", "get", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-policies"},
		{"And takes it back.", "update", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-injection-policies"},
		{"It keeps its admission policies.", "patch", "validatingadmissionpolicies.admissionregistration.k8s.io", "", "refract-followers"},
		{"It reports.", "create", "propagations.refract.dev", "shop", ""},
		{"It goes on with a report after a restart.", "get", "propagations.refract.dev", "shop", "web.deployments.apps"},
		{"It reports on cluster-scoped objects.", "update", "clusterpropagations.refract.dev/status", "", "web"},
		{"It says what a policy comes to.", "patch", "overridepolicies.core.kubeadmiral.io/status", "shop", "web"},
		{"It holds a cluster back until its copies have gone.", "patch", "federatedclusters.core.kubeadmiral.io", "", "member-1"},
		{"It tells what happened.", "create", "events.events.k8s.io", "shop", ""},
		{"It asks whether an author may read what they name.", "create", "subjectaccessreviews.authorization.k8s.io", "", ""},
		{"It warns of what is not there, by a list of its name.", "list", "configmaps", "shop", "db"},
		{"One replica leads.", "update", "leases.coordination.k8s.io", "kube-admiral-system", "refract-leader"},
		{"It makes certificates: RBAC cannot say of which name.", "create", "secrets", "kube-admiral-system", ""},
		{"It renews them.", "update", "secrets", "kube-admiral-system", "refract-webhook"},
		{"It reads what it has encrypted.", "get", "secrets", "kube-admiral-system", "refract-revisions"},
	},
	ofInjection: {
		{"It knows the policies.", "watch", "serviceinjectionpolicies.refract.dev", "", ""},
		{"It reports.", "patch", "serviceinjectionpolicies.refract.dev/status", "shop", "db"},
		{"It looks whether a Secret has the keys that are named.", "get", "secrets", "shop", "db"},
		{"It tries a pod out.", "create", "pods", "shop", ""},
		{"It has workloads recreate pods.", "patch", "deployments.apps", "shop", "web"},
		{"It recreates pods of others.", "create", "pods/eviction", "shop", "web-0"},
		{"It has the API server ask.", "patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-injection"},
		{"One replica leads.", "update", "leases.coordination.k8s.io", "kube-admiral-system", "refract-injection"},
		{"It renews its certificates.", "update", "secrets", "kube-admiral-system", "refract-webhook"},
	},
	ofConversion: {
		{"It knows the policies.", "watch", "conversionpolicies.refract.dev", "", ""},
		{"It reports.", "patch", "conversionpolicies.refract.dev/status", "", "pools"},
		{"It has the API server ask, for the definition that a policy names.", "patch", "customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.com"},
		{"It has the API server ask about policies.", "update", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-conversion"},
		{"One replica leads.", "update", "leases.coordination.k8s.io", "kube-admiral-system", "refract-conversion"},
		{"It renews its certificates.", "update", "secrets", "kube-admiral-system", "refract-conversion-webhook"},
	},
	ofMember: {
		{"Whether the cluster serves.", "get", "/readyz", "", ""},
		{"Copies are written.", "patch", "deployments.apps", "shop", "web"},
		{"And removed.", "delete", "secrets", "shop", "db"},
		{"A namespace is made for them.", "create", "namespaces", "", ""},
		{"With the labels that it has on the hub.", "patch", "namespaces", "", "shop"},
		{"Whether it is empty, of whatever type.", "list", "widgets.example.com", "shop", ""},
	},
	ofFleet: {
		{"Clusters join.", "create", "federatedclusters.core.kubeadmiral.io", "", ""},
		{"Where all goes.", "update", "clusterpropagationpolicies.core.kubeadmiral.io", "", "everywhere"},
	},
}

// noRoleRights are what no program may do, whatever else it may: each is a way to
// become somebody else.
var noRoleRights = []roleRight{
	{"A kubelet runs any command for who may.", "get", "nodes/proxy", "", "node-1"},
	{"The same.", "create", "nodes/proxy", "", "node-1"},
	{"Logs of a node tell of everybody.", "get", "nodes/log", "", "node-1"},
	{"A command by WebSocket begins with a get.", "get", "pods/exec", "shop", "web-0"},
	{"And by SPDY with a create.", "create", "pods/exec", "shop", "web-0"},
	{"So does looking on.", "get", "pods/attach", "shop", "web-0"},
	{"The same.", "create", "pods/attach", "shop", "web-0"},
	{"What listens on localhost asks nobody who they are.", "get", "pods/portforward", "shop", "web-0"},
	{"The same.", "create", "pods/portforward", "shop", "web-0"},
	{"The same, by HTTP.", "get", "pods/proxy", "shop", "web-0"},
	{"NetworkPolicies let the API server in.", "get", "services/proxy", "shop", "web"},
	{"The same.", "create", "services/proxy", "shop", "web"},
	{"Programs say more in their logs than they should.", "get", "pods/log", "shop", "web-0"},
	{"A container added is a command in a pod.", "patch", "pods/ephemeralcontainers", "shop", "web-0"},
	{"Who may place a pod gets by every scheduler's rule.", "create", "pods/binding", "shop", "web-0"},
	{"A token is the account.", "create", "serviceaccounts/token", "kube-system", "clusterrole-aggregation-controller"},
	{"Those of our own namespace have other rights.", "create", "serviceaccounts/token", "kube-admiral-system", "refract-conversion"},
	{"Whoever it likes.", "impersonate", "users", "", "admin"},
	{"Cluster-admin, in short.", "impersonate", "groups", "", "system:masters"},
	{"The same.", "impersonate", "serviceaccounts", "kube-system", "clusterrole-aggregation-controller"},
	{"Rights beyond one's own.", "escalate", "clusterroles.rbac.authorization.k8s.io", "", "refract-hub"},
	{"The same, in a namespace.", "escalate", "roles.rbac.authorization.k8s.io", "kube-system", "any"},
	{"Those of others.", "bind", "clusterroles.rbac.authorization.k8s.io", "", "cluster-admin"},
	{"Rights are for people to give.", "create", "clusterrolebindings.rbac.authorization.k8s.io", "", ""},
	{"The same, in a namespace.", "create", "rolebindings.rbac.authorization.k8s.io", "kube-system", ""},
	{"And to widen.", "patch", "clusterroles.rbac.authorization.k8s.io", "", "refract-hub"},
	{"The same, in a namespace.", "patch", "roles.rbac.authorization.k8s.io", "kube-admiral-system", "refract-hub"},
	{"A certificate is a user.", "update", "certificatesigningrequests.certificates.k8s.io/approval", "", "mine"},
	{"The same.", "approve", "signers.certificates.k8s.io", "", "kubernetes.io/kube-apiserver-client"},
	{"The same.", "sign", "signers.certificates.k8s.io", "", "kubernetes.io/kube-apiserver-client"},
	{"One that mutates writes all that is written, Secrets and roles.", "create", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", ""},
	{"That of another program is its own.", "patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "sidecars"},
	{"One that validates sees all that is written.", "create", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", ""},
	{"And without that of another program nobody is kept back.", "delete", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "gatekeeper"},
	{"The same.", "patch", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "gatekeeper"},
	{"The same.", "delete", "validatingadmissionpolicies.admissionregistration.k8s.io", "", "no-privileged-pods"},
	{"The same.", "patch", "validatingadmissionpolicybindings.admissionregistration.k8s.io", "", "no-privileged-pods"},
	{"Not even its own, which keep it in.", "delete", "validatingadmissionpolicybindings.admissionregistration.k8s.io", "", "refract-followers"},
	{"With a definition all of its objects go.", "delete", "customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.com"},
	{"Not even its own.", "delete", "customresourcedefinitions.apiextensions.k8s.io", "", "conversionpolicies.refract.dev"},
	{"An API is served by whoever is named.", "patch", "apiservices.apiregistration.k8s.io", "", "v1.apps"},
	{"A node is whoever says so.", "patch", "nodes", "", "node-1"},
	{"Whoever holds it stops the controllers.", "update", "leases.coordination.k8s.io", "kube-system", "kube-controller-manager"},
	{"Everything at once.", "deletecollection", "secrets", "shop", ""},
	{"Whose token somebody sent.", "create", "tokenreviews.authentication.k8s.io", "", ""},
	{"What the API server does.", "get", "/debug/pprof/profile", "", ""},
	{"And says.", "get", "/logs/kube-apiserver.log", "", ""},
}

// noRoleRightsOf are what others may, or what is nobody's but the tenants'.
var noRoleRightsOf = map[roleUser][]roleRight{
	ofHub: {
		{"A list of its name is enough.", "get", "deployments.apps", "shop", "web"},
		{"And for custom resources.", "get", "widgets.example.com", "shop", "web"},
		{"It reads; who writes is the tenant.", "patch", "deployments.apps", "shop", "web"},
		{"No pod is its own.", "create", "pods", "shop", ""},
		{"Nor an eviction.", "create", "pods/eviction", "shop", "web-0"},
		{"A list of its name is enough, for Secrets as well.", "get", "secrets", "shop", "db"},
		{"And for what policies name.", "get", "configmaps", "shop", "db"},
		{"Secrets of the system namespace are named: this one is nobody's member.", "get", "secrets", "kube-admiral-system", "other"},
		{"An empty patch reads.", "patch", "secrets", "kube-admiral-system", "other"},
		{"Secrets are the tenants'.", "create", "secrets", "shop", ""},
		{"The same.", "patch", "secrets", "shop", "db"},
		{"Credentials of members are for people to write.", "update", "secrets", "kube-admiral-system", "member-1"},
		{"And to remove.", "delete", "secrets", "kube-admiral-system", "member-1"},
		{"Where all goes is for people to say.", "update", "clusterpropagationpolicies.core.kubeadmiral.io", "", "everywhere"},
		{"And what it is made there.", "patch", "overridepolicies.core.kubeadmiral.io", "shop", "web"},
		{"And which clusters there are.", "create", "federatedclusters.core.kubeadmiral.io", "", ""},
		{"The same.", "delete", "federatedclusters.core.kubeadmiral.io", "", "member-1"},
		{"Those of other programs of ours.", "patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-injection"},
		{"Nobody has the webhook for policies taken away.", "delete", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-policies"},
		{"The labels of a namespace say what may run there.", "patch", "namespaces", "", "kube-system"},
		{"Definitions of others.", "patch", "customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.com"},
		{"New ones.", "create", "customresourcedefinitions.apiextensions.k8s.io", "", ""},
		{"Namespaces of the hub.", "delete", "namespaces", "", "shop"},
		{"The Lease of another program.", "update", "leases.coordination.k8s.io", "kube-admiral-system", "refract-injection"},
		{"A deleted Lease does not end the leader at once.", "delete", "leases.coordination.k8s.io", "kube-admiral-system", "refract-leader"},
	},
	ofInjection: {
		{"One that is named is read, and the rest is nobody's business.", "list", "secrets", "shop", ""},
		{"The same, for good.", "watch", "secrets", "", ""},
		{"Secrets are the tenants'.", "patch", "secrets", "shop", "db"},
		{"Certificates of another program.", "update", "secrets", "kube-admiral-system", "refract-conversion-webhook"},
		{"Pods are evicted, which heeds PodDisruptionBudgets.", "delete", "pods", "shop", "web-0"},
		{"An annotation takes a patch.", "update", "deployments.apps", "shop", "web"},
		{"Workloads are the tenants'.", "delete", "deployments.apps", "shop", "web"},
		{"The same.", "create", "deployments.apps", "shop", ""},
		{"Jobs are looked at.", "patch", "jobs.batch", "shop", "once"},
		{"Services are looked at.", "patch", "services", "shop", "web"},
		{"That of another program of ours.", "patch", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-conversion"},
		{"The labels of a namespace say what may run there.", "patch", "namespaces", "", "kube-system"},
		{"Definitions of others.", "patch", "customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.com"},
		{"Other namespaces than it is asked about.", "get", "namespaces", "", "shop"},
	},
	ofConversion: {
		{"It is sent what it converts, and reads nothing.", "get", "widgets.example.com", "shop", "web"},
		{"The same.", "list", "widgets.example.com", "", ""},
		{"Secrets least of all.", "get", "secrets", "shop", "db"},
		{"Those of another program.", "get", "secrets", "kube-admiral-system", "refract-webhook"},
		{"And the credentials of members.", "list", "secrets", "kube-admiral-system", ""},
		{"No pod.", "list", "pods", "shop", ""},
		{"The labels of a namespace say what may run there.", "patch", "namespaces", "", "kube-system"},
		{"A definition is for people to make.", "create", "customresourcedefinitions.apiextensions.k8s.io", "", ""},
		{"It mutates nothing.", "create", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-conversion"},
		{"Another program's Lease.", "update", "leases.coordination.k8s.io", "kube-admiral-system", "refract-injection"},
		{"A policy is for people to write.", "create", "conversionpolicies.refract.dev", "", ""},
	},
	ofMember: {
		{"A type that nobody added is not written.", "patch", "widgets.example.com", "shop", "web"},
		{"Nor read but by lists.", "get", "widgets.example.com", "shop", "web"},
		{"Definitions give power over the cluster.", "patch", "customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.com"},
		{"Pods go by their budgets, or with their workload.", "create", "pods/eviction", "shop", "web-0"},
		{"It leads nothing there.", "create", "leases.coordination.k8s.io", "kube-admiral-system", ""},
		{"Nor is there a question to ask.", "create", "subjectaccessreviews.authorization.k8s.io", "", ""},
	},
	ofFleet: {
		{"What was found out about a policy is Refract's to write.", "update", "overridepolicies.core.kubeadmiral.io/status", "shop", "web"},
		{"And about a cluster.", "patch", "federatedclusters.core.kubeadmiral.io/status", "", "member-1"},
		{"And about an object.", "patch", "propagations.refract.dev/status", "shop", "web.deployments.apps"},
		{"Credentials take another right.", "get", "secrets", "kube-admiral-system", "member-1"},
		{"So do objects.", "list", "secrets", "shop", ""},
	},
}

// TestRoles installs all manifests of config in one cluster and asks its authorizer what
// each of our accounts may do there: what it needs, and nothing that an attacker with
// its token would make more of.
func TestRoles(t *testing.T) {
	t.Parallel()
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	env := harness.New(t, harness.Topology{})
	c, err := env.Client("hub")
	if err != nil {
		t.Fatal(err)
	}
	// A namespace must be there before what is in it.
	for _, what := range []string{
		"-f=install/namespace.yaml", "-k=install", "-k=install/injection", "-k=install/conversion", "-f=rbac/member.yaml",
	} {
		option, path, _ := strings.Cut(what, "=")
		if _, err := env.Kubectl("hub", "", "apply", "--server-side", "--force-conflicts", option, filepath.Join(root, "config", path)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := env.Kubectl("hub", "", "create", "clusterrolebinding", string(ofFleet), "--clusterrole=refract-fleet", "--user="+string(ofFleet)); err != nil {
		t.Fatal(err)
	}
	may := func(ctx context.Context, user roleUser, r *roleRight) (bool, error) {
		review := r.review(user)
		err := c.Create(ctx, review)
		return review.Status.Allowed, err
	}
	for user, rights := range roleRights {
		for _, r := range rights {
			harness.Eventually(t, fmt.Sprintf("%s may %s", user, &r), func(ctx context.Context) error {
				allowed, err := may(ctx, user, &r)
				if err == nil && !allowed {
					err = fmt.Errorf("it may not. %s", r.reason)
				}
				return err
			})
		}
	}
	wantDryRunsAlone(t, env)
	// By now the authorizer knows all of the roles.
	for user := range roleRights {
		never := noRoleRights
		if user == ofFleet {
			never = nil
		}
		for _, r := range slices.Concat(never, noRoleRightsOf[user]) {
			allowed, err := may(t.Context(), user, &r)
			if err != nil {
				t.Fatal(err)
			}
			if allowed {
				t.Errorf("%s may %s. %s", user, &r, r.reason)
			}
		}
	}
}

// review asks whether a user has the right.
func (r *roleRight) review(user roleUser) *authorizationv1.SubjectAccessReview {
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: string(user), Groups: []string{"system:authenticated"},
	}}
	if strings.HasPrefix(string(user), "system:serviceaccount:") {
		review.Spec.Groups = append(review.Spec.Groups, "system:serviceaccounts", "system:serviceaccounts:kube-admiral-system")
	}
	if strings.HasPrefix(r.resource, "/") {
		review.Spec.NonResourceAttributes = &authorizationv1.NonResourceAttributes{Verb: r.verb, Path: r.resource}
		return review
	}
	resource, sub, _ := strings.Cut(r.resource, "/")
	resource, group, _ := strings.Cut(resource, ".")
	review.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{
		Verb: r.verb, Group: group, Resource: resource, Subresource: sub, Namespace: r.namespace, Name: r.name,
	}
	return review
}

// String says what the right is, in an error.
func (r *roleRight) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", r.verb, r.resource, strings.Trim(r.namespace+"/"+r.name, "/")))
}

// wantDryRunsAlone: the account that injects has the right to create pods, and creates none.
func wantDryRunsAlone(t *testing.T, env *harness.Env) {
	t.Helper()
	const pod = "{apiVersion: v1, kind: Pod, metadata: {generateName: mine-, namespace: default}, spec: {containers: [{name: a, image: a}]}}"
	if _, err := env.Kubectl("hub", "{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: default}}", "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	create := func(user roleUser, args ...string) (string, error) {
		return env.KubectlSays("hub", pod, append([]string{"create", "-f", "-", "--validate=false", "--as", string(user)}, args...)...)
	}
	harness.Eventually(t, "the API server rejects pods of Refract", func(context.Context) error {
		said, err := create(ofInjection, "--dry-run=server")
		if err != nil {
			return fmt.Errorf("want a dry run to pass, got %s", said)
		}
		said, err = create(ofInjection)
		if err == nil || !strings.Contains(said, "Refract creates pods in dry runs alone") {
			return fmt.Errorf("want the pod to be rejected, got %s", said)
		}
		return nil
	})
	if said, err := create("system:serviceaccount:other:refract-injection", "--as-group=system:masters"); err != nil {
		t.Errorf("want pods of all others to be created, got %s", said)
	}
}
