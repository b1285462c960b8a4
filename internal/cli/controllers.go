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

	"refract.dev/internal/controller/injection"
	"refract.dev/internal/controller/inventory"
	"refract.dev/internal/controller/propagation"
	"refract.dev/internal/hub"
	"refract.dev/internal/owner"
	"refract.dev/internal/rescue"
	"refract.dev/internal/sharding"
	"refract.dev/internal/webhook"
	"refract.dev/internal/webhook/policies"
)

// controllers are what `refract run` runs against a cluster.
type controllers struct {
	// propagation is for a hub, whose objects are carried to its members; injection
	// for a cluster into whose own pods services are injected; conversion for one whose
	// custom resources are converted.
	propagation, injection, conversion bool
	// systemNamespace holds the Secrets of FederatedClusters, and what is ours.
	systemNamespace string
	// metricsAddress and healthAddress are where to listen; "0" is nowhere.
	metricsAddress, healthAddress string
	webhook                       webhookOptions
	// guard is the share of a namespace's copies on a member that may be deleted at once unasked,
	// in percent; guardAll is whether those count whose objects somebody deleted.
	guard    int
	guardAll bool
	// keepKinds are the kinds whose copies are deleted without approval only if a user deletes their object.
	keepKinds []string
	// namespaceLabels are the labels that namespaces on members have as on the hub.
	namespaceLabels []string
	// emptyAfter is how long such a namespace is marked as empty before it is deleted; zero
	// if it stays.
	emptyAfter time.Duration
	// inventories list clusters that become members by themselves; providers is the file that names the programs which know
	// their credentials, empty for none.
	inventories inventory.Options
	providers   string
	// trusted are the users whose policies may hand out what they may not read.
	trusted []string
	// noRollout has pods that are there already left as they are.
	noRollout bool
	// elect is whether there may be other replicas.
	elect         bool
	leaseDuration time.Duration
	identity      string
	podUID        string
	log           logr.Logger
	// owners are what is written for ourselves belongs to. It is set when it is run.
	owners *owner.Owners
	// clock is that of the API server. It is set when it is run.
	clock *hub.Clock
	// started, if set, is called once when the controllers know what they need to and
	// work.
	started func()
}

// webhookOptions say how the API server finds the webhook: by URL or by service; by
// neither if there is none.
type webhookOptions struct {
	address, url, certDir string
	service               types.NamespacedName
	// clientCA is a file of authorities, one of which must have signed the certificate of
	// whoever connects; empty for none. clientNames are those it may be for; none for all.
	clientCA    string
	clientNames []string
	// lenient has what only the fleet of the moment speaks against come back as a
	// warning.
	lenient bool
}

func (o *webhookOptions) wanted() bool { return o.url != "" || o.service.Name != "" }

// setLog has the libraries log to where the controllers do, and not end the process when
// what others wrote makes them panic. It must be done before anything else is.
func setLog(log logr.Logger) {
	ctrllog.SetLogger(log)
	klog.SetLogger(log.WithName("client"))
	rescue.Libraries(log)
}

