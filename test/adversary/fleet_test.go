// Package adversary tests rights and isolation: the documented rights are sufficient for Refract, errors name missing
// rights, and a user who may edit one namespace of the hub cannot affect anything outside of it.
package adversary

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/fleet/hub"
	"refract.dev/test/harness"
)

const (
	root   = "../.."
	system = "kube-admiral-system"

	// members is the number of members. Most tests propagate to all; the third is for the cases in which a right is
	// missing on one member.
	members = 3
)

var (
	// env has the fleet that all tests share.
	env *harness.Env
	// controllers run with exactly the rights of config/rbac, on the hub and on the members.
	controllers *harness.Replica
	// clients are an administrator's clients, by cluster name.
	clients = map[string]client.Client{}
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Topology{Members: members, CRDs: true}, setup)
}

// setup installs the documented roles, joins the members with their accounts, and runs the controllers with them.
func setup(ctx context.Context, e *harness.Env) (stop func() error, err error) {
	env = e
	for _, cluster := range append([]string{"hub"}, env.Members...) {
		cfg, err := env.Config(cluster)
		if err != nil {
			return nil, err
		}
		if clients[cluster], err = clientOf(cfg); err != nil {
			return nil, err
		}
	}
	account, err := restrict(ctx)
	if err != nil {
		return nil, err
	}
	return nil, runAs(ctx, account)
}

// clientOf returns a client whose writes are rejected if they have unknown fields, as with kubectl.
func clientOf(cfg *rest.Config) (client.Client, error) {
	c, err := harness.ClientFor(cfg)
	if err != nil {
		return nil, err
	}
	return client.WithFieldValidation(c, metav1.FieldValidationStrict), nil
}

// restrict installs the documented roles, joins the members with the accounts of these roles, and returns a kubeconfig
// of Refract's account on the hub.
func restrict(ctx context.Context) (kubeconfig string, err error) {
	// In two steps, as in the documentation: the namespace must exist before the objects in it.
	for _, what := range []string{"-f=" + filepath.Join(root, "config/install/namespace.yaml"), "-k=" + filepath.Join(root, "config/install")} {
		if _, err := env.Kubectl("hub", "", "apply", "--server-side", "--force-conflicts", what); err != nil {
			return "", err
		}
	}
	for _, name := range env.Members {
		if _, err := env.Kubectl(name, "", "apply", "-f", filepath.Join(root, "config/rbac/member.yaml")); err != nil {
			return "", err
		}
		to, err := env.Access(name)
		if err != nil {
			return "", err
		}
		to.Cert, to.Key = nil, nil
		if to.Token, err = token(ctx, name, "refract-member"); err != nil {
			return "", err
		}
		if err := env.Join(ctx, name, to); err != nil {
			return "", err
		}
	}
	cfg, err := clientcmd.LoadFromFile(env.Kubeconfig("hub"))
	if err != nil {
		return "", err
	}
	user := cfg.AuthInfos[cfg.Contexts[cfg.CurrentContext].AuthInfo]
	user.ClientCertificateData, user.ClientKeyData = nil, nil
	if user.Token, err = token(ctx, "hub", "refract"); err != nil {
		return "", err
	}
	kubeconfig = filepath.Join(env.Dir, "account.yaml")
	return kubeconfig, clientcmd.WriteToFile(*cfg, kubeconfig)
}

// token returns a token of an account of Refract on a cluster, as kubectl create token does.
func token(ctx context.Context, cluster, account string) (string, error) {
	hours := int64(2 * 60 * 60)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}
	of := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account, Namespace: system}}
	err := clients[cluster].SubResource("token").Create(ctx, of, request)
	return request.Status.Token, err
}

