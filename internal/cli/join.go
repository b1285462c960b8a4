package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/internal/hub"
	"refract.dev/internal/member"
)

func newJoinCommand(s *streams) *cobra.Command {
	var hubKubeconfig, memberKubeconfig string
	var labels map[string]string
	cmd := &cobra.Command{
		Use:   "join NAME --hub-kubeconfig FILE --member-kubeconfig FILE",
		Short: "Make a cluster a member of the hub",
		Long: `Make a cluster a member of the hub: the credentials of its kubeconfig (a client
certificate or a token) are stored in a Secret on the hub, and a FederatedCluster
says how to use them. Nothing is written for a cluster that does not answer.`,
		Example: "  refract join eu-1 --hub-kubeconfig hub.yaml --member-kubeconfig eu-1.yaml --label region=eu",
		Args:    oneName("cluster"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hubClient(hubKubeconfig)
			if err != nil {
				return err
			}
			cfg, err := restConfig(memberKubeconfig)
			if err != nil {
				return err
			}
			if err := member.Join(cmd.Context(), c, args[0], cfg, labels); err != nil {
				return explainMembership(err)
			}
			fmt.Fprintf(s.err, "cluster %s joined; kubectl get federatedcluster %s says how it is\n", args[0], args[0])
			return nil
		},
	}
	hubFlag(cmd, &hubKubeconfig)
	cmd.Flags().StringVar(&memberKubeconfig, "member-kubeconfig", "", "kubeconfig `file` of the cluster")
	cmd.Flags().StringToStringVar(&labels, "label", nil, "`label` of the cluster, k=v; may be repeated")
	must(cmd.MarkFlagRequired("member-kubeconfig"))
	return cmd
}

func newUnjoinCommand(s *streams) *cobra.Command {
	var hubKubeconfig string
	cmd := &cobra.Command{
		Use:   "unjoin NAME --hub-kubeconfig FILE",
		Short: "Take a cluster out of the fleet",
		Long: `Take a cluster out of the fleet: its FederatedCluster and its Secret are deleted
from the hub. What was placed on the cluster stays there, and is taken up again
if the cluster joins the same hub once more.`,
		Example: "  refract unjoin eu-1 --hub-kubeconfig hub.yaml",
		Args:    oneName("cluster"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, err := hubClient(hubKubeconfig)
			if err != nil {
				return err
			}
			if err := member.Unjoin(cmd.Context(), c, args[0]); err != nil {
				return explainMembership(err)
			}
			fmt.Fprintf(s.err, "cluster %s left; what was placed on it stays there\n", args[0])
			return nil
		},
	}
	hubFlag(cmd, &hubKubeconfig)
	return cmd
}

func hubFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "hub-kubeconfig", "", "kubeconfig `file` of the hub")
	must(cmd.MarkFlagRequired("hub-kubeconfig"))
}

// must is for errors of the program, not of its user.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// oneName takes exactly one argument, the name of what.
func oneName(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			return nil
		}
		return withHint(fmt.Errorf("%s takes the name of one %s, got %d arguments", cmd.CommandPath(), what, len(args)),
			fmt.Sprintf("%s --help says what it takes", cmd.CommandPath()))
	}
}

func hubClient(kubeconfig string) (client.Client, error) {
	cfg, err := restConfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	c, err := hub.Client(cfg)
	if err != nil {
		return nil, fmt.Errorf("reaching the hub at %s: %w", cfg.Host, err)
	}
	return c, nil
}

// explainMembership adds what to do.
func explainMembership(err error) error {
	if errors.Is(err, member.ErrNoCRDs) {
		return withHint(err, "start `refract run` against the hub once: it installs what is needed")
	}
	if errors.Is(err, member.ErrJoined) {
		return withHint(err, "refract unjoin takes it out first, or choose another name")
	}
	if errors.Is(err, member.ErrNotJoined) {
		return withHint(err, "kubectl get federatedclusters lists the members")
	}
	return err
}
