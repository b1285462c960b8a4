//go:build unix

package harness

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/internal/playground"
)

// TestKept passes control planes from one Env to the next. Each Env leaves objects that are difficult to remove.
func TestKept(t *testing.T) {
	root, err := Root()
	if err != nil {
		t.Fatal(err)
	}
	assets, err := playground.Assets(filepath.Join(root, "bin", "refract"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	variable, stop, err := Keep(t.Context(), dir, assets, []Topology{{}, {Members: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		if err := ours.close(); err != nil { // The next round of this test must not find them.
			t.Error(err)
		}
	})
	name, value, _ := strings.Cut(variable, "=")
	t.Setenv(name, value)

	t.Run("FirstIsSame", func(t *testing.T) {
		e := mustOpen(t, Topology{Members: 1})
		if e.Playground != nil || !strings.HasPrefix(e.Kubeconfig("hub"), dir+"/") || !cmp.Equal(e.Members, []string{"member-1"}) {
			t.Errorf("Open(...): want the kept control planes in %s, got %q with %q", dir, e.Kubeconfig("hub"), e.Members)
		}
		mustClose(t, e)
	})

	t.Run("OneAtATime", func(t *testing.T) {
		e := mustOpen(t, Topology{Members: 1})
		for name, of := range map[string]Topology{
			"another hub with a member": {Members: 1},
			"more members":              {Members: 2},
			"members with Nodes":        {Members: 1, Nodes: true},
		} {
			if l, err := borrow(t.Context(), of); l != nil || err != nil {
				t.Errorf("borrow(%s): want no free control planes, got %v, %v", name, l, err)
			}
		}
		hub := mustOpen(t, Topology{})
		if l, err := borrow(t.Context(), Topology{}); l != nil || err != nil {
			t.Errorf("borrow(): want no other free hub, got %v, %v", l, err)
		}
		own := mustOpen(t, Topology{})
		if strings.HasPrefix(own.Kubeconfig("hub"), dir+"/") {
			t.Errorf("Open(...): want another hub, got %s", own.Kubeconfig("hub"))
		}
		mustClose(t, own, hub, e)
		e = mustOpen(t, Topology{Members: 1})
		mustClose(t, e)
	})

	t.Run("Types", func(t *testing.T) { wantEmptied(t, Topology{}, func(*testing.T, *Env) {}) })

	t.Run("Nasty", func(t *testing.T) {
		wantEmptied(t, Topology{Members: 1}, func(t *testing.T, e *Env) {
			t.Helper()
			for _, cluster := range []string{"hub", "member-1"} {
				leaveNasty(t, e, cluster)
			}
		})
	})
}

func mustOpen(t *testing.T, of Topology) *Env {
	t.Helper()
	began := time.Now()
	e, err := Open(t.Context(), of)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("Open(%+v) after %s", of, time.Since(began).Round(10*time.Millisecond))
	return e
}

func mustClose(t *testing.T, all ...*Env) {
	t.Helper()
	for _, e := range all {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// wantEmptied opens an Env with CRDs, calls leave, which creates objects, and closes the Env. Afterwards, a new Env
// must have the initial state again.
func wantEmptied(t *testing.T, of Topology, leave func(*testing.T, *Env)) {
	t.Helper()
	e := mustOpen(t, of)
	stored, listed := everythingOf(t, e)
	mustClose(t, e)

	of.CRDs = true
	e = mustOpen(t, of)
	leave(t, e)
	mustClose(t, e)

	of.CRDs = false
	e = mustOpen(t, of)
	// There is no retry after Open: removed admission policies and webhooks must no longer have an effect.
	for _, cluster := range append([]string{"hub"}, e.Members...) {
		wantAtHand(t, e, cluster)
	}
	mustClose(t, e)
	e = mustOpen(t, of)
	nowStored, nowListed := everythingOf(t, e)
	mustClose(t, e)
	if diff := cmp.Diff(stored, nowStored); diff != "" {
		t.Errorf("Content of etcd: -at first, +afterwards:\n%s", diff)
	}
	if diff := cmp.Diff(listed, nowListed); diff != "" {
		t.Errorf("Listed objects with their UIDs: -at first, +afterwards:\n%s", diff)
	}
}

// everythingOf returns the etcd keys and the listed objects of all clusters of an Env, except those that control planes
// create later.
func everythingOf(t *testing.T, e *Env) (stored, listed map[string][]string) {
	t.Helper()
	stored, listed = map[string][]string{}, map[string][]string{}
	for _, cluster := range append([]string{"hub"}, e.Members...) {
		keys, err := e.View.Stored(t.Context(), cluster, "/registry/")
		if err != nil {
			t.Fatal(err)
		}
		for key := range keys {
			if !strings.HasPrefix(key, "/registry/serviceaccounts/kube-system/") && !strings.HasPrefix(key, "/registry/leases/kube-system/") {
				stored[cluster] = append(stored[cluster], key)
			}
		}
		in, err := newInventory(e.Kubeconfig(cluster))
		if err != nil {
			t.Fatal(err)
		}
		all, err := in.list(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range all {
			listed[cluster] = append(listed[cluster], fmt.Sprintf("%s %s", &all[i], all[i].UID))
		}
		slices.Sort(stored[cluster])
		slices.Sort(listed[cluster])
	}
	return stored, listed
}

// wantAtHand checks that a cluster accepts ordinary requests, without a retry.
func wantAtHand(t *testing.T, e *Env, cluster string) {
	t.Helper()
	c := mustClient(t, e, cluster)
	for _, o := range []client.Object{
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "nasty", Namespace: "default"}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "nasty"}},
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "nasty", Namespace: "nasty"}},
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Errorf("%s: %v", cluster, err)
		}
		if o.GetNamespace() == "" {
			continue // The next object is created in this namespace.
		}
		if err := c.Delete(t.Context(), o); err != nil {
			t.Errorf("%s: %v", cluster, err)
		}
	}
}

