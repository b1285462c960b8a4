package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
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
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"refract.dev/fleet/hub"
	"refract.dev/fleet/inventory"
	"refract.dev/fleet/leadership"
	"refract.dev/fleet/policies"
	"refract.dev/fleet/propagation"
	"refract.dev/injection/injector"
	"refract.dev/internal/owner"
	"refract.dev/internal/rescue"
	"refract.dev/internal/webhook"
)

// controllers are the controllers and webhooks of `refract run` for one cluster.
type controllers struct {
	// propagation is true if the cluster is a hub whose objects are propagated to members. injection is true if
	// services are injected into the pods of the cluster. conversion is true if custom resources of the cluster are
	// converted.
	propagation, injection, conversion bool
	// systemNamespace is the namespace of Refract's own objects and of the Secrets of FederatedClusters.
	systemNamespace string
	// metricsAddress and healthAddress are the addresses to listen on; "0" for none.
	metricsAddress, healthAddress string
	webhook                       webhookOptions
	// guard is the percentage of a namespace's copies on a member that may be deleted at once without approval. With
	// guardAll, this percentage also includes copies whose objects a user has deleted.
	guard    int
	guardAll bool
	// keepKinds are kinds whose copies need an approval before they are deleted, unless a user has deleted their
	// object.
	keepKinds []string
	// namespaceLabels are patterns of labels that Refract copies from a namespace of the hub to the namespaces that it
	// creates on members.
	namespaceLabels []string
	// emptyAfter is how long a namespace that Refract created must be marked as empty before it is deleted. If it is
	// zero, no namespace is deleted.
	emptyAfter time.Duration
	// inventories are the inventories whose clusters automatically become members. providers is a file with the names
	// of programs that provide credentials for these clusters; empty for none.
	inventories inventory.Options
	providers   string
	// trusted are users whose policies may give pods access to Secrets and ConfigMaps that the users themselves may not
	// read.
	trusted []string
	// noRollout is true if existing pods are not recreated.
	noRollout bool
	// elect must be true if other replicas may exist.
	elect         bool
	leaseDuration time.Duration
	identity      string
	podUID        string
	log           logr.Logger
	// owners are the owners of the cluster-scoped objects that Refract creates. [controllers.run] sets this field.
	owners *owner.Owners
	// clock is the clock of the API server. [controllers.run] sets this field.
	clock *hub.Clock
	// started is called once, as soon as the controllers have read their input and work; may be nil.
	started func()
}

// webhookOptions are the options of the webhook server. The API server reaches it at a URL or through a Service. If
// both are empty, no webhook is served.
type webhookOptions struct {
	address, url, certDir string
	service               types.NamespacedName
	// clientCA is a file with certificate authorities. Clients need a certificate that one of them has issued; if
	// clientCA is empty, clients need no certificate. clientNames are the accepted common names; if the list is empty,
	// any name is accepted.
	clientCA    string
	clientNames []string
	// lenient is true if errors that depend on the current state of the fleet are reported only as warnings.
	lenient bool
}

func (o *webhookOptions) wanted() bool { return o.url != "" || o.service.Name != "" }

// setLog makes the libraries write to the log of the controllers, and recover from panics that user input causes. It
// must be called before anything else.
func setLog(log logr.Logger) {
	ctrllog.SetLogger(log)
	klog.SetLogger(log.WithName("client"))
	rescue.Libraries(log)
}

