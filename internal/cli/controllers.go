package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"refract.dev/internal/hub"
	"refract.dev/internal/propagation"
	"refract.dev/internal/shards"
	"refract.dev/internal/webhook"
	"refract.dev/internal/webhook/policies"
)

// controllers are what `refract run` runs against a hub.
type controllers struct {
	// systemNamespace holds the Secrets of FederatedClusters.
	systemNamespace string
	// metricsAddress and healthAddress are where to listen; "0" is nowhere.
	metricsAddress, healthAddress string
	webhook                       webhookOptions
	// guard is the share of a member's copies that may go at once unasked, in percent.
	guard int
	// elect is whether there may be other replicas.
	elect         bool
	leaseDuration time.Duration
	identity      string
	log           logr.Logger
	// started, if set, is called once when the controllers know the fleet and work.
	started func()
}

// webhookOptions say how the hub's API server finds the webhook: by URL or by
// service; by neither if there is none.
type webhookOptions struct {
	address, url, certDir string
	service               types.NamespacedName
	// lenient has what only the fleet of the moment speaks against come back as a
	// warning.
	lenient bool
}

func (o *webhookOptions) wanted() bool { return o.url != "" || o.service.Name != "" }

// run installs the CRDs and runs the controllers until ctx ends. That ctx has
// ended is no error.
func (c *controllers) run(ctx context.Context, cfg *rest.Config) error {
	ctrllog.SetLogger(c.log)
	klog.SetLogger(c.log.WithName("client"))
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // The hub's own priority and fairness decides what it can take.
	cfg.UserAgent = "refract"
	if c.identity != "" {
		cfg.UserAgent += "/" + c.identity
	}
	cfg.WarningHandler = rest.NoWarnings{} // Types are deprecated for people, not for those who list them all.
	if err := hub.Reachable(ctx, cfg); err != nil {
		return err
	}
	if err := hub.InstallCRDs(ctx, cfg); err != nil {
		return err
	}
	if err := hub.InstallAdmission(ctx, cfg); err != nil {
		return err
	}
	mgr, err := c.manager(cfg)
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	if err := c.setUp(ctx, mgr, cfg); err != nil {
		return err
	}
	err = mgr.Start(ctx)
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return nil
	}
	return err
}

// setUp registers everything that the manager runs.
func (c *controllers) setUp(ctx context.Context, mgr ctrl.Manager, cfg *rest.Config) error {
	var controller atomic.Pointer[propagation.Controller]
	part, err := c.shards(ctx, cfg, func() {
		if p := controller.Load(); p != nil {
			p.ShardsChanged()
		}
	})
	if err != nil {
		return err
	}
	p, err := propagation.Setup(ctx, mgr, propagation.Options{
		SystemNamespace: c.systemNamespace, Shards: part, Identity: c.identity, Guard: c.guard, Checked: c.webhook.wanted(), Started: c.started,
	})
	if err != nil {
		return err
	}
	controller.Store(p)
	if err := mgr.Add(everywhere(part.Run)); err != nil {
		return err
	}
	if err := mgr.Add(everywhere(func(ctx context.Context) error { return c.keepAdmission(ctx, cfg, part) })); err != nil {
		return err
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	ready := func(*http.Request) error { return p.Ready() }
	if !c.webhook.wanted() {
		if err := c.unserved(ctx, mgr); err != nil {
			return err
		}
	} else {
		server, err := c.serve(mgr, cfg, p, part)
		if err != nil {
			return fmt.Errorf("setting up the webhook: %w", err)
		}
		ready = func(*http.Request) error { return errors.Join(p.Ready(), server.Ready()) }
	}
	return mgr.AddReadyzCheck("ready", ready)
}

// admissionInterval is how often the hub's admission policies are put right.
const admissionInterval = time.Minute

// keepAdmission keeps the admission policies that decide whose Secrets travel as
// they should be, until ctx ends.
func (c *controllers) keepAdmission(ctx context.Context, cfg *rest.Config, part *shards.Shards) error {
	tick := time.NewTicker(admissionInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !part.Leads() {
			continue
		}
		if err := hub.InstallAdmission(ctx, cfg); err != nil && ctx.Err() == nil {
			c.log.Error(err, "Cannot keep the admission policies of the hub as they should be")
		}
	}
}

// shards returns this replica's part.
func (c *controllers) shards(ctx context.Context, cfg *rest.Config, changed func()) (*shards.Shards, error) {
	if !c.elect {
		return shards.Alone(), nil
	}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.systemNamespace}}
	if _, err := clients.CoreV1().Namespaces().Get(ctx, ns.Name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
		if _, err := clients.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("creating namespace %s: %w", ns.Name, err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("reading namespace %s: %w", ns.Name, err)
	}
	return shards.New(shards.Options{
		Leases: clients.CoordinationV1(), Namespace: c.systemNamespace, Identity: c.identity,
		LeaseDuration: c.leaseDuration, Log: c.log.WithName("shards"), OnChange: changed,
	})
}