// runAs runs the controllers with the kubeconfig, and returns when they are ready.
func runAs(ctx context.Context, kubeconfig string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	// The controllers install the admission policies, too, but these must exist when the first test begins.
	if err := hub.InstallAdmission(ctx, cfg, nil); err != nil {
		return err
	}
	ports, err := harness.FreePorts(1)
	if err != nil {
		return err
	}
	// Tests that end at the same time delete many copies. The deletion guard, which no test here is about, would hold
	// these deletions back. So its threshold is 100 percent.
	controllers, err = env.Replica("controllers", "--kubeconfig", kubeconfig, "--deletion-guard", "100",
		"--webhook-bind-address", ports[0], "--webhook-url", "https://"+ports[0])
	if err != nil {
		return err
	}
	err = harness.Await(ctx, func(ctx context.Context) error {
		if err := controllers.Ready(ctx); err != nil {
			return err
		}
		asked, err := env.Get(ctx, "hub", "validatingwebhookconfigurations", "", "refract-policies")
		if asked == nil {
			return errors.Join(err, errors.New("the webhook configuration does not exist on the hub"))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("the controllers are not ready: %w\n%s", err, harness.LogTail(controllers.Log))
	}
	return nil
}

// objects returns the objects of a manifest, in the namespace ns unless it is empty.
func objects(t *testing.T, ns, manifest string) (all []*unstructured.Unstructured) {
	t.Helper()
	docs := yaml.NewYAMLOrJSONDecoder(strings.NewReader(manifest), 4096)
	for {
		u := &unstructured.Unstructured{}
		switch err := docs.Decode(&u.Object); {
		case errors.Is(err, io.EOF):
			return all
		case err != nil:
			t.Fatal(err)
		case len(u.Object) > 0:
			u.SetNamespace(ns)
			all = append(all, u)
		}
	}
}

// create creates the objects of a manifest, in the namespace ns unless it is empty, and returns the API server's first
// error.
func create(t *testing.T, c client.Client, ns, manifest string, options ...client.CreateOption) error {
	t.Helper()
	for _, u := range objects(t, ns, manifest) {
		if err := c.Create(t.Context(), u, options...); err != nil {
			return err
		}
	}
	return nil
}

// replace is like create, but updates existing objects.
func replace(t *testing.T, c client.Client, ns, manifest string, options ...client.UpdateOption) error {
	t.Helper()
	for _, u := range objects(t, ns, manifest) {
		now := u.DeepCopy()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(u), now); err != nil {
			return err
		}
		u.SetResourceVersion(now.GetResourceVersion())
		if err := c.Update(t.Context(), u, options...); err != nil {
			return err
		}
	}
	return nil
}

// given creates the objects of a manifest as an administrator.
func given(t *testing.T, cluster, ns, manifest string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // A cleanup may call given.
	for _, u := range objects(t, ns, manifest) {
		if err := clients[cluster].Create(ctx, u); err != nil {
			t.Fatal(err)
		}
	}
}

// remove deletes an object as an administrator, if it exists.
func remove(t *testing.T, cluster, kind, ns, name string) {
	t.Helper()
	u := get(t, cluster, kind, ns, name)
	if u == nil {
		return
	}
	ctx := context.WithoutCancel(t.Context()) // A cleanup may call remove.
	err := clients[cluster].Delete(ctx, u, client.PropagationPolicy(metav1.DeletePropagationBackground), client.GracePeriodSeconds(0))
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
}

// users are clients of the hub, by user name.
var users = struct {
	sync.Mutex
	of map[string]client.Client
}{of: map[string]client.Client{}}

// as returns a client of the hub for a user with these groups.
func as(t *testing.T, user string, groups ...string) client.Client {
	t.Helper()
	users.Lock()
	defer users.Unlock()
	if c := users.of[user]; c != nil {
		return c
	}
	cfg, err := env.Config("hub")
	if err != nil {
		t.Fatal(err)
	}
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: groups}
	if users.of[user], err = clientOf(cfg); err != nil {
		t.Fatal(err)
	}
	return users.of[user]
}

// author has the rights of the user of a namespace, and two policies for the user's objects.
const author = `
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: author}
rules:
- {apiGroups: [apps, batch], resources: ["*"], verbs: ["*"]}
- {apiGroups: [""], resources: [configmaps, pods, podtemplates, replicationcontrollers, pods/ephemeralcontainers, serviceaccounts], verbs: ["*"]}
- {apiGroups: [""], resources: [secrets], resourceNames: [mine, mine-too], verbs: [get]}
- {apiGroups: [core.kubeadmiral.io], resources: [overridepolicies], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: author}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: author}
subjects: [{kind: User, name: USER}]
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere}
spec: {schedulingMode: Duplicate}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: first}
spec: {schedulingMode: Duplicate, placement: [{cluster: member-1}]}
`