// run writes the CustomResourceDefinitions and admission policies, and runs the controllers until ctx ends. It returns
// nil after ctx has ended.
func (c *controllers) run(ctx context.Context, cfg *rest.Config) error {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // The API server limits the requests by its API Priority and Fairness.
	cfg.UserAgent = "refract"
	if c.identity != "" {
		cfg.UserAgent += "/" + c.identity
	}
	cfg.WarningHandler = rest.NoWarnings{} // Warnings about deprecated types are for users. Controllers list all types.
	c.clock = hub.NewClock(time.Now())
	c.clock.Follow(cfg)
	if err := hub.Reachable(ctx, cfg); err != nil {
		return err
	}
	live, err := hub.Client(cfg)
	if err != nil {
		return err
	}
	c.owners = owner.New(live)
	if err := c.install(ctx, cfg); err != nil {
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

// install writes the CustomResourceDefinitions and admission policies of the enabled parts.
func (c *controllers) install(ctx context.Context, cfg *rest.Config) error {
	if err := c.installCRDs(ctx, cfg); err != nil {
		return err
	}
	if err := c.installAdmission(ctx, cfg); err != nil {
		return err
	}
	if !c.elect {
		return nil
	}
	return c.ensureNamespace(ctx, cfg)
}

// installCRDs writes the CustomResourceDefinitions of the enabled parts.
func (c *controllers) installCRDs(ctx context.Context, cfg *rest.Config) error {
	if c.propagation {
		return hub.InstallCRDs(ctx, cfg) // Propagation installs all definitions.
	}
	if c.injection {
		if err := hub.InstallInjectionCRD(ctx, cfg); err != nil {
			return err
		}
	}
	if c.conversion {
		return hub.InstallConversionCRD(ctx, cfg)
	}
	return nil
}

// installAdmission writes the admission policies of the enabled parts.
func (c *controllers) installAdmission(ctx context.Context, cfg *rest.Config) error {
	if c.propagation {
		if err := hub.InstallAdmission(ctx, cfg, c.owners, c.trusted...); err != nil {
			return err
		}
	}
	if c.conversion {
		if err := hub.InstallConversionAdmission(ctx, cfg, c.owners, c.systemNamespace); err != nil {
			return err
		}
	}
	if !c.injection {
		return nil
	}
	return hub.InstallServiceAdmission(ctx, cfg, c.owners, c.trusted...)
}

// ensureNamespace creates the system namespace if it does not exist. The Leases need it.
func (c *controllers) ensureNamespace(ctx context.Context, cfg *rest.Config) error {
	cluster, err := hub.Client(cfg)
	if err != nil {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.systemNamespace}}
	err = cluster.Get(ctx, client.ObjectKeyFromObject(ns), &corev1.Namespace{})
	if apierrors.IsNotFound(err) {
		if err := cluster.Create(ctx, ns); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("creating namespace %s: %w", ns.Name, err)
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading namespace %s: %w", ns.Name, err)
	}
	return nil
}

// setUp registers all runnables of the manager.
func (c *controllers) setUp(ctx context.Context, mgr ctrl.Manager, cfg *rest.Config) error {
	var ready []func() error
	s := &served{}
	if c.webhook.wanted() {
		var err error
		if s, err = c.serve(mgr, cfg); err != nil {
			return fmt.Errorf("setting up the webhook: %w", err)
		}
		ready = append(ready, s.server.Ready)
	}
	if c.propagation {
		p, err := c.propagate(ctx, mgr, cfg, s)
		if err != nil {
			return err
		}
		if !c.conversion {
			// If this process also converts, it becomes ready before propagation does. Otherwise both could wait for
			// each other: propagation lists types that may need this conversion, and a Service sends requests only to
			// ready processes. The consequences are small. Leadership does not depend on readiness. No copies are
			// deleted before all objects are read. Until then, the webhook reviews policies without the fleet, and adds
			// a warning. A rolling update does not wait for propagation.
			ready = append(ready, p.Ready)
		}
	}
	if c.injection {
		i, err := c.inject(ctx, mgr, cfg, s)
		if err != nil {
			return err
		}
		ready = append(ready, i.Ready)
	}
	if c.conversion {
		converts, err := c.convert(ctx, mgr, s)
		if err != nil {
			return err
		}
		ready = append(ready, converts.Ready)
	}
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("ready", func(*http.Request) error {
		var errs []error
		for _, check := range ready {
			errs = append(errs, check())
		}
		return errors.Join(errs...)
	})
}

// propagate registers the propagation of objects from a hub to its members.
func (c *controllers) propagate(ctx context.Context, mgr ctrl.Manager, cfg *rest.Config, s *served) (*propagation.Controller, error) {
	var controller atomic.Pointer[propagation.Controller]
	leading, err := c.leadership(cfg, func() {
		if p := controller.Load(); p != nil {
			p.LeadershipChanged()
		}
	})
	if err != nil {
		return nil, err
	}
	kept, err := propagation.ParseKeptKinds(c.keepKinds)
	if err != nil {
		return nil, fmt.Errorf("--keep-kinds: %w", err)
	}
	p, err := propagation.Setup(ctx, mgr, propagation.Options{
		SystemNamespace: c.systemNamespace, Leadership: leading, Identity: c.identity, Guard: c.guard, GuardAll: c.guardAll, Started: c.started,
		NamespaceLabels: c.namespaceLabels, EmptyAfter: c.emptyAfter, KeptKinds: kept, Now: c.clock.Now,
	})
	if err != nil {
		return nil, err
	}
	controller.Store(p)
	if err := mgr.Add(everywhere(leading.Run)); err != nil {
		return nil, err
	}
	if err := mgr.Add(everywhere(func(ctx context.Context) error { return c.keepAdmission(ctx, cfg, leading.Leads) })); err != nil {
		return nil, err
	}
	if err := c.readInventories(mgr, leading.Leads); err != nil {
		return nil, err
	}
	if s.server == nil {
		return p, c.unserved(ctx, mgr)
	}
	return p, c.judge(ctx, mgr, s, p, leading.Leads)
}

// readInventories registers the controllers that make clusters of inventories members, if inventories are configured.
func (c *controllers) readInventories(mgr ctrl.Manager, leads func() bool) error {
	o := c.inventories
	if len(o.ClusterProfiles)+len(o.ClusterAPI) == 0 {
		return nil
	}
	o.SystemNamespace, o.Leads, o.Now = c.systemNamespace, leads, c.clock.Now
	if c.providers != "" {
		text, err := os.ReadFile(c.providers)
		if err == nil {
			o.Providers, err = inventory.ReadProviders(text)
		}
		if err != nil {
			return fmt.Errorf("--cluster-profile-providers %s: %w", c.providers, err)
		}
	}
	return inventory.Setup(mgr, o)
}

// admissionInterval is the interval between corrections of the admission policies.
const admissionInterval = time.Minute

// keepAdmission regularly corrects the admission policies while this replica leads, until ctx ends.
func (c *controllers) keepAdmission(ctx context.Context, cfg *rest.Config, leads func() bool) error {
	tick := time.NewTicker(admissionInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if !leads() {
			continue
		}
		if err := c.installAdmission(ctx, cfg); err != nil && ctx.Err() == nil {
			c.log.Error(err, "Cannot update the admission policies")
		}
	}
}

// leadership takes part in the leader election. Without an election, this replica always leads.
func (c *controllers) leadership(cfg *rest.Config, changed func()) (*leadership.Leadership, error) {
	if !c.elect {
		return leadership.Alone(), nil
	}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return leadership.New(leadership.Options{
		Leases: clients.CoordinationV1(), Namespace: c.systemNamespace, Identity: c.identity,
		LeaseDuration: c.leaseDuration, PodUID: c.podUID, Log: c.log.WithName("leadership"), OnChange: changed,
	})
}

// unserved logs the consequences if this process serves no webhook.
func (c *controllers) unserved(ctx context.Context, mgr ctrl.Manager) error {
	registered, err := webhook.Registered(ctx, mgr.GetAPIReader())
	switch {
	case apierrors.IsForbidden(err):
		return nil // The account may not read webhook configurations, so it has not written one either.
	case err != nil:
		return fmt.Errorf("looking for the webhook's configuration: %w", err)
	case registered:
		c.log.Info("The hub has a webhook for policies, but this replica does not serve it: writes of policies fail unless another replica serves it. " +
			"Set --webhook-url or --webhook-service, or run: kubectl delete validatingwebhookconfiguration " +
			webhook.ConfigurationName + " " + injector.PoliciesConfigurationName)
	default:
		c.log.Info("Policies are not validated on write: to validate them, set --webhook-url or --webhook-service")
	}
	return nil
}

// served is the webhook server that all parts share. Server is nil without a webhook.
type served struct {
	server *webhook.Server
	live   client.WithWatch
}

// serve registers the webhook server.
func (c *controllers) serve(mgr ctrl.Manager, cfg *rest.Config) (*served, error) {
	live, err := client.NewWithWatch(cfg, client.Options{Scheme: mgr.GetScheme()})
	if err != nil {
		return nil, err
	}
	var drain time.Duration // Without a Service it is zero, because no other replica could accept new connections.
	if c.webhook.service != (types.NamespacedName{}) {
		drain = 5 * time.Second
	}
	server, err := webhook.New(webhook.Options{
		Client: live, Namespace: c.systemNamespace, BindAddress: c.webhook.address, URL: c.webhook.url,
		Service: c.webhook.service, CertDir: c.webhook.certDir, Secret: c.secret(),
		ClientCAFile: c.webhook.clientCA, ClientNames: c.webhook.clientNames, Metrics: metrics.Registry, Log: c.log.WithName("webhook"),
		Drain: drain, Now: c.clock.Now,
	})
	if err != nil {
		return nil, err
	}
	return &served{server, live}, mgr.Add(server)
}

// judge registers the review of the hub's policies and clusters. This includes ServiceInjectionPolicies, which are
// written on the hub and propagated to members.
func (c *controllers) judge(ctx context.Context, mgr ctrl.Manager, s *served, p *propagation.Controller, leads func() bool) error {
	handler, err := policies.New(policies.Options{
		Fleet: p, Namespaced: p.Scope, Allowed: policies.Review(s.live), Client: s.live, Lenient: c.webhook.lenient, Log: c.log.WithName("webhook"),
		Registered: func(ctx context.Context) (time.Time, error) { return webhook.RegisteredSince(ctx, s.live) },
	})
	if err != nil {
		return fmt.Errorf("setting up the webhook: %w", err)
	}
	s.server.Handle(webhook.PoliciesPath, handler)
	if err := mgr.Add(s.server.Registration().When(leads)); err != nil {
		return err
	}
	if c.injection {
		return nil // Injection has already registered this review.
	}
	return c.judgeInjection(ctx, mgr, s, leads)
}

// everywhere is a runnable that runs in every replica, not only in the leader.
type everywhere func(context.Context) error

var _ manager.LeaderElectionRunnable = everywhere(nil)

// Start runs the function until ctx ends.
func (f everywhere) Start(ctx context.Context) error { return f(ctx) }

// NeedLeaderElection returns false.
func (everywhere) NeedLeaderElection() bool { return false }

func (c *controllers) manager(cfg *rest.Config) (ctrl.Manager, error) {
	scheme, err := hub.Scheme()
	if err != nil {
		return nil, err
	}
	o := ctrl.Options{
		Scheme:                 scheme,
		Logger:                 c.log,
		Metrics:                metricsserver.Options{BindAddress: c.metricsAddress},
		HealthProbeBindAddress: c.healthAddress,
		Controller:             config.Controller{SkipNameValidation: new(true)}, // The demo runs several managers in one process.
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				// This cache reads Secrets only in the system namespace.
				&corev1.Secret{}: {Namespaces: map[string]cache.Config{c.systemNamespace: {}}},
			},
		},
	}
	if (c.injection || c.conversion) && c.elect {
		if err := c.electOne(cfg, &o); err != nil {
			return nil, err
		}
	}
	return ctrl.NewManager(cfg, o)
}
