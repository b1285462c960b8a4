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
	"refract.dev/internal/controller/propagation"
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
and place objects that carry a propagation label on them.

Several may run against one hub: one of them leads, and the members are shared
out among all. When one ends the others take over, after --lease-duration if it
crashed.

With --webhook-url or --webhook-service the hub's API server asks the controllers
before it stores a policy or a cluster: what refract lint calls an error is
refused, and what the change comes to is a warning that kubectl shows. The
certificates are their own affair, unless --webhook-cert-dir says otherwise. With
--webhook-client-ca-file the API server must show one, too.

With --injection services are injected into the pods of the cluster itself, as its
ServiceInjectionPolicies say: new pods get what the policies hold when they are
created, and pods that are there already are recreated by their own controllers, a
few workloads at a time. It takes the webhook. Each member of a fleet runs its own;
--propagation does both in one process, for a hub that runs pods. Of several
replicas every one answers the API server, and one looks after what is there.

With --conversion custom resources of the cluster are converted between the versions
of their definitions, as ConversionPolicies say. It takes the webhook, too. A policy
is compiled and verified, and what the API server will ask is tried out, before
spec.conversion of the definition is written.`,
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

// addFlags adds the flags that say what is run, and how.
func (c *controllers) addFlags(f *pflag.FlagSet) {
	f.BoolVar(&c.injection, "injection", false, "inject services into the pods of the cluster")
	f.BoolVar(&c.conversion, "conversion", false, "convert custom resources of the cluster as ConversionPolicies say")
	f.BoolVar(&c.propagation, "propagation", true,
		"carry objects of the cluster, which is a hub, to its members; with --injection or --conversion only if it is given")
	f.StringSliceVar(&c.trusted, "trusted-authors", nil,
		"`names` of users, joined by commas, who may have policies and Services give pods Secrets and ConfigMaps that they may not read themselves")
	f.BoolVar(&c.noRollout, "no-rollout", false, "with --injection, leave the pods that are there as they are")
	f.StringVar(&c.systemNamespace, "system-namespace", corev1alpha1.SystemNamespace,
		"`namespace` with the Secrets of FederatedClusters and what is Refract's own")
	f.StringVar(&c.metricsAddress, "metrics-bind-address", ":8080", "`address` of the Prometheus metrics; 0 for none")
	f.StringVar(&c.healthAddress, "health-probe-bind-address", ":8081", "`address` of /healthz and /readyz; 0 for none")
	f.StringVar(&c.webhook.address, "webhook-bind-address", ":9443", "`address` of the webhook")
	f.StringVar(&c.webhook.url, "webhook-url", "", "`URL` at which the API server finds the webhook")
	f.StringVar(&c.webhook.certDir, "webhook-cert-dir", "", "`folder` with tls.crt, tls.key and ca.crt that somebody else keeps, as cert-manager does")
	f.StringVar(&c.webhook.clientCA, "webhook-client-ca-file", "",
		"`file` of authorities, as PEM: whoever asks the webhook must show a certificate that one of them has signed")
	f.StringSliceVar(&c.webhook.clientNames, "webhook-client-names", nil,
		"common `names`, joined by commas, that these certificates may be for (default: any)")
	f.BoolVar(&c.webhook.lenient, "webhook-lenient", false,
		"warn of what only the objects of the moment speak against, for tools that try everything out before they write anything")
	f.IntVar(&c.guard, "deletion-guard", propagation.DefaultGuard,
		"`percent` of a namespace's copies on a member that may go at once without refract approve, unless somebody deleted their objects; "+
			"100 for all, and then no change of a placement waits either")
	f.BoolVar(&c.guardAll, "deletion-guard-all", false,
		"have --deletion-guard ask about copies, too, whose objects somebody deleted on the hub by a call")
	f.StringSliceVar(&c.keepKinds, "keep-kinds", nil,
		"`kinds`, as KIND or KIND.GROUP, joined by commas, whose copies need refract approve to be deleted, as volumes do, unless a user deletes the object")
	f.StringSliceVar(&c.namespaceLabels, "namespace-labels", nil,
		"`labels`, as KEY or PREFIX/*, joined by commas, that a namespace made on a member has as on the hub, beside those of pod security")
	f.DurationVar(&c.emptyAfter, "remove-empty-namespaces-after", 0,
		"delete namespaces that were made on members when they were marked as empty for this long, 2m or more; 0 leaves them there")
	f.StringSliceVar(&c.inventories.ClusterProfiles, "cluster-profiles", nil,
		"`namespaces`, joined by commas, whose ClusterProfiles become members by themselves: whoever may write them there says which clusters the fleet has")
	f.StringVar(&c.providers, "cluster-profile-providers", "",
		"`file` that names the programs which know the credentials for ClusterProfiles, beside the built-in secretreader")
	f.StringSliceVar(&c.inventories.ClusterAPI, "cluster-api", nil,
		"`namespaces`, joined by commas, whose clusters of Cluster API become members by themselves")
	f.BoolVar(&c.elect, "leader-elect", true, "share the work with other replicas; off only if there never is another")
	f.DurationVar(&c.leaseDuration, "lease-duration", 15*time.Second, "how long the work of a replica that crashed rests")
	f.StringVar(&c.identity, "identity", hostName(), "`name` of this replica")
	f.StringVar(&c.podUID, "pod-uid", "",
		"`UID` of the pod that this program is the only one of, by the downward API: after a crash of its container it need not wait for --lease-duration")
}

// check returns an error if the flags do not go together.
func (c *controllers) check() error {
	switch {
	case !c.propagation && !c.injection && !c.conversion:
		return withHint(errors.New("there is nothing to run"), "leave out --propagation=false, or give --injection or --conversion")
	case c.guard < 0 || c.guard > 100:
		return fmt.Errorf("--deletion-guard: want a percentage from 0 to 100, got %d", c.guard)
	case c.emptyAfter != 0 && c.emptyAfter < propagation.LeastEmpty:
		return fmt.Errorf("--remove-empty-namespaces-after: want %s or more, or 0, got %s", propagation.LeastEmpty, c.emptyAfter)
	case c.elect && c.leaseDuration < 2*time.Second:
		return fmt.Errorf("--lease-duration: want 2s or more, got %s", c.leaseDuration)
	case strings.Contains(c.podUID, "$("):
		return withHint(fmt.Errorf("--pod-uid: want a UID, got %q: the container has no such variable", c.podUID),
			"give it one by valueFrom: {fieldRef: {fieldPath: metadata.uid}}; replicas with the same UID would take each other's work away")
	case c.injection && !c.webhook.wanted():
		return withHint(errors.New("--injection needs a webhook, which the API server asks whenever a pod is created"),
			"give --webhook-service in the cluster, or outside of it --webhook-url with the URL at which its API server finds this program")
	case c.conversion && !c.webhook.wanted():
		return withHint(errors.New("--conversion needs a webhook, which the API server asks for objects in another version"),
			"give --webhook-service in the cluster, or outside of it --webhook-url with the URL at which its API server finds this program")
	case c.webhook.clientCA != "" && !c.webhook.wanted():
		return withHint(errors.New("--webhook-client-ca-file is about who asks the webhook, and there is none"),
			"give --webhook-service or --webhook-url")
	case c.webhook.clientCA != "" && c.conversion:
		return withHint(errors.New("--webhook-client-ca-file would keep the API server out, which shows no certificate when it has objects converted"),
			"run --conversion as a program of its own, and let only the control plane reach its port by a NetworkPolicy")
	case len(c.webhook.clientNames) > 0 && c.webhook.clientCA == "":
		return withHint(errors.New("--webhook-client-names are those in certificates, and none is asked for"), "give --webhook-client-ca-file")
	case len(c.inventories.ClusterProfiles)+len(c.inventories.ClusterAPI) > 0 && !c.propagation:
		return errors.New("--cluster-profiles and --cluster-api are about members, and there is no --propagation")
	case c.providers != "" && len(c.inventories.ClusterProfiles) == 0:
		return withHint(errors.New("--cluster-profile-providers are asked about ClusterProfiles, and none are read"),
			"give --cluster-profiles with their namespace")
	case c.noRollout && !c.injection:
		return errors.New("--no-rollout is about pods that services are injected into, and there is no --injection")
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

// serviceName reads NAMESPACE/NAME; empty is none.
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
