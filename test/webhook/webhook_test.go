// Package webhook tests the webhooks of a hub with a real API server.
package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/hub"
	"refract.dev/fleet/policies"
	"refract.dev/internal/webhook"
	"refract.dev/kit/webhook/pki"
	"refract.dev/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m, harness.Topology{}, nil) }

const fleet = `
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: FederatedCluster
metadata: {name: eu-1, labels: {region: eu}}
spec: {apiEndpoint: https://eu-1.example, secretRef: {name: eu-1}}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: PropagationPolicy
metadata: {name: everywhere, namespace: shop}
spec: {schedulingMode: Duplicate}
---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: web
  namespace: shop
  labels: {kubeadmiral.io/propagation-policy-name: everywhere, kubeadmiral.io/override-policy-name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: "registry.example/web:1.0", env: [{name: REGION, value: none}]}]}
---
apiVersion: core.kubeadmiral.io/v1alpha1
kind: OverridePolicy
metadata: {name: web, namespace: shop}
spec:
  overrideRules:
  - overriders: {envs: [{containerName: web, value: [{name: REGION, value: eu}]}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: writer, namespace: shop}
rules:
- {apiGroups: [core.kubeadmiral.io], resources: [overridepolicies], verbs: ["*"]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: writer, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: writer}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: bob}]
`

// policy returns the fleet's override policy with other rules.
func policy(rules string) string {
	return `{apiVersion: core.kubeadmiral.io/v1alpha1, kind: OverridePolicy, metadata: {name: web, namespace: shop}, spec: {overrideRules: ` + rules + `}}`
}

var quiet = funcr.New(func(_, _ string) {}, funcr.Options{})

// reader reads the fleet from the API server each time.
type reader struct{ cfg *rest.Config }

func (r reader) Objects(ctx context.Context) ([]*unstructured.Unstructured, error) {
	contents, err := hub.Read(ctx, r.cfg)
	if err != nil {
		return nil, err
	}
	return contents.Objects, nil
}

// world is a hub and the programs that work with it.
type world struct {
	env     *harness.Env
	cfg     *rest.Config
	client  client.WithWatch
	address string
	// ahead is the difference between the webhook's clock and the real time.
	ahead atomic.Int64
}

func begin(t *testing.T) *world {
	t.Helper()
	w := &world{env: harness.New(t, harness.Topology{CRDs: true})}
	var err error
	if w.cfg, err = w.env.Config("hub"); err != nil {
		t.Fatal(err)
	}
	if w.client, err = harness.ClientFor(w.cfg); err != nil {
		t.Fatal(err)
	}
	addresses, err := harness.FreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	w.address = addresses[0]
	return w
}

