package cli

import (
	"fmt"
	"log/slog"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
)

func newRunCommand(s *streams) *cobra.Command {
	var kubeconfig, systemNamespace string
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the controllers against a hub",
		Long: `Run the controllers against a hub until interrupted: they install Refract's
CustomResourceDefinitions there, connect to the member clusters (FederatedCluster),
and place objects that carry a propagation label on them.`,
		Example: "  refract run --kubeconfig hub.yaml",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := restConfig(kubeconfig)
			if err != nil {
				return err
			}
			log := slog.New(slog.NewTextHandler(s.err, nil))
			c := &controllers{
				systemNamespace: systemNamespace,
				log:             logr.FromSlogHandler(log.Handler()),
				started:         func() { log.Info("The controllers are at work", "hub", cfg.Host) },
			}
			if err := c.run(cmd.Context(), cfg); err != nil {
				return fmt.Errorf("running the controllers: %w", err)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig `file` of the hub (default: what kubectl would use)")
	cmd.Flags().StringVar(&systemNamespace, "system-namespace", corev1alpha1.SystemNamespace, "`namespace` on the hub with the Secrets of FederatedClusters")
	return cmd
}