// namespace creates a namespace on the hub for one test, with a user who is an author in it.
func namespace(t *testing.T) (name, user string) {
	t.Helper()
	name = env.Namespace(t)
	user = "author-of-" + name
	given(t, "hub", name, strings.ReplaceAll(author, "USER", user))
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(env.Kubectl("hub", "", "get", "propagations", "-n", name, "-o", "yaml"))
			t.Logf("the controllers' log ends:\n%s", harness.LogTail(controllers.Log))
		}
	})
	allowed(t, "hub", user, true, "create", "overridepolicies.core.kubeadmiral.io", name)
	eventually(t, "the account of pods", "default", func() string {
		return harness.Field(get(t, "hub", "serviceaccount", name, "default"), "metadata", "name")
	})
	heeded(t, name, user)
	return name, user
}

var heedful sync.Mutex
var heeds bool

// heeded waits until the admission policies and webhooks of the hub are in force: the API server learns of them a
// moment after they are written.
func heeded(t *testing.T, ns, user string) {
	t.Helper()
	heedful.Lock()
	defer heedful.Unlock()
	if heeds {
		return
	}
	for what, manifest := range map[string]string{
		"references to Secrets": workload(labelled, "", "theirs"),
		"named followers":       configMap("heeded", labelled, "kubeadmiral.io/followers: x"),
		"overrides": `{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: heeded}, spec: {overrideRules: [{overriders: {
			envs: [{containerName: c, operator: addIfAbsent, value: [{name: A, valueFrom: {secretKeyRef: {name: theirs, key: k}}}]}]}}]}}`,
	} {
		harness.Eventually(t, "the hub checks "+what, func(context.Context) error {
			if err := create(t, as(t, user), ns, manifest, client.DryRunAll); err == nil {
				return errors.New("the write is not refused")
			}
			return nil
		})
	}
	heeds = true
}

// allowed waits until an API server knows a right of a user, which takes a moment after the role is written. The
// resource has the form resources.group/subresource.
func allowed(t *testing.T, cluster, user string, want bool, verb, resource, ns string) {
	t.Helper()
	harness.Eventually(t, "the rights of "+user, func(context.Context) error {
		if got := may(t, cluster, user, verb, resource, ns); got != want {
			return fmt.Errorf("may %s %s in namespace %q? want %t, got %t", verb, resource, ns, want, got)
		}
		return nil
	})
}

// may reports whether a user has a right on a cluster.
func may(t *testing.T, cluster, user, verb, resource, ns string) bool {
	t.Helper()
	resource, sub, _ := strings.Cut(resource, "/")
	resource, group, _ := strings.Cut(resource, ".")
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user, Groups: []string{"system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: ns},
	}}
	if err := clients[cluster].Create(t.Context(), review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

// get returns an object of a cluster, or nil. It retries while the cluster does not serve the type yet.
func get(t *testing.T, cluster, kind, ns, name string) (u *unstructured.Unstructured) {
	t.Helper()
	harness.Eventually(t, "reading "+kind+" "+name, func(ctx context.Context) (err error) {
		u, err = env.Get(ctx, cluster, kind, ns, name)
		return err
	})
	return u
}

// eventually waits until got returns want.
func eventually(t *testing.T, what, want string, got func() string) {
	t.Helper()
	until(t, what+" is "+want, func() (bool, string) {
		is := got()
		return is == want, is
	})
}

// until waits until the function ok returns true. The text that ok returns is part of the failure message.
func until(t *testing.T, what string, ok func() (bool, string)) {
	t.Helper()
	harness.Eventually(t, what, func(context.Context) error {
		if yes, is := ok(); !yes {
			return fmt.Errorf("it is %q", is)
		}
		return nil
	})
}

// everywhere waits until the field at path has these values: the first on member-1, the second on member-2 and so on.
func everywhere(t *testing.T, kind, ns, name string, want []string, path ...string) {
	t.Helper()
	eventually(t, kind+" "+name, strings.Join(want, " "), func() string {
		var got []string
		for i := range want {
			got = append(got, harness.Field(get(t, fmt.Sprintf("member-%d", i+1), kind, ns, name), path...))
		}
		return strings.Join(got, " ")
	})
}

// condition returns a field of a condition; "" if there is no such condition.
func condition(u *unstructured.Unstructured, kind, member string) string {
	if u == nil {
		return "absent"
	}
	list, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range list {
		if m, ok := c.(map[string]any); ok && m["type"] == kind {
			return fmt.Sprint(m[member])
		}
	}
	return ""
}
