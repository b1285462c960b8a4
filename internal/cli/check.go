package cli

import (
	"context"
	"io"

	"github.com/spf13/cobra"

	"refract.dev/internal/checkup"
	"refract.dev/internal/installation"
)

var checkOutputs = formats[*checkup.Report]{
	{"text", toStdout(func(w io.Writer, r *checkup.Report) error { return r.WriteText(w) })},
	{"json", toStdout(func(w io.Writer, r *checkup.Report) error { return r.WriteJSON(w) })},
}

func newCheckCommand(s *streams) *cobra.Command {
	var cluster clusterFlags
	var parts partFlags
	var namespace, output string
	var before bool
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check an installation, or a cluster before an installation",
		Long: `Check the installation of Refract in a cluster: versions and clocks, Deployments, the
rights of its accounts, admission policies, the path from the API server to the webhook,
certificates, Leases, and the members. Each failed check shows a remedy. With --pre,
check whether the cluster meets the requirements of an installation.

The command writes nothing; it tests writes with dry runs.

The exit code is 1 if a check fails, and 2 if the cluster could not be read.`,
		Example: `  refract check
  refract check --pre --context hub --injection
  refract check -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			write, err := checkOutputs.find(output)
			if err != nil {
				return err
			}
			return runCheck(cmd.Context(), s, &cluster, write, &checkup.Options{Namespace: namespace, Before: before, Parts: parts.parts()})
		},
	}
	cluster.addClusterFlags(cmd, "cluster")
	parts.addFlags(cmd, "check")
	addSystemNamespace(cmd, &namespace)
	cmd.Flags().BoolVar(&before, "pre", false, "check whether the cluster meets the requirements of an installation")
	checkOutputs.addFlag(cmd, &output)
	return cmd
}

func runCheck(ctx context.Context, s *streams, cluster *clusterFlags, write func(*streams, *checkup.Report) error, o *checkup.Options) error {
	cfg, _, err := reach(ctx, "cluster", cluster)
	if err != nil {
		return err
	}
	if o.Before && len(o.Parts) == 0 {
		o.Parts = []installation.Part{installation.Propagation}
	}
	o.Config = cfg
	report, err := checkup.Run(ctx, o)
	if err != nil {
		return err
	}
	if err := write(s, report); err != nil {
		return err
	}
	if report.Failed() {
		return errFound
	}
	return nil
}
