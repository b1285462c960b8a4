// Package inventory tests, with real control planes, that clusters in an inventory become members, and that a cluster
// stays a member when it disappears from the inventory.
package inventory

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/test/harness"
)

const (
	system = corev1alpha1.SystemNamespace
	// fleet and capi are the namespaces with inventories.
	fleet, capi = "fleet", "capi"
)

func TestMain(m *testing.M) {
	harness.Main(m, harness.Topology{Members: 3, CRDs: true}, func(_ context.Context, e *harness.Env) (func() error, error) {
		env = e
		return nil, nil //nolint:nilnil // There is nothing to stop.
	})
}

var env *harness.Env

// world is a hub with inventories, and the controllers that read them.
type world struct {
	*testing.T

	hub     client.WithWatch
	members map[string]client.WithWatch
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// types are the CRDs of the inventories. The tests need only their names, not their schemas.
const types = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: clusterprofiles.multicluster.x-k8s.io
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: multicluster.x-k8s.io
  scope: Namespaced
  names: {plural: clusterprofiles, singular: clusterprofile, kind: ClusterProfile, listKind: ClusterProfileList}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: clusters.cluster.x-k8s.io}
spec:
  group: cluster.x-k8s.io
  scope: Namespaced
  names: {plural: clusters, singular: cluster, kind: Cluster, listKind: ClusterList}
  versions:
  - name: v1beta1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: fleet}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: capi}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: kube-admiral-system}}
`

// workload is placed on the clusters of Europe.
const workload = `
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: europe, namespace: shop}
spec: {schedulingMode: Duplicate, clusterSelector: {topology.kubernetes.io/region: eu-1}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: web, namespace: shop, labels: {kubeadmiral.io/propagation-policy-name: europe}}
data: {a: b}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data, namespace: shop, labels: {kubeadmiral.io/propagation-policy-name: europe}}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// program is a credentials program of an operator: it prints a given token, valid for two minutes.
const program = `#!/bin/sh
echo run >> "$1.runs"
echo "$KUBERNETES_EXEC_INFO" > "$1.info"
until=$(date -u -d "+2 minutes" +%Y-%m-%dT%H:%M:%SZ)
printf '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"%s","expirationTimestamp":"%s"}}' "$(cat "$1")" "$until"
`

