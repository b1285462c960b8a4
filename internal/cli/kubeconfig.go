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

// clusterFlags are kubectl's flags for the cluster and the user of requests, with the same meaning as in kubectl.
// Without flags they select the current context of $KUBECONFIG, or of the default file in the home folder. In a pod
// without a kubeconfig they select the cluster of the pod.
type clusterFlags struct {
	kubectl *genericclioptions.ConfigFlags
	flags   []*pflag.Flag // The flags that were added to the command.
}

// clusterFlagUsages has the help texts of kubectl's flags that are added to a command.
var clusterFlagUsages = map[string]string{
	"kubeconfig":      "kubeconfig `file` of the %s (default: $KUBECONFIG, or ~/.kube/config)",
	"context":         "`name` of the context of the kubeconfig (default: its current one)",
	"cluster":         "`name` of the cluster of the kubeconfig",
	"user":            "`name` of the user of the kubeconfig",
	"as":              "`name` of a user or service account to impersonate on the %s",
	"as-group":        "`group` to impersonate on the %s; may be repeated",
	"as-uid":          "`UID` to impersonate on the %s",
	"request-timeout": "maximum `time` of a single request; 0 for no limit",
}

// addClusterFlags adds the flags and their completion. The argument what is the word for the cluster in the help texts.
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

// given reports whether the user has set one of the flags.
func (c *clusterFlags) given() bool {
	return slices.ContainsFunc(c.flags, func(f *pflag.Flag) bool { return f.Changed })
}

// restConfig returns the client configuration for the cluster.
func (c *clusterFlags) restConfig() (*rest.Config, error) {
	cfg, err := restConfigBy(c.kubectl.ToRawKubeConfigLoader(), *c.kubectl.KubeConfig, *c.kubectl.Context)
	if name := *c.kubectl.ClusterName; err != nil && name != "" {
		err = fmt.Errorf("reading cluster %q of the kubeconfig: %w", name, err)
		return nil, withHint(err, "kubectl config get-clusters lists them; --member names a member of the fleet")
	}
	return cfg, err
}

// namespace returns the namespace of the selected context.
func (c *clusterFlags) namespace() string {
	namespace, _, err := c.kubectl.ToRawKubeConfigLoader().Namespace()
	if err != nil || namespace == "" {
		return metav1.NamespaceDefault // The first request will report an error in the file.
	}
	return namespace
}

// fileConfig returns the client configuration for a context in a kubeconfig file. If context is empty, it uses the
// current context.
func fileConfig(file, context string) (*rest.Config, error) {
	return restConfigBy(loaderOf(file, context), file, context)
}

// loaderOf returns a loader for a kubeconfig file, or for kubectl's default files if no file is given.
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
		cfg.QPS = -1 // The API server itself limits the rate of requests.
		return cfg, nil
	}
}

func isFile(name string) bool {
	_, err := os.Stat(name)
	return name == "" || err == nil // If name is empty, the missing file is one to which a kubeconfig refers.
}

// isDefault reports whether there is no configuration at all. The library then returns localhost.
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
