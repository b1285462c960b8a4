// Package evolution tests a conversion on a real API server while everything around
// it goes wrong: what counts is what etcd holds, byte by byte.
package evolution

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/internal/playground"
)

const (
	group  = "restaurant.programming-kubernetes.info"
	crd    = "pizzas." + group
	stored = "/registry/" + group + "/pizzas/"
	alpha  = "v1alpha1"
	beta   = "v1beta1"

	root = "../.."
	// patience is how long anything may take that has no limit of its own.
	patience = 2 * time.Minute
)

var shared *kitchen

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "evolution:", err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "refract-evolution-")
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	shared = &kitchen{dir: dir}
	if err := shared.start(context.Background()); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, shared.playground.Stop()) }()
	return m.Run(), nil
}

// kitchen is an API server, and a webhook beside it that is a process of its own.
type kitchen struct {
	dir        string
	playground *playground.Playground
	kubeconfig string
	definition client.Client
	pizzas     map[string]dynamic.ResourceInterface // By version.

	program     string // The webhook.
	host, port  string
	authorities []*authority
	server      *exec.Cmd
	log         *os.File
}

func (k *kitchen) start(ctx context.Context) error {
	assets, err := playground.Assets(root + "/bin/refract")
	if err != nil {
		return err
	}
	k.program = filepath.Join(k.dir, "webhook")
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", k.program, "refract.dev/examples/pizza/cmd/pizza-crd-webhook").CombinedOutput(); err != nil {
		return fmt.Errorf("building the webhook: %w\n%s", err, text)
	}
	k.playground, err = playground.Start(ctx, playground.Options{Dir: filepath.Join(k.dir, "playground"), Assets: assets})
	if err != nil {
		return err
	}
	k.kubeconfig = k.playground.Hub().Kubeconfig
	if err := k.connect(); err != nil {
		return errors.Join(err, k.playground.Stop())
	}
	return nil
}

func (k *kitchen) connect() error {
	cfg, err := clientcmd.BuildConfigFromFlags("", k.kubeconfig)
	if err != nil {
		return err
	}
	cfg.QPS, cfg.WarningHandler = -1, rest.NoWarnings{}
	kinds := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(kinds); err != nil {
		return err
	}
	if k.definition, err = client.New(cfg, client.Options{Scheme: kinds}); err != nil {
		return err
	}
	all, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return err
	}
	k.pizzas = map[string]dynamic.ResourceInterface{}
	for _, version := range []string{alpha, beta} {
		k.pizzas[version] = all.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: "pizzas"}).Namespace("default")
	}
	for range 2 {
		a, err := newAuthority()
		if err != nil {
			return err
		}
		k.authorities = append(k.authorities, a)
	}
	if k.log, err = os.Create(filepath.Join(k.dir, "webhook.log")); err != nil {
		return err
	}
	k.host = "127.0.0.1"
	k.port, err = freePort(k.host)
	return err
}

func freePort(host string) (string, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// define creates the restaurant's definition of pizzas, with the webhook at its place
// and both authorities trusted. The webhook must have been started.
func (k *kitchen) define(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(root + "/examples/pizza/manifests/crds/pizza-crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(text, definition); err != nil {
		t.Fatal(err)
	}
	url := "https://" + net.JoinHostPort(k.host, k.port) + "/convert/v1beta1/pizza"
	var trusted []byte
	for _, a := range k.authorities {
		trusted = append(trusted, a.pem()...)
	}
	definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ConversionReviewVersions: []string{"v1", "v1beta1"},
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: trusted},
		},
	}
	if err := k.definition.Create(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := k.definition.Delete(context.WithoutCancel(t.Context()), definition); err != nil {
			t.Error(err)
		}
	})
	eventually(t, "pizzas are served", func(ctx context.Context) error {
		for _, version := range []string{alpha, beta} {
			if _, err := k.pizzas[version].List(ctx, limited(1)); err != nil {
				return err
			}
		}
		return nil
	})
	eventually(t, "the webhook converts", func(ctx context.Context) error {
		_, err := k.pizzas[beta].Create(ctx, bare(beta, "probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// serve starts the webhook.
func (k *kitchen) serve(t *testing.T) {
	t.Helper()
	k.server = exec.Command(k.program, "--bind-address", k.host, "--secure-port", k.port, "--kubeconfig", k.kubeconfig,
		"--tls-cert-file", k.file("tls.crt"), "--tls-private-key-file", k.file("tls.key"))
	k.server.Stdout, k.server.Stderr = k.log, k.log
	if err := k.server.Start(); err != nil {
		t.Fatal(err)
	}
}

// kill ends the webhook as a crash would.
func (k *kitchen) kill() {
	_ = k.server.Process.Kill()
	_ = k.server.Wait() // It was killed: that is no failure here.
}

func (k *kitchen) file(name string) string { return filepath.Join(k.dir, name) }

// rotate gives the webhook a certificate of one of the authorities, as somebody does
// who replaces two files, one after the other.
func (k *kitchen) rotate(by int) error {
	cert, key, err := k.authorities[by].issue(k.host)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		text []byte
	}{{"tls.crt", cert}, {"tls.key", key}} {
		if err := os.WriteFile(k.file(f.name)+".new", f.text, 0o600); err != nil {
			return err
		}
		if err := os.Rename(k.file(f.name)+".new", k.file(f.name)); err != nil {
			return err
		}
	}
	return nil
}

// store has the API server store pizzas in a version.
func (k *kitchen) store(t *testing.T, version string) {
	t.Helper()
	eventually(t, "the storage version is "+version, func(ctx context.Context) error {
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := k.definition.Get(ctx, client.ObjectKey{Name: crd}, definition); err != nil {
			return err
		}
		for i := range definition.Spec.Versions {
			v := &definition.Spec.Versions[i]
			v.Storage = v.Name == version
		}
		return k.definition.Update(ctx, definition)
	})
	eventually(t, "the API server stores "+version, func(ctx context.Context) error {
		const probe = "probe"
		pizza := bare(version, probe)
		if _, err := k.pizzas[version].Create(ctx, pizza, created()); err != nil {
			return err
		}
		all, err := k.playground.Stored(ctx, "hub", stored+"default/"+probe)
		if err := errors.Join(err, k.pizzas[version].Delete(ctx, probe, deleted())); err != nil {
			return err
		}
		for _, text := range all {
			if strings.Contains(string(text), `"apiVersion":"`+group+"/"+version+`"`) {
				return nil
			}
		}
		return fmt.Errorf("it is stored as %s", all)
	})
}

// eventually waits until f returns no error.
func eventually(t *testing.T, what string, f func(context.Context) error) {
	t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		last = f(ctx)
		return last == nil, nil
	})
	if err != nil {
		t.Fatalf("waiting until %s: %v: %v", what, err, last)
	}
}

func bare(version, name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/" + version, "kind": "Pizza",
		"metadata": map[string]any{"name": name}, "spec": map[string]any{"toppings": []any{}},
	}}
}

// authority issues certificates.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, SubjectKeyId: []byte(fmt.Sprint(time.Now().UnixNano())),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	certificate, err := x509.ParseCertificate(der)
	return &authority{certificate: certificate, key: key}, err
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.certificate.Raw})
}

func (a *authority) issue(host string) (cert, private []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.ParseIP(host)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return nil, nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}), nil
}

// logTail returns the end of what the webhook logged.
func (k *kitchen) logTail() string {
	f, err := os.Open(k.log.Name())
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		return err.Error()
	}
	return string(text[max(0, len(text)-4000):])
}
