package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"refract.dev/internal/member"
	"refract.dev/internal/offline/manifest/nearest"
)

func newJoinCommand(s *streams) *cobra.Command {
	var hubKubeconfig, memberKubeconfig string
	var labels map[string]string
	var taintTexts []string
	cmd := &cobra.Command{
		Use:   "join NAME --hub-kubeconfig FILE --member-kubeconfig FILE",
		Short: "Make a cluster a member of the hub",
		Long: `Make a cluster a member of the hub: the credentials of its kubeconfig (a client
certificate or a token) are stored in a Secret on the hub, and a FederatedCluster
says how to use them. Nothing is written for a cluster that does not answer.`,
		Example: `  refract join eu-1 --hub-kubeconfig hub.yaml --member-kubeconfig eu-1.yaml --label region=eu
  refract join lab --hub-kubeconfig hub.yaml --member-kubeconfig lab.yaml --taint stage=test:NoSchedule`,
		Args: oneName("cluster"),
		RunE: func(cmd *cobra.Command, args []string) error {
			taints, err := parseTaints(taintTexts)
			if err != nil {
				return err
			}
			c, err := hubClient(cmd.Context(), hubKubeconfig)
			if err != nil {
				return err
			}
			cfg, err := restConfig(memberKubeconfig)
			if err != nil {
				return err
			}
			if err := member.Join(cmd.Context(), c, args[0], cfg, labels, taints); err != nil {
				return explainMembership(err)
			}
			fmt.Fprintf(s.err, "cluster %s joined; refract get cluster/%s says how it is\n", args[0], args[0])
			return nil
		},
	}
	hubFlag(cmd, &hubKubeconfig)
	cmd.Flags().StringVar(&memberKubeconfig, "member-kubeconfig", "", "kubeconfig `file` of the cluster")
	cmd.Flags().StringToStringVar(&labels, "label", nil, "`label` of the cluster, k=v; may be repeated")
	cmd.Flags().StringArrayVar(&taintTexts, "taint", nil, "`taint` of the cluster, key=value:Effect or key:Effect; may be repeated")
	must(cmd.MarkFlagRequired("member-kubeconfig"))
	must(cmd.MarkFlagFilename("member-kubeconfig"))
	must(cmd.RegisterFlagCompletionFunc("taint", cobra.NoFileCompletions))
	return cmd
}

func hubFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "hub-kubeconfig", "", "kubeconfig `file` of the hub")
	must(cmd.MarkFlagRequired("hub-kubeconfig"))
	must(cmd.MarkFlagFilename("hub-kubeconfig"))
}

// taintEffects are those that placement knows.
var taintEffects = []string{string(corev1.TaintEffectNoSchedule), string(corev1.TaintEffectPreferNoSchedule), string(corev1.TaintEffectNoExecute)}

// parseTaints reads taints as kubectl takes them.
func parseTaints(texts []string) ([]corev1.Taint, error) {
	taints := make([]corev1.Taint, len(texts))
	for i, text := range texts {
		subject, effect, ok := strings.Cut(text, ":")
		key, value, _ := strings.Cut(subject, "=")
		if !ok || key == "" {
			return nil, fmt.Errorf("--taint: want key=value:Effect or key:Effect, got %q", text)
		}
		if !slices.Contains(taintEffects, effect) {
			hint := "it is one of " + strings.Join(taintEffects, ", ")
			if near := nearest.To(effect, taintEffects); near != "" {
				hint = fmt.Sprintf("did you mean %s?", near)
			}
			return nil, withHint(fmt.Errorf("--taint: there is no effect %q", effect), hint)
		}
		problems := slices.Concat(validation.IsQualifiedName(key), validation.IsValidLabelValue(value))
		if len(problems) > 0 {
			return nil, fmt.Errorf("--taint %s: %s", text, problems[0])
		}
		taints[i] = corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
	}
	return taints, nil
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

// explainMembership adds what to do.
func explainMembership(err error) error {
	if errors.Is(err, member.ErrNoCRDs) {
		return withHint(err, "start `refract run` against the hub once: it installs what is needed")
	}
	if errors.Is(err, member.ErrJoined) {
		return withHint(err, "refract unjoin takes it out first, or choose another name")
	}
	if errors.Is(err, member.ErrNotJoined) {
		return withHint(err, "refract get clusters lists the members")
	}
	if errors.Is(err, member.ErrLeftSecret) {
		return withHint(err, "delete it if nothing needs it, or choose another name")
	}
	return err
}
