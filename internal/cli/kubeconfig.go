package cli

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// clusterFlags are the flags of kubectl that say which cluster is meant, and as whom it is asked. They mean what they
// mean there: without any it is the current context of $KUBECONFIG, or of the file in the home folder, and in a pod
// its own cluster.
type clusterFlags struct {
	kubectl *genericclioptions.ConfigFlags
	flags   []*pflag.Flag // Those that the command got.
}

// clusterFlagUsages say what the flags of kubectl are for that a command gets.
var clusterFlagUsages = map[string]string{
	"kubeconfig":      "kubeconfig `file` of the %s (default: $KUBECONFIG, or ~/.kube/config)",
	"context":         "`name` of the context of the kubeconfig (default: its current one)",
	"cluster":         "`name` of the cluster of the kubeconfig",
	"user":            "`name` of the user of the kubeconfig",
	"as":              "`name` of a user or service account to ask the %s as",
	"as-group":        "`group` to ask the %s as; may be repeated",
	"as-uid":          "`UID` to ask the %s as",
	"request-timeout": "`time` after which a single request is given up; 0 for never",
}

// addClusterFlags adds the flags, and completion for them. What is the cluster that is meant, in a word.
func (c *clusterFlags) addClusterFlags(cmd *cobra.Command, what string) {
	c.kubectl = genericclioptions.NewConfigFlags(false)
	all := pflag.NewFlagSet(cmd.Name(), pflag.ContinueOnError)
	c.kubectl.AddFlags(all)
	complete := map[string]cobra.CompletionFunc{
		"context": c.complete(func(raw *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(raw.Contexts)) }),
		"cluster": c.complete(func(raw *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(raw.Clusters)) }),
		"user":    c.complete(func(raw *clientcmdapi.Config) []string { return slices.Sorted(maps.Keys(raw.AuthInfos)) }),
		"as":      cobra.NoFileCompletions, "as-group": cobra.NoFileCompletions, "as-uid": cobra.NoFileCompletions,
		"request-timeout": cobra.NoFileCompletions,
	}
	all.VisitAll(func(f *pflag.Flag) {
		usage, ours := clusterFlagUsages[f.Name]
		if !ours {
			return
		}
		f.Usage = strings.ReplaceAll(usage, "%s", what)
		cmd.Flags().AddFlag(f)
		c.flags = append(c.flags, f)
		if complete[f.Name] != nil {
			must(cmd.RegisterFlagCompletionFunc(f.Name, complete[f.Name]))
		}
	})
	must(cmd.MarkFlagFilename("kubeconfig"))
}

func (c *clusterFlags) complete(names func(*clientcmdapi.Config) []string) cobra.CompletionFunc {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		raw, err := c.kubectl.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return names(&raw), cobra.ShellCompDirectiveNoFileComp
	}
}

// given reports whether one of the flags is.
func (c *clusterFlags) given() bool {
	return slices.ContainsFunc(c.flags, func(f *pflag.Flag) bool { return f.Changed })
}

// restConfig returns how to reach the cluster.
func (c *clusterFlags) restConfig() (*rest.Config, error) {
	cfg, err := restConfigBy(c.kubectl.ToRawKubeConfigLoader(), *c.kubectl.KubeConfig, *c.kubectl.Context)
	if name := *c.kubectl.ClusterName; err != nil && name != "" {
		err = fmt.Errorf("reading cluster %q of the kubeconfig: %w", name, err)
		return nil, withHint(err, "kubectl config get-clusters lists them; a member of the fleet is --member")
	}
	return cfg, err
}

// namespace returns the namespace that the context of the kubeconfig names.
func (c *clusterFlags) namespace() string {
	namespace, _, err := c.kubectl.ToRawKubeConfigLoader().Namespace()
	if err != nil || namespace == "" {
		return metav1.NamespaceDefault // What is wrong with the file is said when it is used.
	}
	return namespace
}

// fileConfig returns how to reach the cluster of a kubeconfig file, by a context or, without one, its current one.
func fileConfig(file, context string) (*rest.Config, error) {
	return restConfigBy(loaderOf(file, context), file, context)
}

// loaderOf reads a kubeconfig file, or without one what kubectl would read.
func loaderOf(file, context string) clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = file
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: context})
}

func restConfigBy(loader clientcmd.ClientConfig, file, context string) (*rest.Config, error) {
	cfg, err := loader.ClientConfig()
	switch {
	case errors.Is(err, fs.ErrNotExist) && !isFile(file):
		return nil, fmt.Errorf("reading kubeconfig %s: no such file", file)
	case err != nil && context != "":
		return nil, withHint(fmt.Errorf("reading context %q of the kubeconfig: %w", context, err), "kubectl config get-contexts lists them")
	case err != nil && file != "":
		return nil, fmt.Errorf("reading kubeconfig %s: %w", file, err)
	case err != nil || isDefault(loader, cfg):
		return nil, withHint(fmt.Errorf("finding a kubeconfig: %w", cmp.Or(err, clientcmd.ErrEmptyConfig)), "give one with --kubeconfig, or set $KUBECONFIG")
	default:
		cfg.QPS = -1 // The API server alone decides how fast it may be asked.
		return cfg, nil
	}
}

func isFile(name string) bool {
	_, err := os.Stat(name)
	return name == "" || err == nil // Without a name it is what a kubeconfig points to that is not there.
}

// isDefault reports whether nothing names a cluster: then the library asks whoever listens on localhost.
func isDefault(loader clientcmd.ClientConfig, cfg *rest.Config) bool {
	raw, err := loader.RawConfig()
	if err != nil || cfg.Host != clientcmd.ClusterDefaults.Server {
		return false
	}
	for _, cluster := range raw.Clusters {
		if cluster.Server == cfg.Host {
			return false
		}
	}
	return true
}
