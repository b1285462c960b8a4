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

// roleUser is an account or a user that has a role of config/rbac.
type roleUser string

// The accounts of the programs, and a fleet administrator.
const (
	ofHub        roleUser = "system:serviceaccount:kube-admiral-system:refract"
	ofInjection  roleUser = "system:serviceaccount:kube-admiral-system:refract-injection"
	ofConversion roleUser = "system:serviceaccount:kube-admiral-system:refract-conversion"
	ofMember     roleUser = "system:serviceaccount:kube-admiral-system:refract-member"
	ofFleet      roleUser = "looks-after-the-fleet"
)

// roleRight is a right that a user must have, or must not have: a verb on a resource (resources.group/subresource) or
// on a URL path. An empty namespace means all namespaces, an empty name all objects.
type roleRight struct{ reason, verb, resource, namespace, name string }

// roleRights are the rights that each user needs, with the reason.
var roleRights = map[roleUser][]roleRight{
	ofHub: {
		{"Labelled objects of any type are listed.", "list", "deployments.apps", "", ""},
		{"And watched.", "watch", "widgets.example.com", "", ""},
		{"A follower is read by a list with its name.", "list", "secrets", "shop", "db"},
		{"The definitions of types that copies have are read.", "list", "customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.com"},
		{"The UID of this namespace identifies the cluster.", "get", "namespaces", "", "kube-system"},
		{"Labels and deletion of a namespace are read.", "get", "namespaces", "", "shop"},
		{"The deletion of a type is noticed.", "get", "customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.com"},
		{"A policy is read before the checked references are recorded in its status.", "get", "overridepolicies.core.kubeadmiral.io", "shop", "web"},
		{"It checks whether its types are served.", "get", "customresourcedefinitions.apiextensions.k8s.io", "", "federatedclusters.core.kubeadmiral.io"},
		{"It updates its definitions.", "patch", "customresourcedefinitions.apiextensions.k8s.io", "", "propagations.refract.dev"},
		{
			"It creates its definitions: for a server-side apply, RBAC can limit a create to a name.",
			"create", "customresourcedefinitions.apiextensions.k8s.io", "", "propagations.refract.dev",
		},
		{"It registers its webhook.", "create", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-policies"},
		{"It notices changes of the registration.", "get", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-policies"},
		{"And reverts them.", "update", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-injection-policies"},
		{"It updates its admission policies.", "patch", "validatingadmissionpolicies.admissionregistration.k8s.io", "", "refract-followers"},
		{"It creates reports.", "create", "propagations.refract.dev", "shop", ""},
		{"It continues a report after a restart.", "get", "propagations.refract.dev", "shop", "web.deployments.apps"},
		{"It reports on cluster-scoped objects.", "update", "clusterpropagations.refract.dev/status", "", "web"},
		{"It writes the status of policies.", "patch", "overridepolicies.core.kubeadmiral.io/status", "shop", "web"},
		{"Its finalizer keeps a cluster until the copies are deleted.", "patch", "federatedclusters.core.kubeadmiral.io", "", "member-1"},
		{"It creates events.", "create", "events.events.k8s.io", "shop", ""},
		{"It checks whether an author may read the named objects.", "create", "subjectaccessreviews.authorization.k8s.io", "", ""},
		{"It finds missing objects by a list with their name.", "list", "configmaps", "shop", "db"},
		{"Leader election.", "update", "leases.coordination.k8s.io", "kube-admiral-system", "refract-leader"},
		{"It creates certificates: RBAC cannot limit a create to a name.", "create", "secrets", "kube-admiral-system", ""},
		{"It renews them.", "update", "secrets", "kube-admiral-system", "refract-webhook"},
		{"It reads its encrypted revisions.", "get", "secrets", "kube-admiral-system", "refract-revisions"},
	},
	ofInjection: {
		{"It watches the policies.", "watch", "serviceinjectionpolicies.refract.dev", "", ""},
		{"It writes the status of policies.", "patch", "serviceinjectionpolicies.refract.dev/status", "shop", "db"},
		{"It checks whether a Secret has the named keys.", "get", "secrets", "shop", "db"},
		{"It creates pods in dry runs.", "create", "pods", "shop", ""},
		{"It restarts workloads.", "patch", "deployments.apps", "shop", "web"},
		{"It evicts pods of other owners.", "create", "pods/eviction", "shop", "web-0"},
		{"It registers its webhook.", "patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-injection"},
		{"Leader election.", "update", "leases.coordination.k8s.io", "kube-admiral-system", "refract-injection"},
		{"It renews its certificates.", "update", "secrets", "kube-admiral-system", "refract-webhook"},
	},
	ofConversion: {
		{"It watches the policies.", "watch", "conversionpolicies.refract.dev", "", ""},
		{"It writes the status of policies.", "patch", "conversionpolicies.refract.dev/status", "", "pools"},
		{"It registers its webhook in the definition that a policy names.", "patch", "customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.com"},
		{"It registers its webhook for policies.", "update", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-conversion"},
		{"Leader election.", "update", "leases.coordination.k8s.io", "kube-admiral-system", "refract-conversion"},
		{"It renews its certificates.", "update", "secrets", "kube-admiral-system", "refract-conversion-webhook"},
	},
	ofMember: {
		{"It checks whether the cluster is ready.", "get", "/readyz", "", ""},
		{"Copies are written.", "patch", "deployments.apps", "shop", "web"},
		{"And removed.", "delete", "secrets", "shop", "db"},
		{"A namespace is created for them.", "create", "namespaces", "", ""},
		{"It gets the labels of the hub's namespace.", "patch", "namespaces", "", "shop"},
		{"An empty namespace has no objects of any type.", "list", "widgets.example.com", "shop", ""},
	},
	ofFleet: {
		{"Fleet administrators join clusters.", "create", "federatedclusters.core.kubeadmiral.io", "", ""},
		{"Fleet administrators decide the placement.", "update", "clusterpropagationpolicies.core.kubeadmiral.io", "", "everywhere"},
	},
}

// noRoleRights are rights that no program of Refract may have: each gives the rights of another account.
var noRoleRights = []roleRight{
	{"A kubelet runs any command for an account with this right.", "get", "nodes/proxy", "", "node-1"},
	{"The same.", "create", "nodes/proxy", "", "node-1"},
	{"The logs of a node have data of all tenants.", "get", "nodes/log", "", "node-1"},
	{"A command by WebSocket begins with a get.", "get", "pods/exec", "shop", "web-0"},
	{"And by SPDY with a create.", "create", "pods/exec", "shop", "web-0"},
	{"So does attaching to a container.", "get", "pods/attach", "shop", "web-0"},
	{"The same.", "create", "pods/attach", "shop", "web-0"},
	{"Servers on localhost often need no authentication.", "get", "pods/portforward", "shop", "web-0"},
	{"The same.", "create", "pods/portforward", "shop", "web-0"},
	{"The same, by HTTP.", "get", "pods/proxy", "shop", "web-0"},
	{"NetworkPolicies usually let the API server in.", "get", "services/proxy", "shop", "web"},
	{"The same.", "create", "services/proxy", "shop", "web"},
	{"Logs may contain secrets.", "get", "pods/log", "shop", "web-0"},
	{"A new container runs a command in a pod.", "patch", "pods/ephemeralcontainers", "shop", "web-0"},
	{"A binding bypasses all rules of the scheduler.", "create", "pods/binding", "shop", "web-0"},
	{"A token gives all rights of the account.", "create", "serviceaccounts/token", "kube-system", "clusterrole-aggregation-controller"},
	{"The other accounts of our namespace have other rights.", "create", "serviceaccounts/token", "kube-admiral-system", "refract-conversion"},
	{"It gives the rights of any user.", "impersonate", "users", "", "admin"},
	{"It gives all rights.", "impersonate", "groups", "", "system:masters"},
	{"The same.", "impersonate", "serviceaccounts", "kube-system", "clusterrole-aggregation-controller"},
	{"It permits roles beyond the account's own rights.", "escalate", "clusterroles.rbac.authorization.k8s.io", "", "refract-hub"},
	{"The same, in a namespace.", "escalate", "roles.rbac.authorization.k8s.io", "kube-system", "any"},
	{"It permits bindings of roles beyond the account's own rights.", "bind", "clusterroles.rbac.authorization.k8s.io", "", "cluster-admin"},
	{"Only administrators grant rights.", "create", "clusterrolebindings.rbac.authorization.k8s.io", "", ""},
	{"The same, in a namespace.", "create", "rolebindings.rbac.authorization.k8s.io", "kube-system", ""},
	{"And extend them.", "patch", "clusterroles.rbac.authorization.k8s.io", "", "refract-hub"},
	{"The same, in a namespace.", "patch", "roles.rbac.authorization.k8s.io", "kube-admiral-system", "refract-hub"},
	{"An approved certificate gives the rights of any user.", "update", "certificatesigningrequests.certificates.k8s.io/approval", "", "mine"},
	{"The same.", "approve", "signers.certificates.k8s.io", "", "kubernetes.io/kube-apiserver-client"},
	{"The same.", "sign", "signers.certificates.k8s.io", "", "kubernetes.io/kube-apiserver-client"},
	{"A mutating webhook can change every write, including Secrets and roles.", "create", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", ""},
	{"The webhooks of other programs are not ours.", "patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "sidecars"},
	{"A validating webhook sees every write.", "create", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", ""},
	{"Without the webhook of another program, its checks end.", "delete", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "gatekeeper"},
	{"The same.", "patch", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "gatekeeper"},
	{"The same.", "delete", "validatingadmissionpolicies.admissionregistration.k8s.io", "", "no-privileged-pods"},
	{"The same.", "patch", "validatingadmissionpolicybindings.admissionregistration.k8s.io", "", "no-privileged-pods"},
	{
		"Not even its own, which limit Refract itself.",
		"delete", "validatingadmissionpolicybindings.admissionregistration.k8s.io", "", "refract-followers",
	},
	{"The deletion of a definition deletes all of its objects.", "delete", "customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.com"},
	{"Not even its own definitions.", "delete", "customresourcedefinitions.apiextensions.k8s.io", "", "conversionpolicies.refract.dev"},
	{"An APIService decides which server serves an API.", "patch", "apiservices.apiregistration.k8s.io", "", "v1.apps"},
	{"A changed Node can attract pods.", "patch", "nodes", "", "node-1"},
	{"The holder of this Lease stops the cluster's controllers.", "update", "leases.coordination.k8s.io", "kube-system", "kube-controller-manager"},
	{"One request would delete all Secrets.", "deletecollection", "secrets", "shop", ""},
	{"It reveals the user of a token.", "create", "tokenreviews.authentication.k8s.io", "", ""},
	{"Profiles of the API server.", "get", "/debug/pprof/profile", "", ""},
	{"And its logs.", "get", "/logs/kube-apiserver.log", "", ""},
}

// noRoleRightsOf are rights that one user must not have, because they belong to other programs, tenants or
// administrators.
var noRoleRightsOf = map[roleUser][]roleRight{
	ofHub: {
		{"A list with the name is sufficient.", "get", "deployments.apps", "shop", "web"},
		{"Also for custom resources.", "get", "widgets.example.com", "shop", "web"},
		{"It only reads; tenants write.", "patch", "deployments.apps", "shop", "web"},
		{"It creates no pods on the hub.", "create", "pods", "shop", ""},
		{"And evicts none.", "create", "pods/eviction", "shop", "web-0"},
		{"A list with the name is sufficient, also for Secrets.", "get", "secrets", "shop", "db"},
		{"Also for objects that policies name.", "get", "configmaps", "shop", "db"},
		{"In the system namespace, roles name each Secret: this one belongs to no member.", "get", "secrets", "kube-admiral-system", "other"},
		{"An empty patch returns the content.", "patch", "secrets", "kube-admiral-system", "other"},
		{"Secrets belong to tenants.", "create", "secrets", "shop", ""},
		{"The same.", "patch", "secrets", "shop", "db"},
		{"Only administrators write credentials of members.", "update", "secrets", "kube-admiral-system", "member-1"},
		{"And delete them.", "delete", "secrets", "kube-admiral-system", "member-1"},
		{"Only administrators write cluster-wide placement.", "update", "clusterpropagationpolicies.core.kubeadmiral.io", "", "everywhere"},
		{"Only users write overrides.", "patch", "overridepolicies.core.kubeadmiral.io", "shop", "web"},
		{"Only administrators add clusters.", "create", "federatedclusters.core.kubeadmiral.io", "", ""},
		{"The same.", "delete", "federatedclusters.core.kubeadmiral.io", "", "member-1"},
		{"The webhook belongs to another program of Refract.", "patch", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-injection"},
		{"The webhook for policies must not be removed.", "delete", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-policies"},
		{"The labels of a namespace set its Pod Security level.", "patch", "namespaces", "", "kube-system"},
		{"Definitions of other programs are not changed.", "patch", "customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.com"},
		{"No other definitions are created.", "create", "customresourcedefinitions.apiextensions.k8s.io", "", ""},
		{"Namespaces of the hub are not deleted.", "delete", "namespaces", "", "shop"},
		{"The Lease belongs to another program.", "update", "leases.coordination.k8s.io", "kube-admiral-system", "refract-injection"},
		{"After the deletion of the Lease, two replicas could lead at once.", "delete", "leases.coordination.k8s.io", "kube-admiral-system", "refract-leader"},
	},
	ofInjection: {
		{"Only named Secrets are read.", "list", "secrets", "shop", ""},
		{"The same, permanently.", "watch", "secrets", "", ""},
		{"Secrets belong to tenants.", "patch", "secrets", "shop", "db"},
		{"The certificate belongs to another program.", "update", "secrets", "kube-admiral-system", "refract-conversion-webhook"},
		{"Pods are evicted, which respects PodDisruptionBudgets.", "delete", "pods", "shop", "web-0"},
		{"A patch is sufficient for an annotation.", "update", "deployments.apps", "shop", "web"},
		{"Workloads belong to tenants.", "delete", "deployments.apps", "shop", "web"},
		{"The same.", "create", "deployments.apps", "shop", ""},
		{"Jobs are only read.", "patch", "jobs.batch", "shop", "once"},
		{"Services are only read.", "patch", "services", "shop", "web"},
		{"The webhook belongs to another program of Refract.", "patch", "validatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-conversion"},
		{"The labels of a namespace set its Pod Security level.", "patch", "namespaces", "", "kube-system"},
		{"Definitions of other programs are not changed.", "patch", "customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.com"},
		{"Other namespaces are not read.", "get", "namespaces", "", "shop"},
	},
	ofConversion: {
		{"Requests contain the objects to convert, so it reads none.", "get", "widgets.example.com", "shop", "web"},
		{"The same.", "list", "widgets.example.com", "", ""},
		{"It reads no Secret of a tenant.", "get", "secrets", "shop", "db"},
		{"And none of another program.", "get", "secrets", "kube-admiral-system", "refract-webhook"},
		{"And no credentials of members.", "list", "secrets", "kube-admiral-system", ""},
		{"It reads no pods.", "list", "pods", "shop", ""},
		{"The labels of a namespace set its Pod Security level.", "patch", "namespaces", "", "kube-system"},
		{"Only users create definitions.", "create", "customresourcedefinitions.apiextensions.k8s.io", "", ""},
		{"It has no mutating webhook.", "create", "mutatingwebhookconfigurations.admissionregistration.k8s.io", "", "refract-conversion"},
		{"The Lease belongs to another program.", "update", "leases.coordination.k8s.io", "kube-admiral-system", "refract-injection"},
		{"Only users write policies.", "create", "conversionpolicies.refract.dev", "", ""},
	},
	ofMember: {
		{"Types without a rule of the user are not written.", "patch", "widgets.example.com", "shop", "web"},
		{"And are only read by lists.", "get", "widgets.example.com", "shop", "web"},
		{"Definitions give power over the cluster.", "patch", "customresourcedefinitions.apiextensions.k8s.io", "", "widgets.example.com"},
		{"Refract evicts no pods on members.", "create", "pods/eviction", "shop", "web-0"},
		{"There is no leader election on members.", "create", "leases.coordination.k8s.io", "kube-admiral-system", ""},
		{"Rights of users are only checked on the hub.", "create", "subjectaccessreviews.authorization.k8s.io", "", ""},
	},
	ofFleet: {
		{"Only Refract writes the status of a policy.", "update", "overridepolicies.core.kubeadmiral.io/status", "shop", "web"},
		{"And of a cluster.", "patch", "federatedclusters.core.kubeadmiral.io/status", "", "member-1"},
		{"And of a report.", "patch", "propagations.refract.dev/status", "shop", "web.deployments.apps"},
		{"Credentials need another role.", "get", "secrets", "kube-admiral-system", "member-1"},
		{"So do objects of tenants.", "list", "secrets", "shop", ""},
	},
}

// TestRoles installs all manifests of config in one cluster and queries its authorizer about each account of Refract:
// the account has the rights that it needs, and no right that would help an attacker with its token.
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
	// The namespace must exist before the objects in it.
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
					err = fmt.Errorf("the right is missing. %s", r.reason)
				}
				return err
			})
		}
	}
	wantDryRunsAlone(t, env)
	// The calls above have shown that the authorizer knows the roles.
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

// review returns a request that asks whether a user has the right.
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

// String describes the right in an error.
func (r *roleRight) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s", r.verb, r.resource, strings.Trim(r.namespace+"/"+r.name, "/")))
}

// wantDryRunsAlone: the account of the injector may create pods, but only in dry runs.
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
