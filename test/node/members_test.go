package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
	"refract.dev/test/node/cluster"
)

// fleet is an object with its policies.
const fleet = `
apiVersion: v1
kind: Namespace
metadata: {name: NS}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere, namespace: NS}
spec: {schedulingMode: Duplicate}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: europe, namespace: NS}
spec:
  overrideRules:
  - targetClusters: {clusterSelector: {region: eu}}
    overriders: {jsonpatch: [{path: /data/currency, operator: replace, value: VALUE}]}
---
apiVersion: refract.dev/v1alpha1
kind: RolloutPolicy
metadata: {name: careful, namespace: NS}
spec: {waves: [{name: canary, targetClusters: {clusters: [us-1]}}]}
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: shop
  namespace: NS
  labels: {kubeadmiral.io/propagation-policy-name: everywhere, kubeadmiral.io/override-policy-name: europe, refract.dev/rollout-policy-name: careful}
data: {currency: USD}
`

// joined maps the names of the joined clusters to the names of their control planes. The contexts have the names of the
// clusters.
var joined = map[string]string{"eu-1": "member-1", "us-1": "member-2"}

// contexts writes a kubeconfig with a context for the hub and for each member. Pods can reach the addresses in it, too.
func contexts(env *harness.Env) (string, error) {
	config := clientcmdapi.NewConfig()
	config.CurrentContext = "hub"
	names := map[string]string{"hub": "hub"}
	maps.Copy(names, joined)
	for name, site := range names {
		one, err := clientcmd.LoadFromFile(env.Kubeconfig(site))
		if err != nil {
			return "", err
		}
		current := one.Contexts[one.CurrentContext]
		to := one.Clusters[current.Cluster]
		server, err := url.Parse(to.Server)
		if err != nil {
			return "", err
		}
		server.Host = net.JoinHostPort(cluster.Address, server.Port())
		to.Server = server.String()
		config.Clusters[name], config.AuthInfos[name] = to, one.AuthInfos[current.AuthInfo]
		config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	}
	path := filepath.Join(env.Dir, "contexts.yaml")
	return path, clientcmd.WriteToFile(*config, path)
}

// members tests that clusters join with the commands of the guide, and that Refract on the Node propagates objects to
// these clusters with the accounts that the commands create.
func members(t *testing.T) {
	t.Helper()
	ns := harness.NameOf(t)
	for name := range joined {
		region, _, _ := strings.Cut(name, "-")
		if _, err := refract(t, "join", name, "--member-context", name, "--label", "region="+region); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := run(t, filepath.Join(root(t), "bin", "kubectl"), "refract", "get"); err != nil {
		t.Error(err)
	}
	for _, value := range []string{"EUR", "CHF"} {
		apply(t, ns, strings.ReplaceAll(fleet, "VALUE", value))
		copied(t, ns, map[string]string{"eu-1": value, "us-1": "USD"})
	}
	kubectl(t, "", "wait", "--for=condition=Ready", "propagation/shop.configmaps", "-n", ns, "--timeout=1m")
	if out := kubectl(t, "", "get", "propagation", "shop.configmaps", "-n", ns, "-o", "jsonpath={.status.variants[*].changes}"); !strings.Contains(out, "OverridePolicy "+ns+"/europe rule 0") {
		t.Errorf("want the author of the value in the output, got %s", out)
	}
	if _, err := node.Env.Kubectl(joined["us-1"], "", "patch", "configmap", "shop", "-n", ns, "--type=merge", `-p={"data":{"currency":"GBP"}}`); err != nil {
		t.Fatal(err)
	}
	copied(t, ns, map[string]string{"eu-1": "CHF", "us-1": "USD"})
	kubectl(t, "", "delete", "configmap", "shop", "-n", ns)
	copied(t, ns, map[string]string{"eu-1": "", "us-1": ""})
	kubectl(t, "", "delete", "namespace", ns, "--wait=false")
	byItself(t)
	if _, err := refract(t, "check"); err != nil {
		t.Error(err)
	}
	for name := range joined {
		if _, err := refract(t, "unjoin", name, "--yes"); err != nil {
			t.Error(err)
		}
	}
}

// copied waits until the copy on each member has the value; "" means no copy.
func copied(t *testing.T, ns string, want map[string]string) {
	t.Helper()
	harness.Eventually(t, fmt.Sprintf("members have %v", want), func(ctx context.Context) error {
		got := map[string]string{}
		for name, site := range joined {
			c, err := node.Env.Client(site)
			if err != nil {
				return err
			}
			is := &corev1.ConfigMap{}
			if err := c.Get(ctx, client.ObjectKey{Namespace: ns, Name: "shop"}, is); client.IgnoreNotFound(err) != nil {
				return err
			} else if apierrors.IsNotFound(err) {
				is.Data = nil
			}
			got[name] = is.Data["currency"]
		}
		if diff := cmp.Diff(want, got); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// byItself tests that Refract uses only its own account on members, and that no request is rejected.
func byItself(t *testing.T) {
	t.Helper()
	for name, site := range joined {
		path, err := node.Env.View.AuditLog(site)
		if err != nil {
			t.Fatal(err)
		}
		wrote := false
		for _, q := range requestsIn(t, path) {
			wrote = wrote || q.ObjectRef.Resource == "configmaps"
			if q.User.Username != accounts+"refract-member" || q.refused() {
				t.Errorf("%s: %s: %s %s: %d %s", name, q.User.Username, q.Verb, q.RequestURI, q.ResponseStatus.Code, q.ResponseStatus.Message)
			}
		}
		if !wrote {
			t.Errorf("%s: want the account to have written the copy", name)
		}
	}
}