// run installs what the API server needs to know and runs the controllers until ctx
// ends. That ctx has ended is no error.
func (c *controllers) run(ctx context.Context, cfg *rest.Config) error {
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // The API server's own priority and fairness decides what it can take.
	cfg.UserAgent = "refract"
	if c.identity != "" {
		cfg.UserAgent += "/" + c.identity
	}
	cfg.WarningHandler = rest.NoWarnings{} // Types are deprecated for people, not for those who list them all.
	c.clock = hub.NewClock()
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

// install writes the types and the admission policies of what is run.
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

// installCRDs writes the types of what is run.
func (c *controllers) installCRDs(ctx context.Context, cfg *rest.Config) error {
	if c.propagation {
		return hub.InstallCRDs(ctx, cfg) // Which are all.
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

// installAdmission writes the admission policies of what is run.
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

// ensureNamespace creates the system namespace if it is not there, for Leases.
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

// setUp registers everything that the manager runs.
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
			// What it lists may have to be converted first, by this very process, to which a
			// Service sends nothing before it is ready. Little is lost: Leases share the members
			// out, ready or not; no copy is deleted before all was read; and until then the webhook
			// judges a policy alone, and warns of that. But a rolling update goes on meanwhile.
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

// propagate registers what carries objects of a hub to its members.
func (c *controllers) propagate(ctx context.Context, mgr ctrl.Manager, cfg *rest.Config, s *served) (*propagation.Controller, error) {
	var controller atomic.Pointer[propagation.Controller]
	part, err := c.shards(cfg, func() {
		if p := controller.Load(); p != nil {
			p.ShardsChanged()
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
		SystemNamespace: c.systemNamespace, Shards: part, Identity: c.identity, Guard: c.guard, GuardAll: c.guardAll, Started: c.started,
		NamespaceLabels: c.namespaceLabels, EmptyAfter: c.emptyAfter, KeptKinds: kept, Now: c.clock.Now,
	})
	if err != nil {
		return nil, err
	}
	controller.Store(p)
	if err := mgr.Add(everywhere(part.Run)); err != nil {
		return nil, err
	}
	if err := mgr.Add(everywhere(func(ctx context.Context) error { return c.keepAdmission(ctx, cfg, part.Leads) })); err != nil {
		return nil, err
	}
	if err := c.readInventories(mgr, part.Leads); err != nil {
		return nil, err
	}
	if s.server == nil {
		return p, c.unserved(ctx, mgr)
	}
	return p, c.judge(ctx, mgr, s, p, part)
}

// readInventories registers what has clusters join that an inventory lists, if there is any.
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

// admissionInterval is how often the admission policies are put right.
const admissionInterval = time.Minute

// keepAdmission keeps the admission policies as they should be while this replica
// leads, until ctx ends.
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
			c.log.Error(err, "Cannot keep the admission policies as they should be")
		}
	}
}

// shards returns this replica's part.
func (c *controllers) shards(cfg *rest.Config, changed func()) (*sharding.Shards, error) {
	if !c.elect {
		return sharding.Alone(), nil
	}
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	return sharding.New(sharding.Options{
		Leases: clients.CoordinationV1(), Namespace: c.systemNamespace, Identity: c.identity,
		LeaseDuration: c.leaseDuration, PodUID: c.podUID, Log: c.log.WithName("shards"), OnChange: changed,
	})
}

// unserved says what follows if there is no webhook.
func (c *controllers) unserved(ctx context.Context, mgr ctrl.Manager) error {
	registered, err := webhook.Registered(ctx, mgr.GetAPIReader())
	switch {
	case apierrors.IsForbidden(err):
		return nil // Who may not even look has not registered one.
	case err != nil:
		return fmt.Errorf("looking for the webhook's configuration: %w", err)
	case registered:
		c.log.Info("The hub asks a webhook about policies, and this replica does not serve it: unless another does, no policy can be written. " +
			"Give --webhook-url or --webhook-service, or: kubectl delete validatingwebhookconfiguration " +
			webhook.ConfigurationName + " " + injection.PoliciesConfigurationName)
	default:
		c.log.Info("Policies are not checked when they are written: for that give --webhook-url or --webhook-service")
	}
	return nil
}

// served is the webhook server that all share; none if its server is nil.
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
	var drain time.Duration // At a URL there is nobody else to connect to.
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

// judge has the webhook judge the policies and clusters of a hub, those for pods
// included: they are written here, and members take what comes from here.
func (c *controllers) judge(ctx context.Context, mgr ctrl.Manager, s *served, p *propagation.Controller, part *sharding.Shards) error {
	handler, err := policies.New(policies.Options{
		Fleet: p, Namespaced: p.Scope, Allowed: policies.Review(s.live), Client: s.live, Lenient: c.webhook.lenient, Log: c.log.WithName("webhook"),
		Registered: func(ctx context.Context) (time.Time, error) { return webhook.RegisteredSince(ctx, s.live) },
	})
	if err != nil {
		return fmt.Errorf("setting up the webhook: %w", err)
	}
	s.server.Handle(webhook.PoliciesPath, handler)
	if err := mgr.Add(s.server.Registration().When(part.Leads)); err != nil {
		return err
	}
	if c.injection {
		return nil // Which brings the same for its policies.
	}
	return c.judgeInjection(ctx, mgr, s, part.Leads)
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
	o := ctrl.Options{
		Scheme:                 scheme,
		Logger:                 c.log,
		Metrics:                metricsserver.Options{BindAddress: c.metricsAddress},
		HealthProbeBindAddress: c.healthAddress,
		Controller:             config.Controller{SkipNameValidation: new(true)}, // The demo runs several clusters in one process.
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				// No other Secret is any business of this cache.
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
