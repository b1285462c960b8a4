package pizza

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/examples/pizza/restaurant"
	"refract.dev/fleet/offline/schema"
	"refract.dev/kit/webhook"
	"refract.dev/test/harness"
)

// TestManifests: the manifests for a cluster are valid. The webhook's account has the rights to watch the toppings, to
// keep its certificate, and to write the CA bundles.
func TestManifests(t *testing.T) {
	t.Parallel()
	byServer.take(t)
	s := empty(t, byServer)
	s.silence() // The test uses the webhook's address itself.
	s.clear()   // The manifests contain the definitions.
	out, err := s.kubectlIn("apply", "-k", "examples/pizza/manifests/cluster")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Cleanup(func() {
		_ = s.api.Delete(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: secret}})
	})
	s.must(client.IgnoreNotFound(s.api.Delete(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: home, Name: secret}})))
	cfg := rest.CopyConfig(s.cfg)
	cfg.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + home + ":webhook",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + home, "system:authenticated"},
	}
	account, err := harness.ClientFor(cfg)
	s.must(err)
	host, _, err := net.SplitHostPort(s.address)
	s.must(err)
	certificates := webhook.Issued(account, types.NamespacedName{Namespace: home, Name: secret},
		[]string{"webhook.pizza-crd.svc", host}, webhook.IssuedOptions{Log: s.log.logger()})
	server, err := webhook.New(webhook.Options{BindAddress: s.address, Certificates: certificates, Log: s.log.logger()})
	s.must(err)
	opened, err := restaurant.New(restaurant.Options{Config: cfg, Server: server, Log: s.log.logger()})
	s.must(err)
	trust := webhook.Trust(account, certificates, webhook.Targets{CRDs: []string{pizzas}, Mutating: []string{group}, Validating: []string{group}}, s.log.logger())
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	for _, part := range []interface{ Start(context.Context) error }{server, opened, trust} {
		running.Go(func() {
			if err := part.Start(ctx); err != nil {
				t.Errorf("%T has ended: %v", part, err)
			}
		})
	}
	defer running.Wait()
	defer cancel()
	s.until("the webhook is ready", func(context.Context) error { return server.Ready() })
	s.until("the CA bundles of all three objects are correct", func(ctx context.Context) error {
		crd, err := s.definition(ctx, pizzas)
		if err != nil {
			return err
		}
		bundles := [][]byte{crd.Spec.Conversion.Webhook.ClientConfig.CABundle}
		m := &admissionregistrationv1.MutatingWebhookConfiguration{}
		v := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		for _, o := range []client.Object{m, v} {
			if err := s.api.Get(ctx, client.ObjectKey{Name: group}, o); err != nil {
				return err
			}
		}
		bundles = append(bundles, m.Webhooks[0].ClientConfig.CABundle, v.Webhooks[0].ClientConfig.CABundle)
		for i, b := range bundles {
			if len(certificates.Trusted()) == 0 || !bytes.Equal(bytes.TrimSpace(b), bytes.TrimSpace(certificates.Trusted())) {
				return fmt.Errorf("the CA bundle of object %d is wrong", i)
			}
		}
		return nil
	})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certificates.Trusted())
	if _, err := s.presented(s.address).Verify(x509.VerifyOptions{DNSName: "webhook.pizza-crd.svc", Roots: roots}); err != nil {
		t.Errorf("the certificate does not match the name of the Service: %v", err)
	}

	service := &corev1.Service{}
	s.must(s.api.Get(t.Context(), client.ObjectKey{Namespace: home, Name: "webhook"}, service))
	if p := service.Spec.Ports[0]; p.Port != 443 || p.TargetPort.IntValue() != 8443 {
		t.Errorf("the Service maps %d to %s", p.Port, p.TargetPort.String())
	}
	// A second apply of all manifests must not revert changes.
	if out, err := s.kubectlIn("apply", "-k", "examples/pizza/manifests/cluster"); err != nil || strings.Contains(out, " created") {
		t.Errorf("%v\n%s", err, out)
	}
	crd, err := s.definition(t.Context(), pizzas)
	s.must(err)
	if diff := cmp.Diff([]string{"v1", "v1beta1"}, crd.Spec.Conversion.Webhook.ConversionReviewVersions); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if len(crd.Spec.Conversion.Webhook.ClientConfig.CABundle) == 0 {
		t.Error("kubectl apply has removed the caBundle")
	}
}

// TestRendered: Kubernetes knows all fields of the rendered manifests. With cert-manager, the webhook has no rights to
// write certificates and CA bundles.
func TestRendered(t *testing.T) {
	t.Parallel()
	known, _ := schema.New(nil)
	for _, folder := range []string{"crds", "admission", "cluster", "cert-manager", "playground/conversion", "playground/admission"} {
		out, err := byServer.kubectlIn("kustomize", "examples/pizza/manifests/"+folder)
		if err != nil {
			t.Fatalf("%s: %v\n%s", folder, err, out)
		}
		all, err := decode(out)
		if err != nil {
			t.Fatalf("%s: %v", folder, err)
		}
		injected := 0
		for _, u := range all {
			if found := known.Check(u.Object); found != nil {
				t.Errorf("%s: %s %s: %v", folder, u.GetKind(), u.GetName(), found)
			}
			if u.GetAnnotations()["cert-manager.io/inject-ca-from"] == "pizza-crd/webhook" {
				injected++
			}
			if folder == "cert-manager" && (strings.HasSuffix(u.GetName(), "-trust") || u.GetName() == "webhook-certificates") {
				t.Errorf("the webhook does not need %s %s", u.GetKind(), u.GetName())
			}
		}
		if want := map[string]int{"cert-manager": 3}[folder]; injected != want {
			t.Errorf("%s: cert-manager injects into %d objects, want %d", folder, injected, want)
		}
	}
}

