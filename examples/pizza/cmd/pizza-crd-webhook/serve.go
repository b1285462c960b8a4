package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2/textlogger"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"refract.dev/examples/pizza/restaurant"
	"refract.dev/kit/webhook"
)

const (
	// drain is the time that the endpoints of a Service need to drop a replica that ends. grace is the additional time
	// for the requests in progress.
	drain = 5 * time.Second
	grace = 30 * time.Second

	group  = "restaurant.programming-kubernetes.info"
	pizzas = "pizzas." + group
)

// part is a part of the program that runs until its context ends.
type part interface {
	Start(ctx context.Context) error
}

// serve serves until ctx ends. If a part ends earlier, all parts end, and serve returns the error of that part.
func (o *options) serve(ctx context.Context, stderr io.Writer) error {
	log := textlogger.NewLogger(textlogger.NewConfig(textlogger.Verbosity(o.verbosity), textlogger.Output(stderr)))
	ctrllog.SetLogger(log)
	cfg, err := o.config()
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	parts, server, err := o.parts(cfg, registry, log)
	if err != nil {
		return err
	}
	if o.healthAddress != "" {
		parts = append(parts, &health{address: o.healthAddress, ready: server.Ready, metrics: registry})
	}
	all, running := errgroup.WithContext(ctx)
	for _, p := range parts {
		all.Go(func() error {
			err := p.Start(running)
			if err == nil && running.Err() == nil {
				return fmt.Errorf("%T has ended", p)
			}
			return err
		})
	}
	log.Info("Starting to serve", "address", o.address())
	if err := all.Wait(); err != nil {
		return err
	}
	log.Info("Told to stop, and has answered all")
	return nil
}

// config returns the connection to the API server.
func (o *options) config() (*rest.Config, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.kubeconfig
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the API server (see --kubeconfig): %w", err)
	}
	cfg.QPS, cfg.Burst = 50, 100 // Many pizzas with unknown toppings do not overload the API server.
	return cfg, nil
}

// parts returns the parts of the webhook, and the server, which is one of them.
func (o *options) parts(cfg *rest.Config, metrics prometheus.Registerer, log logr.Logger) ([]part, *webhook.Server, error) {
	kinds := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(kinds); err != nil {
			return nil, nil, err
		}
	}
	api, err := client.NewWithWatch(cfg, client.Options{Scheme: kinds})
	if err != nil {
		return nil, nil, fmt.Errorf("building a client: %w", err)
	}
	certificates, trusted, err := o.certificates(api, log)
	if err != nil {
		return nil, nil, err
	}
	server, err := webhook.New(webhook.Options{
		BindAddress: o.address(), Certificates: certificates, Metrics: metrics, Log: log, Drain: drain, Grace: grace,
	})
	if err != nil {
		return nil, nil, err
	}
	opened, err := restaurant.New(restaurant.Options{Config: cfg, Server: server, Metrics: metrics, Log: log})
	if err != nil {
		return nil, nil, err
	}
	parts := []part{server, opened}
	if trusted {
		parts = append(parts, webhook.Trust(api, certificates, webhook.Targets{
			CRDs: []string{pizzas}, Mutating: []string{group}, Validating: []string{group},
		}, log))
	}
	return parts, server, nil
}

// certificates returns the certificates in files, or issued ones, and whether the API server is to be configured to
// trust them.
func (o *options) certificates(api client.WithWatch, log logr.Logger) (c webhook.Certificates, trusted bool, err error) {
	if cert, key, authority := o.files(); cert != "" {
		c, err = webhook.Files(cert, key, authority, log)
		return c, authority != "", err
	}
	at := types.NamespacedName{Namespace: o.namespace, Name: o.secret}
	return webhook.Issued(api, at, o.names(), webhook.IssuedOptions{Log: log}), true, nil
}

// health serves probes and metrics, which contain nothing confidential.
type health struct {
	address string
	ready   func() error
	metrics prometheus.Gatherer
}

// Start serves until ctx ends.
func (h *health) Start(ctx context.Context) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := h.ready(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(h.metrics, promhttp.HandlerOpts{}))
	server := &http.Server{Handler: mux, ReadHeaderTimeout: grace}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", h.address)
	if err != nil {
		return fmt.Errorf("listening for probes: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving probes: %w", err)
	}
	return nil
}
