package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"refract.dev/internal/hub"
	"refract.dev/internal/propagation"
)

// controllers are what `refract run` runs against a hub.
type controllers struct {
	// systemNamespace holds the Secrets of FederatedClusters.
	systemNamespace string
	log             logr.Logger
	// started, if set, is called once when the controllers know the fleet and work.
	started func()
}

// run installs the CRDs and runs the controllers until ctx ends. That ctx has
// ended is no error.
func (c *controllers) run(ctx context.Context, cfg *rest.Config) error {
	ctrllog.SetLogger(c.log)
	klog.SetLogger(c.log.WithName("client"))
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1 // The hub's own priority and fairness decides what it can take.
	cfg.UserAgent = "refract"
	cfg.WarningHandler = rest.NoWarnings{} // Types are deprecated for people, not for those who list them all.
	if err := hub.Reachable(ctx, cfg); err != nil {
		return err
	}
	if err := hub.InstallCRDs(ctx, cfg); err != nil {
		return err
	}
	mgr, err := c.manager(cfg)
	if err != nil {
		return fmt.Errorf("making the manager: %w", err)
	}
	if err := propagation.Setup(mgr, c.systemNamespace, c.started); err != nil {
		return err
	}
	err = mgr.Start(ctx)
	if ctx.Err() != nil && (err == nil || errors.Is(err, context.Canceled)) {
		return nil
	}
	return err
}

func (c *controllers) manager(cfg *rest.Config) (ctrl.Manager, error) {
	scheme, err := hub.Scheme()
	if err != nil {
		return nil, err
	}
	return ctrl.NewManager(cfg, ctrl.Options{
		Scheme:  scheme,
		Logger:  c.log,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject: map[client.Object]cache.ByObject{
				// No other Secret of the hub is any business of this cache.
				&corev1.Secret{}: {Namespaces: map[string]cache.Config{c.systemNamespace: {}}},
			},
		},
	})
}
