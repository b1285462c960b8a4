package webhook_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"refract.dev/conversion/convert"
	"refract.dev/kit/webhook"
	"refract.dev/kit/webhook/conversion"
	"refract.dev/kit/webhook/pki"
)

// pizzas returns a kind with toppings: v1 has one name, v2 has a list.
func pizzas() convert.Resource {
	return convert.Resource{
		Group: "restaurant.example", Kind: "Pizza", Hub: "v2",
		Spokes: []convert.Spoke{{
			Version: "v1",
			Conversions: []convert.Conversion{convert.Field("spec.topping", "spec.toppings",
				func(one string) ([]string, error) { return []string{one}, nil },
				func(all []string) (string, error) {
					if len(all) == 0 {
						return "", nil
					}
					return all[0], nil
				},
			)},
		}},
	}
}

// A whole program: it converts pizzas, has its own certificate authority, and keeps the caBundle of the API server's
// objects up to date.
func Example() { //nolint:testableexamples // It runs until it is told to stop.
	run := func(ctx context.Context) error {
		cfg, err := ctrl.GetConfig()
		if err != nil {
			return err
		}
		mgr, err := ctrl.NewManager(cfg, ctrl.Options{HealthProbeBindAddress: ":8081"})
		if err != nil {
			return err
		}
		live, err := client.NewWithWatch(cfg, client.Options{Scheme: mgr.GetScheme()}) // Not the manager's client, which reads from a cache.
		if err != nil {
			return err
		}
		log := mgr.GetLogger().WithName("webhook")
		certificates := webhook.Issued(live, types.NamespacedName{Namespace: "pizza", Name: "webhook"},
			[]string{"webhook.pizza.svc"}, webhook.IssuedOptions{Log: log})
		server, err := webhook.New(webhook.Options{
			BindAddress: ":8443", Certificates: certificates, Log: log, Metrics: metrics.Registry, Drain: 5 * time.Second,
		})
		if err != nil {
			return err
		}
		engine, err := convert.New(pizzas())
		if err != nil {
			return err
		}
		server.Handle("/convert", conversion.Handler(engine, conversion.Options{Log: log, Metrics: metrics.Registry}))
		trust := webhook.Trust(live, certificates, webhook.Targets{CRDs: []string{"pizzas.restaurant.example"}}, log)
		ready := func(*http.Request) error { return server.Ready() }
		if err := errors.Join(mgr.Add(server), mgr.Add(trust), mgr.AddReadyzCheck("webhook", ready)); err != nil {
			return err
		}
		return mgr.Start(ctx)
	}
	if err := run(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// A server with certificates that another program manages, and a request of an API server.
func ExampleServer() {
	dir, err := os.MkdirTemp("", "certificates")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	trusted := writeCertificates(dir)

	certificates, err := webhook.Files(filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key"), "", logr.Discard())
	if err != nil {
		panic(err)
	}
	server, err := webhook.New(webhook.Options{BindAddress: "127.0.0.1:0", Certificates: certificates})
	if err != nil {
		panic(err)
	}
	engine, err := convert.New(pizzas())
	if err != nil {
		panic(err)
	}
	server.Handle("/convert", conversion.Handler(engine, conversion.Options{}))
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- server.Start(ctx) }()
	for server.Ready() != nil {
		<-time.After(time.Millisecond)
	}

	apiServer := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: trusted}}}
	review := strings.NewReader(`{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview",
		"request": {"uid": "1", "desiredAPIVersion": "restaurant.example/v2", "objects": [
			{"apiVersion": "restaurant.example/v1", "kind": "Pizza", "metadata": {"name": "margherita"}, "spec": {"topping": "tomato"}}
		]}}`)
	answer, err := apiServer.Post("https://"+server.Address()+"/convert", "application/json", review)
	if err != nil {
		panic(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	fmt.Println(answer.Status, string(text), err)
	stop()
	fmt.Println(<-ended)
	// Output:
	// 200 OK {"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","response":{"uid":"1","convertedObjects":[{"apiVersion": "restaurant.example/v2", "kind": "Pizza", "metadata": {"name": "margherita"}, "spec": {"toppings":["tomato"]}}],"result":{"status":"Success"}}} <nil>
	// <nil>
}

// writeCertificates writes certificates like cert-manager.
func writeCertificates(dir string) *x509.CertPool {
	issuer := pki.Issuer{Names: []string{"127.0.0.1"}, Now: time.Now}
	bundle, _, err := issuer.Renew(nil)
	if err != nil {
		panic(err)
	}
	data, err := bundle.Data()
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"tls.crt", "tls.key"} {
		if err := os.WriteFile(filepath.Join(dir, name), data[name], 0o600); err != nil {
			panic(err)
		}
	}
	trusted := x509.NewCertPool()
	trusted.AppendCertsFromPEM(bundle.Trusted())
	return trusted
}
