package simulate

import (
	"context"
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"refract.dev/fleet/hub"
	"refract.dev/fleet/leadership"
	"refract.dev/injection/restart"
)

// injects is `refract run --injection` without installation and webhook: it restarts existing pods for policies.
func (p *Process) injects(ctx context.Context, cfg *rest.Config, _ gate) error {
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return atHome{next} })
	clients, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return err
	}
	mgr, clock, err := p.manage(cfg, func(o *ctrl.Options) error {
		lock, err := resourcelock.New(resourcelock.LeasesResourceLock, systemNamespace, "refract-injection", clients.CoreV1(), clients.CoordinationV1(),
			resourcelock.ResourceLockConfig{Identity: p.Name})
		duration, renew, retry := leaseDuration, leaseDuration*2/3, leaseDuration/8
		o.LeaderElection, o.LeaderElectionResourceLockInterface, o.LeaderElectionReleaseOnCancel = true, leadership.ReleaseOwn(lock), true
		o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &duration, &renew, &retry
		return err
	})
	if err != nil {
		return err
	}
	scheme, err := hub.Scheme()
	if err != nil {
		return err
	}
	// With its own mapper, the client would hold a lock during discovery, and testing/synctest does not treat a
	// goroutine that waits for a lock as idle.
	live, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: bakeryMapper()})
	if err != nil {
		return err
	}
	all := &collected{Manager: mgr}
	if err := restart.Setup(all, restart.Options{
		Client: live, SystemNamespace: systemNamespace, Log: p.log().WithName("rollout"), Now: clock.Now,
	}); err != nil {
		return err
	}
	err = mgr.Start(ctx)
	all.end() //nolint:contextcheck // The context of the process has ended.
	return err
}

// podToken stands for the token of a pod. The kubelet renews such a token, so its cluster always accepts it.
const podToken = "Bearer pod"

// atHome sends requests with the token of a pod.
type atHome struct {
	next http.RoundTripper
}

var _ http.RoundTripper = atHome{}

// RoundTrip sends a request with the token.
func (a atHome) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", podToken)
	return a.next.RoundTrip(r)
}

// collected is a manager that lists its runnables.
type collected struct {
	ctrl.Manager

	all []manager.Runnable
}

// Add adds a runnable.
func (c *collected) Add(r manager.Runnable) error {
	c.all = append(c.all, r)
	return c.Manager.Add(r)
}

// end ends the goroutines of runnables that were never started, because the replica never got the Lease. In reality
// these goroutines end with the process.
func (c *collected) end() {
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, r := range c.all {
		_ = r.Start(over) // The context has ended already.
	}
}

// bakeryMapper maps the types that the injection reads and writes.
func bakeryMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for _, k := range append([]kind{
		podKind, injectionKind, controllerKind, kindSecret, kindConfigMap, kindClaim, kindJob, kindCron, kindLease, kindService, kindAccount,
	}, workloadKinds...) {
		mapper.Add(k.GroupVersion().WithKind(k.name), meta.RESTScopeNamespace)
	}
	return mapper
}