// serve runs the webhook parts of `refract run`, and returns a function that stops them.
func (w *world) serve(t *testing.T) (stop func()) {
	t.Helper()
	server, err := webhook.New(webhook.Options{
		Client: w.client, Namespace: corev1alpha1.SystemNamespace, BindAddress: w.address, URL: "https://" + w.address, Log: quiet,
		Now: func() time.Time { return time.Now().Add(time.Duration(w.ahead.Load())) },
	})
	if err != nil {
		t.Fatal(err)
	}
	handler, err := policies.New(policies.Options{
		Fleet: reader{w.cfg}, Allowed: policies.Review(w.client), Client: w.client, Log: quiet, Patience: 8 * time.Second,
	})
	if err != nil {
		t.Fatal(err)
	}
	server.Handle(webhook.PoliciesPath, handler)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := server.Start(ctx); err != nil {
			t.Errorf("The server ended: %v", err)
		}
	})
	running.Go(func() {
		if err := server.Registration().Start(ctx); err != nil {
			t.Errorf("The registration ended: %v", err)
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	harness.Eventually(t, "the server is ready", func(context.Context) error { return server.Ready() })
	return stop
}

// do runs kubectl and returns its whole output.
func (w *world) do(stdin string, args ...string) (string, error) {
	return w.env.KubectlSays("hub", stdin, args...)
}

// must runs kubectl, which must succeed and print all of these.
func (w *world) must(t *testing.T, reason, stdin string, want []string, args ...string) {
	t.Helper()
	out, err := w.do(stdin, args...)
	if err != nil {
		t.Errorf("%s\nkubectl %s: %v\n%s", reason, strings.Join(args, " "), err, out)
	}
	harness.WantAll(t, reason, out, want)
}

// mustNot runs kubectl, which must fail and print all of these.
func (w *world) mustNot(t *testing.T, reason, stdin string, want []string, args ...string) {
	t.Helper()
	out, err := w.do(stdin, args...)
	if err == nil {
		t.Errorf("%s\nkubectl %s must fail:\n%s", reason, strings.Join(args, " "), out)
	}
	harness.WantAll(t, reason, out, want)
}

func (w *world) registration(t *testing.T) (*admissionregistrationv1.ValidatingWebhookConfiguration, error) {
	t.Helper()
	is := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	return is, w.client.Get(t.Context(), client.ObjectKey{Name: webhook.ConfigurationName}, is)
}

// checked waits until the API server calls the webhook.
func (w *world) checked(t *testing.T) {
	t.Helper()
	harness.Eventually(t, "the API server calls the webhook", func(context.Context) error {
		if out, err := w.do(policy(`[{overriders: {jsonpatch: [{path: no-pointer}]}}]`), "apply", "--dry-run=server", "-f", "-"); err == nil {
			return fmt.Errorf("a broken policy is accepted: %s", out)
		}
		return nil
	})
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	w := begin(t)
	w.must(t, "No webhook is configured yet.", fleet, nil, "apply", "-f", "-")
	w.must(t, "The controllers would set this status.", "", nil, "patch", "federatedcluster", "eu-1", "--subresource=status", "--type=merge", "-p",
		`{"status":{"conditions":[{"type":"Ready","status":"True","lastProbeTime":"2026-01-01T00:00:00Z","lastTransitionTime":"2026-01-01T00:00:00Z","reason":"a","message":"b"}]}}`)
	stop := w.serve(t)
	w.checked(t)

	t.Run("Answers", w.answers)
	t.Run("Secrets", w.secrets)
	t.Run("Restored", w.restored)
	stop()
	t.Run("Down", w.down)
	t.Run("Rotation", w.rotation)
}

func (w *world) answers(t *testing.T) {
	w.mustNot(t, "Each mistake is reported at its field, like the mistakes that API servers find.",
		policy(`[{overriders: {jsonpatch: [{path: /metadata/uid, value: a}, {path: /metadata/name, value: a}]}}]`),
		[]string{
			`The OverridePolicy "web" is invalid`, "spec.overrideRules[0].overriders.jsonpatch[0].path: Forbidden: /metadata/uid may not be overridden",
			"spec.overrideRules[0].overriders.jsonpatch[1].path: Forbidden: /metadata/name may not be overridden",
		}, "apply", "-f", "-")
	w.mustNot(t, "A policy that fails on an object of the fleet is rejected.",
		policy(`[{overriders: {jsonpatch: [{path: /spec/tmplate/a, operator: add, value: 1}]}}]`),
		[]string{"/spec/tmplate does not exist (Deployment shop/web on eu-1); did you mean /spec/template?"}, "apply", "-f", "-")
	changed := policy(`[{targetClusters: {clusterSelector: {region: eu}}, overriders: {envs: [{containerName: web, value: [{name: REGION, value: europe}]}]}}, {targetClusters: {clusters: [us-1]}}]`)
	warnings := []string{
		"Warning: changes 1 Deployment on cluster eu-1, which will roll",
		`Warning: spec.overrideRules[1].targetClusters.clusters[0]: there is no cluster "us-1"`,
	}
	w.must(t, "A dry run shows the effects.", changed, warnings, "apply", "--dry-run=server", "-f", "-")
	w.must(t, "The write has the same warnings as the dry run.", changed, warnings, "apply", "-f", "-")
	if out, err := w.do("", "label", "overridepolicy", "web", "-n", "shop", "a=b"); err != nil || strings.Contains(out, "Warning") {
		t.Errorf("A label of a policy must cause no warning: %v\n%s", err, out)
	}
	w.must(t, "A change of a cluster's labels causes a warning about its effects.", "", []string{"Warning: changes 1 Deployment on cluster eu-1, which will roll"},
		"label", "federatedcluster", "eu-1", "region-", "--dry-run=server")
	w.must(t, "A change of a cluster's taints causes a warning about its effects.", "", []string{"Warning: removes 1 Deployment from cluster eu-1"},
		"patch", "federatedcluster", "eu-1", "--dry-run=server", "--type=merge", "-p", `{"spec":{"taints":[{"key":"a","effect":"NoExecute"}]}}`)
}

func (w *world) secrets(t *testing.T) {
	refers := policy(`[{overriders: {envs: [{containerName: web, operator: addIfAbsent, value: [{name: A, valueFrom: {secretKeyRef: {name: db, key: a}}}]}]}}]`)
	w.mustNot(t, "Bob may not add a reference to a Secret that he may not read.", refers, []string{"Forbidden", "Secret shop/db"},
		"replace", "-f", "-", "--as", "bob")
	for _, args := range [][]string{
		{"create", "role", "reader", "-n", "shop", "--verb=get", "--resource=secrets", "--resource-name=db"},
		{"create", "rolebinding", "reader", "-n", "shop", "--role=reader", "--user=bob"},
	} {
		w.must(t, "Bob gets the right.", "", nil, args...)
	}
	harness.Eventually(t, "bob's right is in effect", func(context.Context) error {
		out, err := w.do(refers, "replace", "-f", "-", "--as", "bob")
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

func (w *world) restored(t *testing.T) {
	for reason, args := range map[string][]string{
		"Deleted.":  {"delete"},
		"Weakened.": {"patch", "--type=json", "-p", `[{"op":"replace","path":"/webhooks/0/failurePolicy","value":"Ignore"}]`},
		"Narrowed.": {"patch", "--type=json", "-p", `[{"op":"add","path":"/webhooks/0/matchConditions/-","value":{"name":"never","expression":"false"}}]`},
		"Aside.":    {"patch", "--type=json", "-p", `[{"op":"add","path":"/webhooks/0/objectSelector/matchLabels","value":{"a":"b"}}]`},
	} {
		args = append(args, "validatingwebhookconfiguration", webhook.ConfigurationName)
		w.must(t, reason, "", nil, args...)
		harness.Eventually(t, "the configuration is restored: "+reason, func(context.Context) error {
			is, err := w.registration(t)
			if err != nil {
				return err
			}
			if hook := is.Webhooks[0]; *hook.FailurePolicy != admissionregistrationv1.Fail || len(hook.MatchConditions) != 1 || len(hook.ObjectSelector.MatchLabels) != 0 {
				return errors.New("it is not")
			}
			return nil
		})
	}
	w.checked(t)
}

// down tests requests while no webhook answers.
func (w *world) down(t *testing.T) {
	down := []string{"failed calling webhook"}
	w.mustNot(t, "Policies cannot be written without the check.", policy(`[{overriders: {labels: [{value: {a: b}}]}}]`), down, "apply", "-f", "-")
	w.mustNot(t, "Clusters cannot be written without the check.", "", down, "label", "federatedcluster", "eu-1", "region=us", "--overwrite")
	const other = "Other objects can be written."
	w.must(t, other, "", nil, "create", "configmap", "settings", "-n", "shop")
	w.must(t, other, "", nil, "scale", "deployment", "web", "-n", "shop", "--replicas=2")
	const own = "The controllers can still write finalizers, annotations and status."
	w.must(t, own, "", nil, "patch", "federatedcluster", "eu-1", "--type=merge", "-p", `{"metadata":{"finalizers":["refract.dev/propagation"]}}`)
	w.must(t, own, "", nil, "annotate", "federatedcluster", "eu-1", "refract.dev/approve-deletions=1")
	w.must(t, own, "", nil, "patch", "federatedcluster", "eu-1", "--subresource=status", "--type=merge", "-p", `{"status":{"joinPerformed":true}}`)
	w.must(t, own, "", nil, "patch", "overridepolicy", "web", "-n", "shop", "--subresource=status", "--type=merge", "-p", `{"status":{"refCount":1}}`)
	w.must(t, "Deletions are allowed.", "", nil, "delete", "federatedcluster", "eu-1", "--wait=false")
	w.must(t, own, "", nil, "patch", "federatedcluster", "eu-1", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	w.must(t, "Deletions are allowed.", "", nil, "delete", "overridepolicy", "web", "-n", "shop")
}

// rotation renews the certificate authority and the certificate while clients write policies. The authority should have
// been renewed two months ago, and a new one has been added.
func (w *world) rotation(t *testing.T) {
	const ago = -61 * 24 * time.Hour
	past := time.Now().Add(ago)
	issuer := pki.Issuer{Names: []string{"127.0.0.1"}, Now: func() time.Time { return past.Add(-pki.AuthorityLife / 3 * 2) }}
	bundle, _, err := issuer.Renew(nil)
	if err == nil {
		issuer.Now = func() time.Time { return past }
		bundle, _, err = issuer.Renew(bundle)
	}
	if err != nil {
		t.Fatal(err)
	}
	data, err := bundle.Data()
	if err != nil {
		t.Fatal(err)
	}
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: corev1alpha1.SystemNamespace, Name: webhook.SecretName}
	store := func(change func()) {
		t.Helper()
		harness.Eventually(t, "the Secret is written", func(context.Context) error {
			if err := w.client.Get(t.Context(), key, secret); err != nil {
				return err
			}
			change()
			return w.client.Update(t.Context(), secret)
		})
	}
	store(func() { secret.Data = data })
	w.ahead.Store(int64(ago))
	w.serve(t)
	harness.Eventually(t, "both authorities are trusted", func(context.Context) error {
		is, err := w.registration(t)
		if err != nil {
			return err
		}
		if got := is.Webhooks[0].ClientConfig.CABundle; !bytes.Equal(got, data[pki.Authorities]) {
			return fmt.Errorf("trusted is\n%s", got)
		}
		return nil
	})
	w.checked(t)

	ctx, cancel := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	var written atomic.Int64
	for i := range 4 {
		writers.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				p := &corev1alpha1.PropagationPolicy{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("p-%d-%d", i, n)},
					Spec:       corev1alpha1.PropagationPolicySpec{SchedulingMode: corev1alpha1.SchedulingModeDuplicate},
				}
				if err := w.client.Create(t.Context(), p); err != nil {
					t.Errorf("A write failed: %v", err)
					return
				}
				written.Add(1)
			}
		})
	}
	more := func() {
		before := written.Load()
		harness.Eventually(t, "policies are written", func(context.Context) error {
			if written.Load() < before+20 && !t.Failed() {
				return errors.New("not enough")
			}
			return nil
		})
	}
	more()
	w.ahead.Store(0)
	store(func() { metav1.SetMetaDataAnnotation(&secret.ObjectMeta, "example.com/look", "now") })
	harness.Eventually(t, "the certificate is renewed", func(context.Context) error {
		if err := w.client.Get(t.Context(), key, secret); err != nil {
			return err
		}
		if bytes.Equal(secret.Data[pki.ServingCertificate], data[pki.ServingCertificate]) {
			return errors.New("it is the old one")
		}
		return nil
	})
	more()
	w.checked(t)
	cancel()
	writers.Wait()
	leaf, err := cert.ParseCertsPEM(secret.Data[pki.ServingCertificate])
	if err != nil {
		t.Fatal(err)
	}
	authorities, err := cert.ParseCertsPEM(secret.Data[pki.Authorities])
	if err != nil || len(authorities) != 2 {
		t.Fatalf("There are %d authorities, %v, want the old one and the new one", len(authorities), err)
	}
	if err := leaf[0].CheckSignatureFrom(authorities[1]); err != nil {
		t.Errorf("The new authority must have signed the certificate: %v", err)
	}
}
