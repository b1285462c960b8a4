package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	node "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	pod "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"
)

// runKwok replaces the kubelets of a playground: it reports fake Nodes as ready, and the Pods scheduled there as
// running.
//
// It is the kwok of sigs.k8s.io/kwok with an additional command: `kwok stages` prints the stages that this version of
// kwok publishes for Nodes and Pods that become ready at once. Without stages from --config, kwok does nothing.
func runKwok() int {
	if err := kwok(signals.SetupSignalContext()); err != nil {
		fmt.Fprintln(os.Stderr, "kwok:", err)
		return 1
	}
	return 0
}

func kwok(ctx context.Context) error {
	// The other components have added their flags to those of the process, which all commands would have.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ExitOnError)

	// kwok reads its configuration before it builds its command, so the flags for the configuration are parsed first.
	early := pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	early.ParseErrorsAllowlist.UnknownFlags = true
	early.Usage = func() {}

	ctx, _ = log.InitFlags(ctx, early)
	ctx, err := config.InitFlags(ctx, early)
	if err != nil {
		return fmt.Errorf("reading the configuration: %w", err)
	}

	root := cmd.NewCommand(ctx)
	root.PersistentFlags().AddFlagSet(early)
	root.AddCommand(stages())
	return root.ExecuteContext(ctx)
}

func stages() *cobra.Command {
	return &cobra.Command{
		Use:   "stages",
		Short: "Print the stages with which Nodes and Pods become ready at once.",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all := []string{node.DefaultNodeInit, pod.DefaultPodReady, pod.DefaultPodComplete, pod.DefaultPodDelete}
			_, err := fmt.Fprint(c.OutOrStdout(), strings.Join(all, "---\n"))
			return err
		},
	}
}
