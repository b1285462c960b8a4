package cli

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/propagation"
)

// logFormats are the formats of the log.
var logFormats = []string{"text", "json"}

func newRunCommand(s *streams) *cobra.Command {
	var cluster clusterFlags
	var service, format string
	c := &controllers{}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the controllers against a hub, inject services into pods, or convert custom resources",
		Long: `Run the controllers against a hub until interrupted: they install Refract's
CustomResourceDefinitions there, connect to the member clusters (FederatedCluster),
and place objects with a propagation label on them.

Several replicas can run against one hub: one is the leader, and writes. The others
answer the webhook and stand by. When the leader ends, another takes over, after
--lease-duration if the leader crashed.

With --webhook-url or --webhook-service the hub's API server calls a webhook before
it stores a policy or a cluster: the webhook rejects errors of refract lint, and
returns the effects of the change as a warning, which kubectl shows. The
controllers create their own certificates, unless --webhook-cert-dir is set. With
--webhook-client-ca-file the API server must present a certificate, too.

With --injection the program injects services into the pods of the cluster itself
by its ServiceInjectionPolicies: new pods get the services of the policies at
creation, and existing pods are recreated by their own controllers, a few
workloads at a time. Injection needs the webhook. Each member of a fleet runs its
own; --propagation adds propagation to the same process, for a hub with pods. All
replicas answer the API server, and one recreates existing pods.

With --conversion the program converts custom resources of the cluster between the
versions of their definitions by ConversionPolicies. Conversion needs the webhook,
too. Before a write of spec.conversion to the definition, the program compiles and
verifies the policy, and tests the webhook with requests of an API server.`,
		Example: `  refract run --kubeconfig hub.yaml
  refract run --kubeconfig hub.yaml --webhook-url https://127.0.0.1:9443
  refract run --injection --kubeconfig member.yaml --webhook-url https://127.0.0.1:9444
  refract run --conversion --kubeconfig cluster.yaml --webhook-url https://127.0.0.1:9445`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := cluster.restConfig()
			if err != nil {
				return err
			}
			if c.webhook.service, err = serviceName(service); err != nil {
				return err
			}
			if !cmd.Flags().Changed("propagation") {
				c.propagation = !c.injection && !c.conversion
			}
			if err := c.check(); err != nil {
				return err
			}
			var handler slog.Handler = slog.NewTextHandler(s.err, nil)
			switch format {
			case "text":
			case "json":
				handler = slog.NewJSONHandler(s.err, nil)
			default:
				return withHint(fmt.Errorf("--log-format: there is no format %q", format), "it is one of "+strings.Join(logFormats, ", "))
			}
			log := slog.New(handler)
			c.log = logr.FromSlogHandler(handler)
			setLog(c.log)
			c.started = func() { log.Info("The controllers are at work", "cluster", cfg.Host, "replica", c.identity) }
			if err := c.run(cmd.Context(), cfg); err != nil {
				return fmt.Errorf("running the controllers: %w", err)
			}
			return nil
		},
	}
	f := cmd.Flags()
	cluster.addClusterFlags(cmd, "cluster")
	c.addFlags(f)
	f.StringVar(&service, "webhook-service", "", "`NAMESPACE/NAME` of the Service in front of the webhook, instead of a URL")
	f.StringVar(&format, "log-format", "text", "format of the log: "+strings.Join(logFormats, " or "))
	must(cmd.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions(logFormats, cobra.ShellCompDirectiveNoFileComp)))
	cmd.MarkFlagsMutuallyExclusive("webhook-url", "webhook-service")
	return s.finishing(cmd)
}

