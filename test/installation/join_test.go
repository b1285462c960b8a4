package installation

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
)

// contexts writes a kubeconfig with a context for each cluster, and makes the commands read it. The first context is
// the current one.
func (w *world) contexts(clusters ...string) string {
	w.t.Helper()
	config := clientcmdapi.NewConfig()
	for _, name := range clusters {
		one, err := clientcmd.LoadFromFile(w.Kubeconfig(name))
		if err != nil {
			w.t.Fatal(err)
		}
		current := one.Contexts[one.CurrentContext]
		config.Clusters[name], config.AuthInfos[name] = one.Clusters[current.Cluster], one.AuthInfos[current.AuthInfo]
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	config.CurrentContext = clusters[0]
	path := filepath.Join(w.Dir, "contexts.yaml")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// TestJoin: refract join creates an account on a member with the rights of its user, and refract unjoin removes the
// account, but not that of a second hub. A narrower role limits the account. The commands find Refract in any namespace
// of the hub.
func TestJoin(t *testing.T) {
	t.Parallel()
	const member, elsewhere = "member-2", "fleet-system"
	w := begin(t, 2)
	w.kubectl(w.must("install", "--export", "--image", image, "--system-namespace", elsewhere), "apply", "-f", "-")
	w.start("refract", "--system-namespace", elsewhere)
	config := w.contexts(site, member)
	there, err := w.Client(member)
	if err != nil {
		t.Fatal(err)
	}

	out := w.must("join", "eu-1", "--kubeconfig", config, "--member-context", member, "--label", "region=eu")
	harness.WantAll(t, "The output names the steps.", out, []string{
		"serviceaccount kube-admiral-system/refract-member has the rights of clusterrole refract-member on the cluster", "cluster eu-1 joined", "cluster eu-1 is ready",
	})
	secret := &corev1.Secret{}
	if err := w.client.Get(t.Context(), client.ObjectKey{Namespace: elsewhere, Name: "eu-1"}, secret); err != nil {
		t.Fatal(err)
	}
	if len(secret.Data["client-certificate-data"]) > 0 || len(secret.Data["client-key-data"]) > 0 {
		t.Error("want no copy of the administrator's certificate on the hub")
	}
	got, err := w.Kubectl(member, "", "auth", "can-i", "create", "serviceaccounts/refract-member", "--subresource=token", "-n", system,
		"--as", "system:serviceaccount:"+system+":refract-member")
	if strings.TrimSpace(got) != "yes" {
		t.Errorf("want the account to have the right to renew its token, got %q, %v", got, err)
	}
	if out, code := w.refract("join", "eu-1", "--kubeconfig", config, "--member-context", member); code != 2 || !strings.Contains(out, `cluster "eu-1" is joined already`) {
		t.Errorf("want the message that the cluster has joined already, got exit code %d\n%s", code, out)
	}
	w.renewed(t, config, there, "eu-1")

	// Another hub has joined the same member.
	if _, err := w.Kubectl(member, "", "annotate", "serviceaccount", "refract-member", "-n", system, "--overwrite",
		"refract.dev/hubs="+hubsOf(t, there)+",another"); err != nil {
		t.Fatal(err)
	}
	role := filepath.Join(w.Dir, "role.yaml")
	if err := os.WriteFile(role, []byte(`
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: mine}
rules: [{apiGroups: [""], resources: [configmaps], verbs: ["*"]}]
`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Kubectl(member, "", "patch", "clusterrole", "refract-member", "--type=json",
		`-p=[{"op":"add","path":"/rules/-","value":{"apiGroups":["example.com"],"resources":["widgets"],"verbs":["get"]}}]`); err != nil {
		t.Fatal(err)
	}
	w.must("unjoin", "eu-1", "--kubeconfig", config, "--yes")
	w.gone("secret", secret)
	out, code := w.refract("join", "eu-2", "--kubeconfig", config, "--member-context", member, "--role", role)
	if code != 2 || !strings.Contains(out, "clusterrole refract-member is in use by other memberships") {
		t.Errorf("want the role of another hub to stay, got exit code %d\n%s", code, out)
	}
	w.must("join", "eu-1", "--kubeconfig", config, "--member-context", member)
	got, err = w.Kubectl(member, "", "get", "clusterrole", "refract-member", "-o", "yaml")
	if err != nil || !strings.Contains(got, "widgets") {
		t.Errorf("want the user's addition to the role to stay, got %v\n%s", err, got)
	}
	w.must("unjoin", "eu-1", "--kubeconfig", config, "--yes")
	if got := hubsOf(t, there); got != "another" {
		t.Errorf("want the account to stay for another hub, got %q", got)
	}

	if _, err := w.Kubectl(member, "", "annotate", "serviceaccount", "refract-member", "-n", system, "refract.dev/hubs-"); err != nil {
		t.Fatal(err)
	}
	w.must("join", "eu-2", "--kubeconfig", config, "--member-context", member, "--role", role)
	if got, err := w.Kubectl(member, "", "auth", "can-i", "create", "deployments", "--as", "system:serviceaccount:"+system+":refract-member"); strings.TrimSpace(got) != "no" {
		t.Errorf("want the account to have exactly the rights of the role, got %q, %v", got, err)
	}
	out = w.must("unjoin", "eu-2", "--kubeconfig", config, "--yes")
	harness.WantAll(t, "The output names the removed objects.", out, []string{"clusterrole refract-member deleted on cluster eu-2", "cluster eu-2 left"})
	for _, o := range []client.Object{&rbacv1.ClusterRoleBinding{}, &corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{}} {
		key := client.ObjectKey{Name: "refract-member"}
		if _, ok := o.(*rbacv1.ClusterRoleBinding); !ok {
			key.Namespace = system
		}
		harness.Eventually(t, "the objects of the account are deleted", func(ctx context.Context) error {
			err := there.Get(ctx, key, o)
			if apierrors.IsNotFound(err) {
				return nil
			}
			return errors.Join(errors.New("it is there"), err)
		})
	}
}

// renewed invalidates the token of a member, as happens after the restore of an old backup of the hub, and gives the
// member a new token with the contexts of a kubeconfig.
func (w *world) renewed(t *testing.T, config string, there client.Client, name string) {
	t.Helper()
	account := &corev1.ServiceAccount{}
	if err := there.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "refract-member"}, account); err != nil {
		t.Fatal(err)
	}
	if err := there.Delete(t.Context(), account, client.Preconditions{UID: &account.UID}); err != nil { // The tokens of the account become invalid with it.
		t.Fatal(err)
	}
	harness.Eventually(t, "the member does not accept the token", func(context.Context) error {
		if out := w.kubectl("", "get", "federatedcluster", name, "-o", "jsonpath={.status.conditions}"); !strings.Contains(out, "Unauthorized") {
			return errors.New(out)
		}
		return nil
	})
	out, code := w.refract("join", "--renew-all")
	if code != 1 || !strings.Contains(out, "cluster "+name+": not renewed: no context of the kubeconfig leads to https://") {
		t.Errorf("want a member without a context to be named, got exit code %d\n%s", code, out)
	}
	out = w.must("join", "--renew-all", "--member-kubeconfig", config)
	harness.WantAll(t, "The output names the steps.", out, []string{"cluster " + name + " is ready", "cluster " + name + ": renewed by context member-2"})
	if hubs := hubsOf(t, there); !strings.HasSuffix(hubs, "/"+name) {
		t.Errorf("want the account to name the member's hub again, got %q", hubs)
	}
}

func hubsOf(t *testing.T, c client.Client) string {
	t.Helper()
	account := &corev1.ServiceAccount{}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: system, Name: "refract-member"}, account); err != nil {
		t.Fatal(err)
	}
	return account.Annotations["refract.dev/hubs"]
}