// TestInventories lets a cluster join from each kind of inventory, with credentials from each source, and leave.
func TestInventories(t *testing.T) {
	w := &world{T: t, members: map[string]client.WithWatch{}}
	var err error
	w.hub, err = env.Client("hub")
	w.must(err)
	for _, m := range env.Members {
		w.members[m], err = env.Client(m)
		w.must(err)
	}
	w.must(harness.ApplyAll(t.Context(), w.hub, types))
	w.must(harness.ApplyAll(t.Context(), w.hub, workload))
	w.must(env.Join(t.Context(), "by-hand", harness.Access{Endpoint: "https://127.0.0.1:1", Token: "none"}))

	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	w.must(os.WriteFile(token, []byte(w.token("member-2")), 0o600))
	command := filepath.Join(dir, "cloud")
	w.must(os.WriteFile(command, []byte(program), 0o700))
	providers := filepath.Join(dir, "providers.json")
	w.must(os.WriteFile(providers, fmt.Appendf(nil, `{"providers":[{"name":"cloud","execConfig":{"apiVersion":"client.authentication.k8s.io/v1",
		"command":%q,"args":[%q],"provideClusterInfo":true,"interactiveMode":"Never"}}]}`, command, token), 0o600))
	run, err := env.Replica("one", "--cluster-profiles", fleet, "--cluster-profile-providers", providers, "--cluster-api", capi)
	w.must(err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the log ends:\n%s", harness.LogTail(run.Log))
		}
	})
	harness.Eventually(t, "the controllers are ready", run.Ready)

	// The credentials come from a Secret. The Secret must name the server to which Refract may send the token.
	w.profile("eu-1", "secretreader", "member-1", "eu-1")
	w.await("NoCredentials", "secret kube-admiral-system/eu-1 does not exist: want one with the key token")
	w.secret(system, "eu-1", nil, map[string]string{"token": w.token("member-1")})
	w.await("NoCredentials", "kubectl annotate secret eu-1")
	to, err := env.Access("member-1")
	w.must(err)
	w.must(env.Patch(t.Context(), "hub", "secret", system, "eu-1", fmt.Sprintf(`{"metadata":{"annotations":{"refract.dev/endpoint":%q}}}`, to.Endpoint)))
	w.await("Listed", "the cluster is listed as ClusterProfile/fleet/eu-1")
	w.ready("eu-1")
	w.copies("member-1", true)

	// The credentials come from a program.
	w.profile("us-1", "cloud", "member-2", "us-1")
	w.ready("us-1")
	w.copies("member-2", false)
	info, err := os.ReadFile(token + ".info")
	w.must(err)
	if to, err := env.Access("member-2"); err != nil || !strings.Contains(string(info), to.Endpoint) {
		t.Errorf("want the cluster in the input of the program, got %s, %v", info, err)
	}

	// The cluster comes from Cluster API.
	text, err := os.ReadFile(env.Kubeconfig("member-3"))
	w.must(err)
	w.must(harness.ApplyAll(t.Context(), w.hub, `{apiVersion: cluster.x-k8s.io/v1beta1, kind: Cluster, metadata: {name: lab, namespace: capi, labels: {topology.kubernetes.io/region: eu-1, refract.dev/x: mine}}}`))
	w.secret(capi, "lab-kubeconfig", map[string]string{"cluster.x-k8s.io/cluster-name": "lab"}, map[string]string{"value": string(text)})
	w.ready("lab")
	w.copies("member-3", true)
	lab := w.cluster("lab")
	if lab.Labels["refract.dev/x"] != "" || lab.Annotations["refract.dev/inventory"] != "Cluster/capi/lab" {
		t.Errorf("want the labels except Refract's own, and the inventory: got %v, %v", lab.Labels, lab.Annotations)
	}

	// A property of the cluster becomes a label, and other labels stay unchanged.
	w.must(env.Patch(t.Context(), "hub", "federatedcluster", "", "us-1", `{"metadata":{"labels":{"tier":"gold"}}}`))
	w.profile("us-1", "cloud", "member-2", "eu-1")
	w.copies("member-2", true)
	if us := w.cluster("us-1"); us.Labels["tier"] != "gold" {
		t.Errorf("want other labels unchanged, got %v", us.Labels)
	}

	// A listed cluster must not replace a cluster of the same name that a user has joined. An event reports an unknown
	// provider.
	before := w.cluster("by-hand")
	w.profile("by-hand", "secretreader", "member-1", "eu-1")
	w.event("by-hand", "NameTaken", "has already joined, by hand")
	if after := w.cluster("by-hand"); after.Generation != before.Generation {
		t.Errorf("want the user's cluster unchanged, got %+v", after.Spec)
	}
	w.profile("strange", "elsewhere", "member-1", "eu-1")
	w.event("strange", "UnknownProvider", "its access providers are elsewhere, and Refract knows none of them")

	// A user cannot remove a listed cluster, because it would join again.
	if _, err := env.Refract("unjoin", "eu-1", "--kubeconfig", env.Kubeconfig("hub"), "--yes"); err == nil || !strings.Contains(err.Error(), "because ClusterProfile/fleet/eu-1 lists it") {
		t.Errorf("refract unjoin: want a rejection, got %v", err)
	}

	// A cluster that is no longer listed stays a member until a user removes it.
	w.delete("eu-1")
	w.await("Gone", "until you remove it: refract unjoin eu-1")
	harness.Consistently(t, "the copies stay", 2*time.Second, func(ctx context.Context) error { return w.has(ctx, "member-1", true) })
	claim := w.claim("member-1")
	if _, err := env.Refract("unjoin", "eu-1", "--kubeconfig", env.Kubeconfig("hub"), "--yes"); err != nil {
		t.Error(err)
	}
	w.copies("member-1", false)
	if left := w.claim("member-1"); left.UID != claim.UID || left.DeletionTimestamp != nil || left.Labels[corev1alpha1.ManagedLabel] != "" {
		t.Errorf("want the claim to stay as a plain object of the cluster, got %v", left.ObjectMeta)
	}
	harness.Eventually(t, "the Secret is gone", func(ctx context.Context) error {
		err := w.hub.Get(ctx, client.ObjectKey{Namespace: system, Name: "eu-1-inventory"}, &corev1.Secret{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})

	// After the deletion of the inventory type, Refract does not know whether its clusters are listed, so they stay
	// members.
	w.must(harness.DeleteCRD(t.Context(), w.hub, "clusterprofiles.multicluster.x-k8s.io"))
	harness.Consistently(t, "the copies stay", 2*time.Second, func(ctx context.Context) error { return w.has(ctx, "member-2", true) })
}

// token returns a token of an administrator account on a member.
func (w *world) token(member string) string {
	w.Helper()
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "inventory"}}
	w.must(client.IgnoreAlreadyExists(w.members[member].Create(w.Context(), account)))
	w.must(client.IgnoreAlreadyExists(w.members[member].Create(w.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "inventory"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: account.Namespace, Name: account.Name}},
	})))
	request := &authenticationv1.TokenRequest{}
	w.must(w.members[member].SubResource("token").Create(w.Context(), account, request))
	return request.Status.Token
}

