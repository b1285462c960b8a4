package installation

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/test/harness"
)

// shop is a namespace of the hub with an object that has a copy on the member.
const shop = `
apiVersion: v1
kind: Namespace
metadata: {name: NS}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere, namespace: NS}
spec: {schedulingMode: Duplicate}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings, namespace: NS, labels: {kubeadmiral.io/propagation-policy-name: everywhere}}
data: {color: blue}
`

// TestNamespacesAfterLeaving: after every way to remove Refract from a hub, users can delete namespaces, and the copies stay.
func TestNamespacesAfterLeaving(t *testing.T) {
	t.Parallel()
	const member = "member-2"
	w := begin(t, 2)
	config := w.contexts(site, member)
	there, err := w.Client(member)
	if err != nil {
		t.Fatal(err)
	}
	root, err := harness.Root()
	if err != nil {
		t.Fatal(err)
	}
	manifest := w.must("install", "--export", "--image", image)
	for i, way := range []struct {
		name  string
		leave func()
	}{
		{"kubectl delete -k", func() { w.kubectl("", "delete", "-k", filepath.Join(root, "config", "install"), "--wait=false") }},
		{"helm uninstall", func() { w.asHelm(manifest) }},
		{"refract uninstall", nil},
	} {
		w.kubectl(manifest, "apply", "-f", "-")
		replica := w.start("refract")
		w.must("join", "eu-1", "--kubeconfig", config, "--member-context", member)
		var shops []string
		for n := range 5 {
			shops = append(shops, fmt.Sprintf("shop-%d-%d", i, n))
			w.kubectl(strings.ReplaceAll(shop, "NS", shops[n]), "apply", "-f", "-")
		}
		copied := func(name string) error {
			return there.Get(t.Context(), types.NamespacedName{Namespace: name, Name: "settings"}, &corev1.ConfigMap{})
		}
		for _, name := range shops {
			harness.Eventually(t, way.name+": a copy in "+name, func(context.Context) error { return copied(name) })
			harness.Eventually(t, way.name+": a report in "+name, func(context.Context) error {
				out, err := w.Kubectl(site, "", "get", "propagation", "settings.configmaps", "-n", name, "-o", "jsonpath={.status.synced}")
				if err == nil && out != "1" {
					err = fmt.Errorf("%q copies are correct", out)
				}
				return err
			})
		}

		if way.leave == nil { // The test ends the replica that runs in place of the pods.
			w.kill(replica)
			out := w.must("uninstall")
			harness.WantAll(t, "The output names the remaining copies.", out, []string{"5 copies stay on eu-1", "Refract is removed from the cluster"})
		} else {
			way.leave()
			w.gone("deployment", &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: "refract"}})
			if err := replica.Stop(syscall.SIGTERM); err != nil {
				t.Logf("%s: the replica ended without its rights: %v", way.name, err)
			}
		}

		began := time.Now()
		w.kubectl("", append([]string{"delete", "namespace", "--wait=false"}, shops...)...)
		for _, name := range shops {
			w.gone(way.name+": namespace", namespaceOf(name))
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%s: want the namespaces deleted within a minute, got %v", way.name, took)
		}
		for _, name := range shops {
			if err := copied(name); err != nil {
				t.Errorf("%s: want the copy to stay, got %v", way.name, err)
			}
		}
		if way.leave != nil { // While the Lease exists, uninstall waits for the replica.
			w.kubectl("", "delete", "lease", "--all", "-n", system, "--ignore-not-found")
			w.must("uninstall")
		}
		w.kubectl("", "delete", "federatedcluster", "eu-1", "--wait=false")
		w.gone(way.name+": federatedcluster", &corev1alpha1.FederatedCluster{ObjectMeta: metav1.ObjectMeta{Name: "eu-1"}})
		w.must("uninstall", "--purge", "--yes")
		w.gone("namespace", namespaceOf(system))
	}
}

// asHelm deletes the objects of a manifest like `helm uninstall`: in Helm's order, one after the other, without waiting
// until each is gone.
func (w *world) asHelm(manifest string) {
	w.t.Helper()
	order := []string{"Service", "Deployment", "RoleBinding", "Role", "ClusterRoleBinding", "ClusterRole", "ServiceAccount", "PodDisruptionBudget", "NetworkPolicy"}
	var objects []*unstructured.Unstructured
	for text := range strings.SplitSeq(manifest, "\n---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
			w.t.Fatal(err)
		}
		switch o.GetKind() {
		case "", "CustomResourceDefinition", "Namespace": // Helm keeps CRDs, and has not created the namespace.
		default:
			objects = append(objects, o)
		}
	}
	rank := func(o *unstructured.Unstructured) int {
		if at := slices.Index(order, o.GetKind()); at >= 0 {
			return at
		}
		return len(order)
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	for _, o := range objects {
		if err := client.IgnoreNotFound(w.client.Delete(w.t.Context(), o, client.PropagationPolicy("Background"))); err != nil {
			w.t.Fatal(err)
		}
	}
}
