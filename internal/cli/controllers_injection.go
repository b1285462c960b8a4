package cli

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"refract.dev/fleet/hub"
	"refract.dev/fleet/leadership"
	"refract.dev/injection/injector"
	"refract.dev/injection/restart"
)

// injectionLease is the Lease of the replica that recreates existing pods. All replicas answer the API server.
const injectionLease = "refract-injection"

// lease returns the name of the Lease for the leader election. A process that injects and a process that only converts
// may run in the same cluster, so their Leases have different names.
func (c *controllers) lease() string {
	if c.injection {
		return injectionLease
	}
	return conversionLease
}

// electOne configures the manager's leader election.
func (c *controllers) electOne(cfg *rest.Config, o *ctrl.Options) error {
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, c.systemNamespace, c.lease(),
		clients.CoreV1(), clients.CoordinationV1(), resourcelock.ResourceLockConfig{
			Identity: c.identity + "_" + string(uuid.NewUUID()), // The UUID distinguishes processes with the same identity.
		})
	if err != nil {
		return fmt.Errorf("making the lease %s: %w", c.lease(), err)
	}
	renew, retry := c.leaseDuration*2/3, c.leaseDuration/8
	o.LeaderElection, o.LeaderElectionResourceLockInterface = true, leadership.ReleaseOwn(lock)
	o.LeaderElectionReleaseOnCancel = true // The program ends then.
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &c.leaseDuration, &renew, &retry
	return nil
}

// judgeInjection registers the review of ServiceInjectionPolicies on a hub without injection.
func (c *controllers) judgeInjection(ctx context.Context, mgr ctrl.Manager, s *served, leads func() bool) error {
	o := c.injectionOptions(s)
	o.Leads, o.Client = leads, hub.ByName(s.live)
	if _, err := injector.ServePolicies(ctx, mgr, o); err != nil {
		return fmt.Errorf("setting up the webhook for injection policies: %w", err)
	}
	return nil
}

func (c *controllers) injectionOptions(s *served) injector.Options {
	return injector.Options{
		Server: s.server, Client: s.live, Namespace: c.systemNamespace,
		TrustedAuthors: c.trusted, Log: c.log.WithName("injection"),
	}
}

// inject registers the injection of services into the pods of the cluster.
func (c *controllers) inject(ctx context.Context, mgr ctrl.Manager, cfg *rest.Config, s *served) (*injector.Injection, error) {
	i, err := injector.Setup(ctx, mgr, c.injectionOptions(s))
	if err != nil {
		return nil, fmt.Errorf("setting up the injection: %w", err)
	}
	if err := restart.Setup(mgr, restart.Options{
		Client: s.live, SystemNamespace: c.systemNamespace, Disabled: c.noRollout, Log: c.log.WithName("injection").WithName("rollout"),
		Now: c.clock.Now,
	}); err != nil {
		return nil, fmt.Errorf("setting up the rollout of injections: %w", err)
	}
	if c.propagation {
		return i, nil // Propagation keeps the admission policies of both parts, and calls started.
	}
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return c.keepAdmission(ctx, cfg, func() bool { return true })
	})); err != nil {
		return nil, err
	}
	return i, mgr.Add(everywhere(func(context.Context) error {
		if c.started != nil {
			c.started()
		}
		return nil
	}))
}