// TestCommand runs the program of the webhook until SIGTERM. The shutdown takes long, because clients must notice it.
// So the program has its own address and Secret, and other tests can run meanwhile.
func TestCommand(t *testing.T) {
	t.Parallel()
	program := filepath.Join(t.TempDir(), "pizza-crd-webhook")
	build := exec.Command("go", "build", "-o", program, "./examples/pizza/cmd/pizza-crd-webhook")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	ports, err := harness.FreePorts(2)
	if err != nil {
		t.Fatal(err)
	}
	address, health := ports[0], ports[1]
	over := byServer.take(t)
	s := begin(t, byServer, setting{alone: true, edit: func(crd map[string]any) {
		at := "https://" + address + "/convert/v1beta1/pizza"
		if err := unstructured.SetNestedField(crd, at, "spec", "conversion", "webhook", "clientConfig", "url"); err != nil {
			t.Fatal(err)
		}
	}})
	if err := s.api.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: home}}); err != nil {
		s.must(client.IgnoreAlreadyExists(err))
	}
	host, port, err := net.SplitHostPort(address)
	s.must(err)
	cmd := exec.Command(program, "--kubeconfig="+s.env.Kubeconfig("hub"), "--bind-address="+host, "--secure-port="+port, "--health-address="+health,
		"--secret=command-cert", "-v=4")
	var log bytes.Buffer
	cmd.Stderr = &log
	s.must(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	tell := sync.OnceFunc(func() { _ = cmd.Process.Signal(syscall.SIGTERM) })
	end := sync.OnceValue(func() error {
		tell()
		return <-ended
	})
	t.Cleanup(func() {
		_ = end()
		if t.Failed() {
			t.Logf("the log of the program:\n%s", &log)
		}
	})
	s.until("the program is ready", func(context.Context) error { return ask(health, "/readyz", "ok") })
	s.must(ask(health, "/healthz", "ok"))
	s.create(pizza(alpha, "extra", `[a, a]`))
	s.until("pizzas are converted", func(ctx context.Context) error {
		p, err := s.tryGet(ctx, beta, "extra")
		if err == nil && fmt.Sprint(names(p)) != "[2 a]" {
			err = fmt.Errorf("the pizza has %v", names(p))
		}
		return err
	})
	s.must(ask(health, "/metrics", "refract_conversion_objects_total{"))
	tell()
	s.end()
	over()
	if err := end(); err != nil {
		t.Errorf("after SIGTERM, the program ended with %v", err)
	}
	for _, text := range []string{"Starting to serve", `path="/convert/v1beta1/pizza"`, "has answered all"} {
		if !strings.Contains(log.String(), text) {
			t.Errorf("%q is not in its log:\n%s", text, &log)
		}
	}
}

// ask gets a page, and returns an error unless it contains the text.
func ask(address, path, text string) error {
	resp, err := http.Get("http://" + address + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != http.StatusOK || !strings.Contains(string(body), text)) {
		err = fmt.Errorf("%s answers %s\n%s", path, resp.Status, body)
	}
	return err
}

// conversion returns the client configuration of the conversion webhook for pizzas.
func (s *scene) conversion() *apiextensionsv1.WebhookClientConfig {
	s.Helper()
	crd, err := s.definition(s.Context(), pizzas)
	s.must(err)
	if crd.Spec.Conversion.Webhook == nil {
		s.Fatal("there is no conversion webhook for pizzas")
	}
	return crd.Spec.Conversion.Webhook.ClientConfig
}

// asks returns the URL at which the API server calls the conversion webhook for pizzas.
func (s *scene) asks() string {
	s.Helper()
	return *s.conversion().URL
}

// review posts a ConversionReview to the converter, like an API server.
func (s *scene) review(version, to string, objects ...string) *apiextensionsv1.ConversionReview {
	s.Helper()
	body := fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/%s","kind":"ConversionReview","request":{"uid":"u1","desiredAPIVersion":%q,"objects":[%s]},"response":{}}`,
		version, to, strings.Join(objects, ","))
	config := s.conversion()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(config.CABundle)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Post(*config.URL, "application/json", strings.NewReader(body))
	s.must(err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	s.must(err)
	if resp.StatusCode != http.StatusOK {
		s.Fatalf("the answer is %s\n%s", resp.Status, text)
	}
	r := &apiextensionsv1.ConversionReview{}
	s.must(json.Unmarshal(text, r))
	if r.APIVersion != "apiextensions.k8s.io/"+version || r.Kind != "ConversionReview" || r.Response == nil || r.Response.UID != "u1" {
		s.Fatalf("the answer belongs to another request: %s", text)
	}
	return r
}

// objects returns the converted objects of a review.
func objects(r *apiextensionsv1.ConversionReview) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, o := range r.Response.ConvertedObjects {
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(o.Raw); err != nil {
			return nil
		}
		out = append(out, u)
	}
	return out
}
