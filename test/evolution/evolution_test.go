// Package evolution tests a conversion with a real API server under all kinds of faults. It compares the content of
// etcd byte by byte.
package evolution

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/test/harness"
)

const (
	group  = "restaurant.programming-kubernetes.info"
	crd    = "pizzas." + group
	stored = "/registry/" + group + "/pizzas/"
	alpha  = "v1alpha1"
	beta   = "v1beta1"

	root = "../.."
)

var shared *kitchen

func TestMain(m *testing.M) {
	harness.Main(m, harness.Topology{}, func(ctx context.Context, e *harness.Env) (func() error, error) {
		shared = &kitchen{env: e}
		return nil, shared.start(ctx)
	})
}

// kitchen is an API server and a webhook, which is a separate process.
type kitchen struct {
	env        *harness.Env
	definition client.Client
	pizzas     map[string]dynamic.ResourceInterface // By version.

	program     string // The webhook.
	address     string // Address of the webhook.
	authorities []*authority
	server      *exec.Cmd
	log         *os.File
}

func (k *kitchen) start(ctx context.Context) error {
	k.program = k.file("webhook")
	if text, err := exec.CommandContext(ctx, "go", "build", "-o", k.program, "refract.dev/examples/pizza/cmd/pizza-crd-webhook").CombinedOutput(); err != nil {
		return fmt.Errorf("building the webhook: %w\n%s", err, text)
	}
	return k.connect()
}

func (k *kitchen) connect() error {
	cfg, err := k.env.Config("hub")
	if err != nil {
		return err
	}
	if k.definition, err = k.env.Client("hub"); err != nil {
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
	if k.log, err = os.Create(k.file("webhook.log")); err != nil {
		return err
	}
	at, err := harness.FreePorts(1)
	if err != nil {
		return err
	}
	k.address = at[0]
	return nil
}

// host returns the host of the webhook.
func (k *kitchen) host() string { return k.address[:strings.LastIndexByte(k.address, ':')] }
func (k *kitchen) port() string { return k.address[strings.LastIndexByte(k.address, ':')+1:] }

// define creates the restaurant's CRD of pizzas with the webhook's address and a CA bundle of both authorities. The
// webhook must run already.
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
	url := "https://" + k.address + "/convert/v1beta1/pizza"
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
	harness.Eventually(t, "the earlier definition is deleted", func(ctx context.Context) error {
		return k.definition.Create(ctx, definition)
	})
	if err := harness.Establish(t.Context(), k.definition, crd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// The cleanup deletes the pizzas without a conversion, because no webhook runs by then.
		ctx := context.WithoutCancel(t.Context())
		none := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"conversion":{"strategy":"None","webhook":null}}}`))
		if err := errors.Join(k.definition.Patch(ctx, definition, none), k.definition.Delete(ctx, definition)); err != nil {
			t.Error(err)
		}
	})
	harness.Eventually(t, "pizzas are served", func(ctx context.Context) error {
		for _, version := range []string{alpha, beta} {
			if _, err := k.pizzas[version].List(ctx, limited(1)); err != nil {
				return err
			}
		}
		return nil
	})
	harness.Eventually(t, "the webhook converts", func(ctx context.Context) error {
		_, err := k.pizzas[beta].Create(ctx, bare(beta, "probe"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
}

// serve starts the webhook.
func (k *kitchen) serve(t *testing.T) {
	t.Helper()
	k.server = exec.Command(k.program, "--bind-address", k.host(), "--secure-port", k.port(), "--health-address", "",
		"--kubeconfig", k.env.Kubeconfig("hub"), "--tls-cert-file", k.file("tls.crt"), "--tls-private-key-file", k.file("tls.key"))
	k.server.Stdout, k.server.Stderr = k.log, k.log
	if err := k.server.Start(); err != nil {
		t.Fatal(err)
	}
}

// kill kills the webhook process, as a crash does.
func (k *kitchen) kill() {
	_ = k.server.Process.Kill()
	_ = k.server.Wait() // The process was killed, so an error is expected.
}

func (k *kitchen) file(name string) string { return filepath.Join(k.env.Dir, name) }

// rotate replaces the webhook's certificate by one of the authority with this index: first one file, then the other, as
// a user might.
func (k *kitchen) rotate(by int) error {
	cert, key, err := k.authorities[by].issue(k.host())
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

// store makes a version the storage version of pizzas.
func (k *kitchen) store(t *testing.T, version string) {
	t.Helper()
	harness.Eventually(t, "the storage version is "+version, func(ctx context.Context) error {
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
	harness.Eventually(t, "the API server stores "+version, func(ctx context.Context) error {
		const probe = "probe"
		pizza := bare(version, probe)
		if _, err := k.pizzas[version].Create(ctx, pizza, created()); err != nil {
			return err
		}
		all, err := k.env.View.Stored(ctx, "hub", stored+"default/"+probe)
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

// presents returns an error unless the webhook presents a certificate of the authority.
func (k *kitchen) presents(ctx context.Context, by int) error {
	c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", k.address)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0].CheckSignatureFrom(k.authorities[by].certificate)
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

// logTail returns the end of the webhook's log.
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
