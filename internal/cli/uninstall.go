package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"refract.dev/fleet/status"
	"refract.dev/internal/installation"
	"refract.dev/internal/output"
)

// uninstallOptions are the flags of uninstall.
type uninstallOptions struct {
	cluster   clusterFlags
	namespace string
	unwire    bool
	purge     bool
	yes       bool
	timeout   time.Duration
}

func newUninstallCommand(s *streams) *cobra.Command {
	o := &uninstallOptions{}
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Remove Refract from a cluster",
		Long: `Remove Refract from a cluster: first the webhook configurations, so that no write waits
for a deleted webhook; then the workloads; then the accounts and roles. The command also
removes the remains of an installation whose manifests were deleted.

Policies, FederatedClusters and other objects of users stay, and so do the
CustomResourceDefinitions, unless --purge is set, which lists them and asks for
confirmation. Copies on members always stay, and are listed. While Refract runs,
refract unjoin removes copies.

A CustomResourceDefinition with several versions in use is listed, and its conversion
webhook continues to run: without it, objects would be read in their stored version.
--unwire ends the conversion where all objects are stored in one version. The exit code
is 1 if something had to stay.`,
		Example: `  refract uninstall
  refract uninstall --context hub --purge
  refract uninstall --unwire`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), s) },
	}
	f := cmd.Flags()
	o.cluster.addClusterFlags(cmd, "cluster")
	addSystemNamespace(cmd, &o.namespace)
	f.BoolVar(&o.unwire, "unwire", false, "end conversions that no stored object needs")
	f.BoolVar(&o.purge, "purge", false, "delete objects of users, too: policies, clusters and their credentials, reports")
	f.BoolVar(&o.yes, "yes", false, "do not ask for confirmation")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "`time` after which to give up; repeat the command to continue")
	must(cmd.RegisterFlagCompletionFunc("timeout", cobra.NoFileCompletions))
	return cmd
}

func (o *uninstallOptions) run(ctx context.Context, s *streams) error {
	if o.timeout <= 0 {
		return fmt.Errorf("--timeout: want more than 0s, got %s", o.timeout)
	}
	return s.limited(ctx, o.timeout, func(ctx context.Context) error { return o.runIn(ctx, s) })
}

// runIn removes Refract from the cluster. If --purge deletes objects, it asks for confirmation first.
func (o *uninstallOptions) runIn(ctx context.Context, s *streams) error {
	cfg, disco, err := reach(ctx, "cluster", &o.cluster)
	if err != nil {
		return err
	}
	c, err := watchingClient(cfg)
	if err != nil {
		return err
	}
	if o.namespace, err = systemNamespace(ctx, c, o.namespace, installation.Parts()...); err != nil {
		return err
	}
	if o.purge {
		switch yes, err := o.confirmed(ctx, s, c); {
		case err != nil:
			return err
		case !yes:
			fmt.Fprintln(s.err, "nothing was changed")
			return nil
		}
	}
	return o.remove(ctx, s, c, disco)
}

// confirmed lists the objects that --purge deletes, and asks for confirmation.
func (o *uninstallOptions) confirmed(ctx context.Context, s *streams, c client.Client) (bool, error) {
	stocks, err := installation.Stocks(ctx, c)
	if err != nil {
		return false, err
	}
	total := 0
	for i := range stocks {
		total += len(stocks[i].Objects)
	}
	if total == 0 {
		return true, nil
	}
	fmt.Fprintf(s.out, "%s would be deleted:\n", output.Count(total, "object", "objects"))
	for i := range stocks {
		writeStock(s.out, &stocks[i])
	}
	if o.yes {
		return true, nil
	}
	return confirm(s, "Delete them, and remove Refract from the cluster?")
}

// mostNamed is the maximum number of objects of a type that are named.
const mostNamed = 5

func writeStock(w io.Writer, stock *installation.Stock) {
	switch n := len(stock.Objects); {
	case n > mostNamed:
		fmt.Fprintf(w, "  %s: %s and %d more\n", stock.CRD, strings.Join(stock.Objects[:mostNamed], ", "), n-mostNamed)
	case n > 0:
		fmt.Fprintf(w, "  %s: %s\n", stock.CRD, strings.Join(stock.Objects, ", "))
	}
}

func (o *uninstallOptions) remove(ctx context.Context, s *streams, c client.WithWatch, disco discovery.DiscoveryInterface) error {
	copies, err := copiesByMember(ctx, c)
	if err != nil {
		return err
	}
	s.at("Refract is only partly removed: the objects listed above are deleted", "repeat the command to continue")
	r := &installation.Removal{
		Client: c, Discovery: disco, Namespace: o.namespace, Unwire: o.unwire, Tell: func(line string) { fmt.Fprintln(s.err, line) },
	}
	kept, err := r.Run(ctx)
	if errors.Is(err, installation.ErrKeptByHelm) {
		return withHint(err, "remove it with helm uninstall")
	}
	if err != nil {
		return err
	}
	for _, k := range kept {
		fmt.Fprintf(s.out, "customresourcedefinition %s is still converted, by service %s/%s, which stays: %v\n", k.Name, o.namespace, k.Service, k.Why)
	}
	switch {
	case o.purge && len(kept) > 0:
		fmt.Fprintln(s.err, "no objects of users were deleted: the conversion needs them")
	case o.purge:
		if err := r.Purge(ctx); err != nil {
			return err
		}
	}
	for _, line := range copies {
		fmt.Fprintln(s.out, line)
	}
	if len(kept) > 0 {
		return errFound
	}
	fmt.Fprintln(s.err, "Refract is removed from the cluster")
	return nil
}

// copiesByMember returns a text for each member with the number of copies that remain on it.
func copiesByMember(ctx context.Context, c client.Client) ([]string, error) {
	objects, err := reported(ctx, c, "")
	if errors.Is(err, status.ErrNoHub) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	counts := map[string]int{}
	var names []string
	for _, o := range objects {
		for i := range o.Status.Clusters {
			if row := &o.Status.Clusters[i]; status.Holds(row) {
				if counts[row.Name] == 0 {
					names = append(names, row.Name)
				}
				counts[row.Name]++
			}
		}
	}
	slices.Sort(names)
	lines := make([]string, len(names))
	for i, name := range names {
		lines[i] = fmt.Sprintf("%s on %s, with the label kubeadmiral.io/managed=true", output.Count(counts[name], "copy stays", "copies stay"), name)
	}
	return lines, nil
}