// profile lists a cluster in the inventory, with the provider of its credentials, the member that it is, and its
// region.
func (w *world) profile(name, provider, member, region string) {
	w.Helper()
	to, err := env.Access(member)
	w.must(err)
	w.must(harness.ApplyAll(w.Context(), w.hub, fmt.Sprintf(`{apiVersion: multicluster.x-k8s.io/v1alpha1, kind: ClusterProfile, metadata: {name: %s, namespace: %s}, spec: {clusterManager: {name: test}}}`, name, fleet)))
	w.must(env.Patch(w.Context(), "hub", "clusterprofile.multicluster.x-k8s.io", fleet, name, fmt.Sprintf(
		`{"status":{"properties":[{"name":"topology.kubernetes.io/region","value":%q},{"name":"no label","value":"!"}],
			"accessProviders":[{"name":%q,"cluster":{"server":%q,"certificate-authority-data":%q}}]}}`,
		region, provider, to.Endpoint, base64.StdEncoding.EncodeToString(to.CA)), "status"))
}

func (w *world) delete(profile string) {
	w.Helper()
	w.must(env.Delete(w.Context(), "hub", "clusterprofile.multicluster.x-k8s.io", fleet, profile))
}

func (w *world) secret(namespace, name string, labels, data map[string]string) {
	w.Helper()
	w.must(w.hub.Create(w.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, StringData: data}))
}

func (w *world) cluster(name string) *corev1alpha1.FederatedCluster {
	w.Helper()
	fc := &corev1alpha1.FederatedCluster{}
	w.must(w.hub.Get(w.Context(), client.ObjectKey{Name: name}, fc))
	return fc
}

// await waits until the condition InInventory of eu-1 has a reason and a text in its message.
func (w *world) await(reason, text string) {
	w.Helper()
	harness.Eventually(w, "eu-1 is "+reason, func(ctx context.Context) error {
		c, err := w.condition(ctx, "eu-1", corev1alpha1.ClusterInInventory)
		if err == nil && (c.Reason != reason || !strings.Contains(c.Message, text)) {
			err = fmt.Errorf("it is %s: %s", c.Reason, c.Message)
		}
		return err
	})
}

// ready waits until a cluster is ready.
func (w *world) ready(name string) {
	w.Helper()
	harness.Eventually(w, name+" is ready", func(ctx context.Context) error {
		c, err := w.condition(ctx, name, corev1alpha1.ClusterReady)
		if err == nil && c.Status != metav1.ConditionTrue {
			err = fmt.Errorf("it is not: %s: %s", c.Reason, c.Message)
		}
		return err
	})
}

func (w *world) condition(ctx context.Context, name string, of corev1alpha1.ClusterConditionType) (corev1alpha1.ClusterCondition, error) {
	fc := &corev1alpha1.FederatedCluster{}
	if err := w.hub.Get(ctx, client.ObjectKey{Name: name}, fc); err != nil {
		return corev1alpha1.ClusterCondition{}, err
	}
	for _, c := range fc.Status.Conditions {
		if c.Type == of {
			return c, nil
		}
	}
	return corev1alpha1.ClusterCondition{}, fmt.Errorf("there is no condition %s", of)
}

// copies waits until a member has a copy of the workload, or has none.
func (w *world) copies(member string, want bool) {
	w.Helper()
	harness.Eventually(w, fmt.Sprintf("%s has a copy: %t", member, want), func(ctx context.Context) error { return w.has(ctx, member, want) })
}

func (w *world) has(ctx context.Context, member string, want bool) error {
	err := w.members[member].Get(ctx, client.ObjectKey{Namespace: "shop", Name: "web"}, &corev1.ConfigMap{})
	switch {
	case client.IgnoreNotFound(err) != nil:
		return err
	case (err == nil) != want:
		return fmt.Errorf("it has one: %t", err == nil)
	default:
		return nil
	}
}

// claim returns the copy of the claim on a member.
func (w *world) claim(member string) *corev1.PersistentVolumeClaim {
	w.Helper()
	claim := &corev1.PersistentVolumeClaim{}
	harness.Eventually(w, member+" has the claim", func(ctx context.Context) error {
		return w.members[member].Get(ctx, client.ObjectKey{Namespace: "shop", Name: "data"}, claim)
	})
	return claim
}

// event waits for an event on a ClusterProfile.
func (w *world) event(profile, reason, text string) {
	w.Helper()
	harness.Eventually(w, profile+" is told "+reason, func(ctx context.Context) error {
		var all corev1.EventList
		if err := w.hub.List(ctx, &all, client.InNamespace(fleet)); err != nil {
			return err
		}
		var said []string
		for i := range all.Items {
			e := &all.Items[i]
			if e.InvolvedObject.Name == profile && e.Reason == reason && strings.Contains(e.Message, text) {
				return nil
			}
			said = append(said, e.InvolvedObject.Name+": "+e.Reason+": "+e.Message)
		}
		return fmt.Errorf("the events are %q", said)
	})
}