func mustClient(t *testing.T, e *Env, cluster string) client.Client {
	t.Helper()
	c, err := e.Client(cluster)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// leaveNasty creates objects that prevent their own removal, or the removal of others.
func leaveNasty(t *testing.T, e *Env, cluster string) {
	t.Helper()
	c := mustClient(t, e, cluster)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("%s: %v", cluster, err)
		}
	}
	must(ApplyAll(t.Context(), c, nastyType))
	Eventually(t, cluster+": there are widgets", func(ctx context.Context) error { return ApplyAll(ctx, c, nastyWidget) })
	// From here on nobody can read the widget, because its conversion webhook does not exist.
	dead, err := FreePorts(1)
	must(err)
	unreadable := strings.NewReplacer(
		"storage: true", "storage: false", "storage: false", "storage: true", "strategy: None",
		"strategy: Webhook, webhook: {conversionReviewVersions: [v1], clientConfig: {url: 'https://"+dead[0]+"/convert'}}",
	).Replace(nastyType)
	must(ApplyAll(t.Context(), c, unreadable))
	Eventually(t, cluster+": the widget is unreadable", func(ctx context.Context) error {
		if w, err := e.Get(ctx, cluster, "widgets.v2.nasty.example.org", "default", "stuck"); err == nil {
			return fmt.Errorf("got %v", w)
		}
		return nil
	})

	// The API server fails to remove this type, and retries at increasing intervals.
	gadgets := strings.NewReplacer("widget", "gadget", "Widget", "Gadget", ", finalizers: [example.org/hold]", "")
	must(ApplyAll(t.Context(), c, gadgets.Replace(nastyType)))
	Eventually(t, cluster+": there are gadgets", func(ctx context.Context) error { return ApplyAll(ctx, c, gadgets.Replace(nastyWidget)) })
	must(ApplyAll(t.Context(), c, gadgets.Replace(unreadable)))
	must(DeleteCRD(t.Context(), c, "gadgets.nasty.example.org"))

	must(ApplyAll(t.Context(), c, nastyObjects))
	for _, name := range []string{"terminating", "held"} { // Their objects keep them.
		must(c.Delete(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	}
	must(c.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "nasty", Name: "going"}}))

	probe := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "probe", Namespace: "default"}}
	must(c.Create(t.Context(), probe))
	must(ApplyAll(t.Context(), c, nastyPolicy))
	Eventually(t, cluster+": no ConfigMap may be deleted", func(ctx context.Context) error {
		return refused(c.Delete(ctx, probe, client.DryRunAll), "it is to stay")
	})
	must(ApplyAll(t.Context(), c, strings.ReplaceAll(nastyWebhooks, "ADDRESS", dead[0])))
	Eventually(t, cluster+": nothing may be written", func(ctx context.Context) error {
		return errors.Join(
			refused(c.Patch(ctx, probe, client.RawPatch(types.MergePatchType, []byte(`{"data":{"a":"b"}}`)), client.DryRunAll), "connection refused"),
			refused(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, client.DryRunAll), "connection refused"))
	})
}