// addFlags adds all flags of the command run.
func (c *controllers) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&c.injection, "injection", false, "inject services into the pods of the cluster")
	f.BoolVar(&c.conversion, "conversion", false, "convert custom resources of the cluster by ConversionPolicies")
	f.BoolVar(&c.propagation, "propagation", true,
		"propagate objects of the cluster, a hub, to its members; off by default with --injection or --conversion")
	f.StringSliceVar(&c.trusted, "trusted-authors", nil,
		"comma-separated `names` of users whose policies and Services may inject Secrets and ConfigMaps that the users may not read")
	f.BoolVar(&c.noRollout, "no-rollout", false, "with --injection, do not recreate existing pods")
	f.StringVar(&c.systemNamespace, "system-namespace", corev1alpha1.SystemNamespace,
		"`namespace` of Refract, with the Secrets of FederatedClusters")
	f.StringVar(&c.metricsAddress, "metrics-bind-address", ":8080", "`address` of the Prometheus metrics; 0 for none")
	f.StringVar(&c.healthAddress, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz; 0 for none")
	f.StringVar(&c.webhook.address, "webhook-bind-address", ":9443", "`address` of the webhook")
	f.StringVar(&c.webhook.url, "webhook-url", "", "`URL` of the webhook for the API server")
	f.StringVar(&c.webhook.certDir, "webhook-cert-dir", "", "`folder` with tls.crt, tls.key and ca.crt of another tool, such as cert-manager")
	f.StringVar(&c.webhook.clientCA, "webhook-client-ca-file", "",
		"PEM `file` of authorities: clients of the webhook must present a certificate signed by one of them")
	f.StringSliceVar(&c.webhook.clientNames, "webhook-client-names", nil,
		"comma-separated common `names` that these certificates may have (default: any)")
	f.BoolVar(&c.webhook.lenient, "webhook-lenient", false,
		"only warn about errors that depend on the current objects, for tools that dry-run all manifests before the first write")
	f.IntVar(&c.guard, "deletion-guard", propagation.DefaultGuard,
		"`percent` of a namespace's copies on a member that may be deleted at once without refract approve, unless a user deleted their objects; "+
			"with 100, changes of placements do not wait either")
	f.BoolVar(&c.guardAll, "deletion-guard-all", false,
		"apply --deletion-guard also to copies whose objects were deleted on the hub by a request")
	f.StringSliceVar(&c.keepKinds, "keep-kinds", nil,
		"comma-separated `kinds`, KIND or KIND.GROUP, whose copies need refract approve for deletion, like volumes, unless a user deletes the object")
	f.StringSliceVar(&c.namespaceLabels, "namespace-labels", nil,
		"comma-separated `labels`, KEY or PREFIX/*, that new namespaces on members copy from the hub, beside those of pod security")
	f.DurationVar(&c.emptyAfter, "remove-empty-namespaces-after", 0,
		"delete namespaces that Refract created on members after this time marked as empty, 2m or more; 0 keeps them")
	f.StringSliceVar(&c.inventories.ClusterProfiles, "cluster-profiles", nil,
		"comma-separated `namespaces` whose ClusterProfiles become members automatically: users with write access to them control membership")
	f.StringVar(&c.providers, "cluster-profile-providers", "",
		"`file` with the credential programs for ClusterProfiles, beside the built-in secretreader")
	f.StringSliceVar(&c.inventories.ClusterAPI, "cluster-api", nil,
		"comma-separated `namespaces` whose clusters of Cluster API become members automatically")
	f.BoolVar(&c.elect, "leader-elect", true, "elect one of several replicas to write; disable only for a single replica")
	f.DurationVar(&c.leaseDuration, "lease-duration", 15*time.Second, "time until another replica takes over from a crashed leader")
	f.StringVar(&c.identity, "identity", hostName(), "`name` of this replica")
	f.StringVar(&c.podUID, "pod-uid", "",
		"`UID` of the pod, by the downward API, for a pod with one replica: after a crash of its container, it does not wait for --lease-duration")
}