// unserved says what it comes to that there is no webhook.
func (c *controllers) unserved(ctx context.Context, mgr ctrl.Manager) error {
	registered, err := webhook.Registered(ctx, mgr.GetAPIReader())
	switch {
	case apierrors.IsForbidden(err):
		return nil // Who may not even look has not registered one.
	case err != nil:
		return fmt.Errorf("looking for the webhook's configuration: %w", err)
	case registered:
		c.log.Info("The hub asks a webhook about policies, and this replica does not serve it: unless another does, no policy can be written. " +
			"Give --webhook-url or --webhook-service, or: kubectl delete validatingwebhookconfiguration " + webhook.ConfigurationName)
	default:
		c.log.Info("Policies are not checked when they are written: for that give --webhook-url or --webhook-service")
	}
	return nil
}

// serve registers the webhook.
func (c *controllers) serve(mgr ctrl.Manager, cfg *rest.Config, p *propagation.Controller, part *shards.Shards) (*webhook.Server, error) {
	live, err := client.NewWithWatch(cfg, client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return nil, err
	}
	server, err := webhook.New(webhook.Options{
		Client: live, Namespace: c.systemNamespace, BindAddress: c.webhook.address, URL: c.webhook.url,
		Service: c.webhook.service, CertDir: c.webhook.certDir, Log: c.log.WithName("webhook"),
	})
	if err != nil {
		return nil, err
	}
	handler, err := policies.New(policies.Options{
		Fleet: p, Namespaced: p.Scope, Allowed: policies.Review(live), Lenient: c.webhook.lenient, Log: c.log.WithName("webhook"),
	})
	if err != nil {
		return nil, err
	}
	server.Handle(webhook.PoliciesPath, handler)
	if err := mgr.Add(server); err != nil {
		return nil, err
	}
	registration := server.Registration()
	return server, mgr.Add(everywhere(func(ctx context.Context) error {
		if err := leads(ctx, part); err != nil {
			return nil //nolint:nilerr // It never led, which is no failure.
		}
		return registration.Start(ctx)
	}))
}

// leads returns when this replica leads. It stays so for as long as it runs.
func leads(ctx context.Context, part *shards.Shards) error {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for !part.Leads() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// everywhere is a runnable that every replica runs.
type everywhere func(context.Context) error

var _ manager.LeaderElectionRunnable = everywhere(nil)

// Start runs it until ctx ends.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection returns false.
func (everywhere) NeedLeaderElection() bool { return false }

func (c *controllers) manager(cfg *rest.Config) (ctrl.Manager, error) {
	scheme, err := hub.Scheme()
	if err != nil {
		return nil, err
	}
	return ctrl.NewManager(cfg, ctrl.Options{
		Scheme:                 scheme,
		Logger:                 c.log,
		Metrics:                metricsserver.Options{BindAddress: c.metricsAddress},
		HealthProbeBindAddress: c.healthAddress,
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				// No other Secret of the hub is any business of this cache.
				&corev1.Secret{}: {Namespaces: map[string]cache.Config{c.systemNamespace: {}}},
			},
		},
	})
}
