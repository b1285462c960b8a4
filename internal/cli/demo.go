package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/examples"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/propagation"
	"refract.dev/internal/playground"
)

// demoDir is the folder of the demo's playground, and demoLog the log of its controllers.
const (
	demoDir = ".refract/demo"
	demoLog = ".refract/demo.log"
)

// demoPatience is the longest wait until all copies are as desired.
const demoPatience = 2 * time.Minute

// demoMembers is the number of clusters that the examples require.
const demoMembers = 3

// demoRelease is an override policy of the examples. It releases a change to one cluster, and the demo deletes it.
const demoRelease = "checkout-release"

type demoOptions struct {
	once    bool
	ui      bool
	members int
	output  string
}

// demoOutputs are the formats of the demo's result.
var demoOutputs = []string{"text", "json"}

func newDemoCommand(s *streams) *cobra.Command {
	o := &demoOptions{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Run a demo of Refract with control planes on this machine",
		Long: `Run a demo of Refract: start a hub and member clusters on this machine, apply the
examples to the hub, wait until every member has its copies, and print the
differences between members, with the policy of each. The demo compares every copy with
the output of refract render. Next, a rollout policy releases a failing change: one
member gets the change, and then its previous content again. Last, the hub propagates a
policy that injects a service into pods, and then a change of that policy: pods on the
members get the service, and are recreated after the change.

On a terminal, the clusters then keep running until Ctrl-C, for inspection with kubectl,
or in a browser with --ui.`,
		Example: `  refract demo --once
  refract demo --ui`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), s) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.once, "once", false, "exit after the demo, even on a terminal")
	f.BoolVar(&o.ui, "ui", false, "show the clusters in a browser after the demo, until interrupted")
	f.IntVar(&o.members, "members", demoMembers, "`number` of member clusters, 3 or more")
	addOutputFlag(cmd, &o.output, demoOutputs)
	cmd.MarkFlagsMutuallyExclusive("once", "ui")
	return s.finishing(cmd)
}

func (o *demoOptions) run(ctx context.Context, s *streams) (err error) {
	if o.members < demoMembers {
		return fmt.Errorf("--members: the examples need %d clusters, got %d", demoMembers, o.members)
	}
	if !slices.Contains(demoOutputs, o.output) {
		return unknownOutput(o.output, demoOutputs)
	}
	set, problems := manifest.ReadFS(examples.Shop)
	if len(problems) > 0 {
		return problems[0]
	}
	began := time.Now()
	defer func() { _ = os.Remove(filepath.Dir(demoDir)) }() // If the folder is not empty, Remove fails and leaves it unchanged.
	log, forget, err := logToFile()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, forget()) }()
	pg, err := startPlayground(ctx, playground.Options{Dir: demoDir, Members: o.members}, s.err)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	if err := joinMembers(ctx, pg); err != nil {
		return err
	}
	ended, stop, err := startControllers(ctx, pg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	d, err := newDemo(pg, set)
	if err != nil {
		return err
	}
	fmt.Fprintf(s.err, "hub: applying %d manifests\n", len(set.Manifests)-len(set.Clusters))
	if err := d.apply(ctx); err != nil {
		return err
	}
	result, err := d.settle(ctx, ended)
	if err != nil {
		return err
	}
	if result.Right {
		fmt.Fprintln(s.err, "hub: deleting an override policy")
		if err := d.rollBack(ctx, result, ended); err != nil {
			return err
		}
	}
	if result.Right {
		if err := showRollout(ctx, s, pg, result, ended); err != nil {
			return err
		}
	}
	if result.Right {
		if err := showInjection(ctx, s, pg, result, ended); err != nil {
			return err
		}
	}
	result.Seconds = time.Since(began).Round(100 * time.Millisecond).Seconds()
	if err := o.print(s.out, result); err != nil {
		return err
	}
	if !result.Right {
		err = errFound
	}
	switch {
	case o.ui:
		return errors.Join(err, browse(ctx, s, pg))
	case o.once || !isTerminal(s.out):
		fmt.Fprintln(s.err, "\nThe same in a browser: refract demo --ui")
		return err
	}
	invite(s.err, pg)
	select {
	case <-ctx.Done():
	case failed := <-ended:
		err = errors.Join(err, failed)
	}
	return err
}