// refused returns an error unless err contains this reason.
func refused(err error, why string) error {
	if err == nil || !strings.Contains(err.Error(), why) {
		return fmt.Errorf("want a rejection because %s, got %w", why, err)
	}
	return nil
}

// nastyType is a CRD with a finalizer and the storage version v1.
const nastyType = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.nasty.example.org, finalizers: [example.org/hold]}
spec:
  group: nasty.example.org
  scope: Namespaced
  names: {plural: widgets, singular: widget, kind: Widget, listKind: WidgetList}
  conversion: {strategy: None}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
  - {name: v2, served: true, storage: false, schema: {openAPIV3Schema: {type: object}}}
`

const nastyWidget = `{apiVersion: nasty.example.org/v1, kind: Widget, metadata: {name: stuck, namespace: default, finalizers: [example.org/hold]}}`

const nastyObjects = `
{apiVersion: v1, kind: Namespace, metadata: {name: nasty, finalizers: [example.org/hold]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: terminating}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: held, finalizers: [example.org/hold]}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: kube-admiral-system}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: going, namespace: nasty, finalizers: [example.org/hold]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: nasty, finalizers: [example.org/hold]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: terminating, finalizers: [example.org/hold]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: plain, namespace: held}}
---
{apiVersion: v1, kind: Secret, metadata: {name: credentials, namespace: kube-admiral-system}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: left, namespace: default}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: held, namespace: default, finalizers: [example.org/hold]}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: left, namespace: kube-system}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: left, namespace: kube-public}}
---
{apiVersion: v1, kind: ServiceAccount, metadata: {name: cook, namespace: default}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: default}, spec: {ports: [{port: 80}]}}
---
{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: refract-leader, namespace: default}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec: {selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web, image: 'web:1'}]}}}
---
{apiVersion: v1, kind: PersistentVolume, metadata: {name: nasty, finalizers: [kubernetes.io/pv-protection]}, spec: {capacity: {storage: 1Gi}, accessModes: [ReadWriteOnce], hostPath: {path: /tmp}}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: nasty}, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRoleBinding, metadata: {name: nasty}, roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: nasty}}
---
{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: nasty, namespace: kube-system}, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1.dead.example.org}
spec: {group: dead.example.org, version: v1, groupPriorityMinimum: 1000, versionPriority: 10, insecureSkipTLSVerify: true, service: {name: web, namespace: default}}
`

const nastyPolicy = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: nasty}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: ['*'], resources: [configmaps], operations: [DELETE]}]}
  validations: [{expression: 'false', message: it is to stay}]
---
{apiVersion: admissionregistration.k8s.io/v1, kind: ValidatingAdmissionPolicyBinding, metadata: {name: nasty}, spec: {policyName: nasty, validationActions: [Deny]}}
`

const nastyWebhooks = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: nasty}
webhooks:
- name: namespaced.example.org
  clientConfig: {url: 'https://ADDRESS/validate'}
  rules: [{apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*'], operations: ['*'], scope: Namespaced}]
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: nasty}
webhooks:
- name: cluster.example.org
  clientConfig: {url: 'https://ADDRESS/mutate'}
  rules: [{apiGroups: ['*'], apiVersions: ['*'], resources: ['*/*'], operations: ['*'], scope: Cluster}]
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
`
