package adversary

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/test/harness"
)

// TestNamedSecrets installs Refract for a list of types. The fleet works, from the join of a member to the renewal of
// its token, although the account on the hub can only read Secrets that a role names.
func TestNamedSecrets(t *testing.T) {
	t.Parallel()
	env := harness.New(t, harness.Topology{Members: 1})
	name := env.Members[0]
	admin, err := env.Client("hub")
	if err != nil {
		t.Fatal(err)
	}
	must := func(out string, err error) string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	manifest := must(env.Refract("install", "--export", "--image", "registry.example.com/refract:v1", "--propagate", "deployments.apps"))
	must(env.Kubectl("hub", manifest, "apply", "--server-side", "-f", "-"))
	hours := int64(2 * 60 * 60)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}
	if err := admin.SubResource("token").Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "refract", Namespace: system}}, request); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := clientcmd.LoadFromFile(env.Kubeconfig("hub"))
	if err != nil {
		t.Fatal(err)
	}
	user := kubeconfig.AuthInfos[kubeconfig.Contexts[kubeconfig.CurrentContext].AuthInfo]
	user.ClientCertificateData, user.ClientKeyData, user.Token = nil, nil, request.Status.Token
	path := filepath.Join(env.Dir, "account.yaml")
	if err := clientcmd.WriteToFile(*kubeconfig, path); err != nil {
		t.Fatal(err)
	}
	refract, err := env.Replica("narrow", "--kubeconfig", path)
	if err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "Refract is ready", refract.Ready)

	must(env.Refract("join", name, "--kubeconfig", env.Kubeconfig("hub"), "--member-kubeconfig", env.Kubeconfig(name)))
	given := func(image string) string {
		return fmt.Sprintf(`{apiVersion: v1, kind: List, items: [
{apiVersion: v1, kind: Namespace, metadata: {name: shop}},
{apiVersion: v1, kind: Secret, metadata: {name: db, namespace: shop}},
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop, labels: {kubeadmiral.io/propagation-policy-name: all}}},
{apiVersion: v1, kind: Secret, metadata: {name: other, namespace: %s}},
{apiVersion: core.kubeadmiral.io/v1alpha1, kind: PropagationPolicy, metadata: {name: all, namespace: shop}, spec: {schedulingMode: Duplicate}},
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop, labels: {kubeadmiral.io/propagation-policy-name: all}}, spec: {
  selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {
    containers: [{name: web, image: %q, envFrom: [{secretRef: {name: db}}]}]}}}}]}`, system, image)
	}
	arrives := func(image string) {
		t.Helper()
		must(env.Kubectl("hub", given(image), "apply", "-f", "-"))
		harness.Eventually(t, "the member has image "+image, func(ctx context.Context) error {
			o, err := env.Get(ctx, name, "deployment", "shop", "web")
			if err == nil && !strings.Contains(fmt.Sprint(o), image) {
				err = errors.New("the Deployment has another image")
			}
			return err
		})
	}
	arrives("web:1")
	harness.Eventually(t, "the Propagation names the Secret that does not travel", func(ctx context.Context) error {
		o, err := env.Get(ctx, "hub", "propagation", "shop", "web.deployments.apps")
		if err == nil && !strings.Contains(fmt.Sprint(o), "secrets db does not travel with the object: Refract has no right to list secrets on the hub") {
			err = fmt.Errorf("the Propagation is %v", o)
		}
		return err
	})
	out, err := env.Refract("check", "--kubeconfig", env.Kubeconfig("hub"))
	if !strings.Contains(out, "as Refract may not list their types: configmaps shop/settings\n") {
		t.Errorf("want the check to name labelled objects of types that Refract may not list, got %v\n%s", err, out)
	}
	harness.Eventually(t, "the log names the skipped types", func(context.Context) error {
		log, err := os.ReadFile(refract.Log)
		if err == nil && !strings.Contains(string(log), "No right to list types on the hub") {
			err = errors.New("the log does not name them")
		}
		return err
	})

	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	account, err := harness.ClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	byName := func(namespace, name string) error {
		return account.List(t.Context(), &corev1.SecretList{}, client.InNamespace(namespace), client.MatchingFields{"metadata.name": name})
	}
	if err := byName(system, name); err != nil {
		t.Errorf("want the Secret of the member to be read, got %v", err)
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "other"}}
	for what, err := range map[string]error{
		"get another Secret":  account.Get(t.Context(), client.ObjectKeyFromObject(secret), secret.DeepCopy()),
		"list it":             byName(system, "other"),
		"patch it":            account.Patch(t.Context(), secret.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte("{}"))),
		"get the member's":    account.Get(t.Context(), client.ObjectKey{Namespace: system, Name: name}, &corev1.Secret{}),
		"list all of ours":    account.List(t.Context(), &corev1.SecretList{}, client.InNamespace(system)),
		"list those of users": account.List(t.Context(), &corev1.SecretList{}, client.InNamespace("shop")),
		"list all":            account.List(t.Context(), &corev1.SecretList{}),
		"list one of users":   byName("shop", "db"),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: want it to be forbidden, got %v", what, err)
		}
	}
	for _, verb := range []string{"get", "list", "watch", "patch"} {
		for _, in := range []string{system, "shop", ""} {
			r := roleRight{"", verb, "secrets", in, "other"}
			review := r.review(ofHub)
			if err := admin.Create(t.Context(), review); err != nil || review.Status.Allowed {
				t.Errorf("%s: want it to be refused, got %v", &r, err)
			}
		}
	}

	must(env.Refract("join", "--renew-all", "--kubeconfig", env.Kubeconfig("hub"), "--member-kubeconfig", env.Kubeconfig(name)))
	arrives("web:2")

	byHand := &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}}
	byHand.Spec.APIEndpoint, byHand.Spec.SecretRef.Name = "https://127.0.0.1:1", "other"
	if err := admin.Create(t.Context(), byHand); err != nil {
		t.Fatal(err)
	}
	harness.Eventually(t, "a cluster that was created by hand reports the necessary command", func(ctx context.Context) error {
		o, err := env.Get(ctx, "hub", "federatedcluster", "", "by-hand")
		if err == nil && !strings.Contains(fmt.Sprint(o), "to permit it: kubectl create role refract-hub-clusters-other -n kube-admiral-system") {
			err = fmt.Errorf("the FederatedCluster is %v", o)
		}
		return err
	})
}