// check returns an error if the flags are invalid or contradict each other.
func (c *controllers) check() error {
	switch {
	case !c.propagation && !c.injection && !c.conversion:
		return withHint(errors.New("there is nothing to run"), "omit --propagation=false, or give --injection or --conversion")
	case c.guard < 0 || c.guard > 100:
		return fmt.Errorf("--deletion-guard: want a percentage from 0 to 100, got %d", c.guard)
	case c.emptyAfter != 0 && c.emptyAfter < propagation.LeastEmpty:
		return fmt.Errorf("--remove-empty-namespaces-after: want %s or more, or 0, got %s", propagation.LeastEmpty, c.emptyAfter)
	case c.elect && c.leaseDuration < 2*time.Second:
		return fmt.Errorf("--lease-duration: want 2s or more, got %s", c.leaseDuration)
	case strings.Contains(c.podUID, "$("):
		return withHint(fmt.Errorf("--pod-uid: want a UID, got %q: the container has no such variable", c.podUID),
			"give it one by valueFrom: {fieldRef: {fieldPath: metadata.uid}}; replicas with the same UID would take over each other's work")
	case c.injection && !c.webhook.wanted():
		return withHint(errors.New("--injection needs a webhook, which the API server calls for each new pod"),
			"give --webhook-service in the cluster, or outside of it --webhook-url with the URL of this program for the API server")
	case c.conversion && !c.webhook.wanted():
		return withHint(errors.New("--conversion needs a webhook, which the API server calls to convert objects"),
			"give --webhook-service in the cluster, or outside of it --webhook-url with the URL of this program for the API server")
	case c.webhook.clientCA != "" && !c.webhook.wanted():
		return withHint(errors.New("--webhook-client-ca-file needs a webhook"),
			"give --webhook-service or --webhook-url")
	case c.webhook.clientCA != "" && c.conversion:
		return withHint(errors.New("--webhook-client-ca-file would block conversions: the API server presents no client certificate for them"),
			"run --conversion in a separate process, and restrict its port to the control plane by a NetworkPolicy")
	case len(c.webhook.clientNames) > 0 && c.webhook.clientCA == "":
		return withHint(errors.New("--webhook-client-names: the webhook requires no client certificate"), "give --webhook-client-ca-file")
	case len(c.inventories.ClusterProfiles)+len(c.inventories.ClusterAPI) > 0 && !c.propagation:
		return errors.New("--cluster-profiles and --cluster-api need --propagation")
	case c.providers != "" && len(c.inventories.ClusterProfiles) == 0:
		return withHint(errors.New("--cluster-profile-providers: no ClusterProfiles are read"),
			"give --cluster-profiles with their namespace")
	case c.noRollout && !c.injection:
		return errors.New("--no-rollout needs --injection")
	}
	for flag, namespaces := range map[string][]string{"--cluster-profiles": c.inventories.ClusterProfiles, "--cluster-api": c.inventories.ClusterAPI} {
		for _, ns := range namespaces {
			if msgs := validation.IsDNS1123Label(ns); len(msgs) > 0 {
				return fmt.Errorf("%s: namespace %q: %s", flag, ns, msgs[0])
			}
		}
	}
	if _, err := propagation.ParseKeptKinds(c.keepKinds); err != nil {
		return fmt.Errorf("--keep-kinds: %w", err)
	}
	for _, pattern := range c.namespaceLabels {
		if err := propagation.CheckNamespaceLabel(pattern); err != nil {
			return fmt.Errorf("--namespace-labels: %w", err)
		}
	}
	return nil
}

func hostName() string {
	name, err := os.Hostname()
	if err != nil {
		return "refract"
	}
	return name
}

// serviceName parses NAMESPACE/NAME; an empty text returns an empty name.
func serviceName(text string) (types.NamespacedName, error) {
	if text == "" {
		return types.NamespacedName{}, nil
	}
	namespace, name, ok := strings.Cut(text, "/")
	if !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return types.NamespacedName{}, fmt.Errorf("--webhook-service: want NAMESPACE/NAME, got %q", text)
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, nil
}