// browse shows the hub in a browser until ctx ends.
func browse(ctx context.Context, s *streams, pg *playground.Playground) error {
	cmd := newUICommand(s) //nolint:contextcheck // ExecuteContext passes the context.
	args := []string{"--kubeconfig", pg.Hub().Kubeconfig}
	if !isTerminal(s.out) {
		args = append(args, "--no-open")
	}
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	return cmd.ExecuteContext(ctx)
}

// invite describes how to inspect the running clusters.
func invite(to io.Writer, pg *playground.Playground) {
	kubectl := kubectlBeside()
	fmt.Fprintf(to, `
The clusters keep running until Ctrl-C. In another terminal, for example:

  export KUBECONFIG=%s
  %s get propagations --all-namespaces
  %s get overridepolicies --all-namespaces

And in a browser:

  %s ui --kubeconfig %s
`, pg.Hub().Kubeconfig, kubectl, kubectl, calledAs(), pg.Hub().Kubeconfig)
}

// calledAs returns the name that this program was started with.
func calledAs() string {
	if len(os.Args) > 0 && os.Args[0] != "" {
		return os.Args[0]
	}
	return "refract"
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// kubectlBeside returns the path of the kubectl next to this program, which is built with the control planes. Without
// one it returns the kubectl of the user.
func kubectlBeside() string {
	exe, err := os.Executable()
	if err != nil {
		return "kubectl"
	}
	path := filepath.Join(filepath.Dir(exe), "kubectl")
	if _, err := os.Stat(path); err != nil {
		return "kubectl"
	}
	return path
}

// logToFile returns the log of this process. The function forget closes its file and removes it.
func logToFile() (log logr.Logger, forget func() error, err error) {
	if err := os.MkdirAll(filepath.Dir(demoLog), 0o750); err != nil {
		return log, nil, fmt.Errorf("making a folder for the demo: %w", err)
	}
	file, err := os.Create(demoLog)
	if err != nil {
		return log, nil, fmt.Errorf("making a log for the controllers: %w", err)
	}
	log = logr.FromSlogHandler(slog.NewTextHandler(file, nil))
	setLog(log)
	return log, func() error { return errors.Join(file.Close(), os.Remove(demoLog)) }, nil
}

// startControllers runs the controllers of the hub and of each member in this process. The function stop ends them, and
// waits until they have ended.
func startControllers(ctx context.Context, pg *playground.Playground, log logr.Logger) (ended <-chan error, stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	failed := make(chan error, 1+len(pg.Members()))
	var all sync.WaitGroup
	stop = func() error {
		cancel()
		all.Wait()
		return nil
	}
	start := func(kubeconfig string, c *controllers) error {
		cfg, err := fileConfig(kubeconfig, "")
		if err != nil {
			return err
		}
		c.systemNamespace, c.metricsAddress, c.healthAddress = corev1alpha1.SystemNamespace, "0", "0"
		all.Go(func() { failed <- c.run(ctx, cfg) })
		return nil
	}
	if err := start(pg.Hub().Kubeconfig, &controllers{propagation: true, guard: propagation.DefaultGuard, log: log.WithName("hub")}); err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	for _, m := range pg.Members() {
		address, err := freeAddress(ctx)
		if err == nil {
			at := webhookOptions{address: address, url: "https://" + address}
			err = start(m.Kubeconfig, &controllers{injection: true, webhook: at, log: log.WithName(m.Name)})
		}
		if err != nil {
			return nil, nil, errors.Join(err, stop())
		}
	}
	return failed, stop, nil
}

// freeAddress returns a local address with a free port.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}
