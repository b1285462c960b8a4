package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"text/tabwriter"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/fleet/hub"
	"refract.dev/fleet/member"
	"refract.dev/internal/playground"
)

// defaultDir is the default folder of a playground.
const defaultDir = ".refract"

// upOptions are the flags of up.
type upOptions struct {
	dir          string
	members      int
	bare, detach bool
	alike        bool // Whether the clusters are equal.
	ordinaryHub  bool // Whether the hub has all controllers, a scheduler and Nodes.
	// detached is true in the process that up --detach starts. This process writes messages to file descriptor 3 until
	// all components run, and no messages after that.
	detached bool
}

func newUpCommand(s *streams) *cobra.Command {
	o := &upOptions{}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Start a hub and member clusters on this machine",
		Long: `Start a hub and member clusters on this machine, on real control planes that need
no container runtime, and join the members to the hub. They run until
interrupted, or with --detach until refract down, and then leave nothing behind.

The clusters differ, like those of a company, in the addresses of Services, the node
ports and the StorageClass. member-1 does not serve RuntimeClasses, on member-2 a
webhook adds a label and a sidecar, and member-3 admits only pods of the security level
restricted. With --alike the clusters are equal.

The kubeconfigs are DIR/kubeconfigs/hub.yaml, member-1.yaml and so on. The
members have the labels region and provider. To inject services into the pods of a
member, start refract run --injection with its kubeconfig and a --webhook-url of this
machine.`,
		Example: `  refract up --detach
  refract run --kubeconfig .refract/kubeconfigs/hub.yaml`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), s) },
	}
	f := cmd.Flags()
	f.StringVar(&o.dir, "dir", defaultDir, "`folder` for all files")
	f.IntVar(&o.members, "members", 3, "`number` of member clusters")
	f.BoolVar(&o.bare, "bare", false, "run members as only an API server and an etcd, for load tests")
	f.BoolVar(&o.alike, "alike", false, "start equal clusters")
	f.BoolVar(&o.ordinaryHub, "ordinary-hub", false, "run the hub as an ordinary cluster, with all controllers and with nodes for pods")
	f.BoolVar(&o.detach, "detach", false, "return when all clusters run; refract down stops them")
	f.BoolVar(&o.detached, "detached", false, "")
	must(f.MarkHidden("detached"))
	return s.finishing(cmd)
}

func (o *upOptions) run(ctx context.Context, s *streams) error {
	if o.members < 1 {
		return fmt.Errorf("--members: want 1 or more, got %d", o.members)
	}
	running, err := playground.Find(ctx, o.dir)
	if err != nil {
		return err
	}
	if running != nil {
		return o.found(s, running)
	}
	switch {
	case o.detached:
		syscall.CloseOnExec(3) // The components must not inherit the open file.
		narration := os.NewFile(3, "narration")
		err := o.serve(ctx, narration, func(*playground.Playground) error { return narration.Close() })
		if err != nil {
			report(narration, err) // The waiting process reads this, or has ended.
		}
		return err
	case o.detach:
		return o.detachAndWait(ctx, s)
	}
	return o.serve(ctx, s.err, func(pg *playground.Playground) error {
		fmt.Fprintf(s.err, "running; Ctrl-C stops it. In another terminal:\n  refract run --kubeconfig %s\n", pg.Hub().Kubeconfig)
		return printClusters(s, pg.Hub(), pg.Members())
	})
}

// found handles the case that a playground already runs in the folder.
func (o *upOptions) found(s *streams, running *playground.State) error {
	if len(running.Members) != o.members || running.Bare != o.bare || running.Alike != o.alike || running.OrdinaryHub != o.ordinaryHub {
		return withHint((&playground.RunningError{State: *running}),
			fmt.Sprintf("it has %d members, bare=%t, alike=%t and ordinary-hub=%t; refract down --dir %s stops it",
				len(running.Members), running.Bare, running.Alike, running.OrdinaryHub, o.dir))
	}
	fmt.Fprintf(s.err, "already running in %s (process %d)\n", running.Dir, running.PID)
	return printClusters(s, running.Hub, running.Members)
}

// serve runs a playground until ctx ends or a component ends. It calls ready once, as soon as all components run.
func (o *upOptions) serve(ctx context.Context, narration io.Writer, ready func(*playground.Playground) error) (err error) {
	ctrllog.SetLogger(logr.Discard()) // As in watchingClient.
	pg, err := startPlayground(ctx, playground.Options{Dir: o.dir, Members: o.members, Bare: o.bare, Alike: o.alike, OrdinaryHub: o.ordinaryHub}, narration)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pg.Stop()) }()
	if err := joinMembers(ctx, pg); err != nil {
		return err
	}
	if err := ready(pg); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- pg.Wait() }()
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// detachAndWait starts this program again, in its own session. It returns when all components run or the start has
// failed.
func (o *upOptions) detachAndWait(ctx context.Context, s *streams) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("creating a pipe: %w", err)
	}
	defer func() { _ = r.Close() }() // An error when closing a pipe after reading does not matter.
	args := []string{"up", "--detached", "--dir", o.dir, "--members", strconv.Itoa(o.members)}
	for flag, set := range map[string]bool{"--bare": o.bare, "--alike": o.alike, "--ordinary-hub": o.ordinaryHub} {
		if set {
			args = append(args, flag)
		}
	}
	child := exec.Command(exe, args...) //nolint:noctx,gosec // The child is this program, and must not end with this command.
	child.ExtraFiles = []*os.File{w}
	child.SysProcAttr = ownSession()
	// Reading from the pipe ends only when all its writers are closed, so this process must close its own.
	if err := errors.Join(child.Start(), w.Close()); err != nil {
		return fmt.Errorf("starting the supervisor: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = child.Process.Signal(os.Interrupt) }) // The child may already have ended.
	defer stop()
	if _, err := io.Copy(s.err, r); err != nil { // Copies until the child closes the pipe.
		return fmt.Errorf("waiting for the playground: %w", err)
	}
	running, err := playground.Find(ctx, o.dir)
	if err != nil {
		return err
	}
	if running == nil {
		_ = child.Wait() // The child has already written its error.
		return errors.New("the playground did not start")
	}
	fmt.Fprintf(s.err, "running in the background (process %d); refract down --dir %s stops it\n", running.PID, o.dir)
	return printClusters(s, running.Hub, running.Members)
}

func newDownCommand(s *streams) *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:     "down",
		Short:   "Stop the clusters of refract up",
		Example: "  refract down --dir .refract",
		Args:    noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			err := playground.Down(cmd.Context(), dir)
			switch {
			case errors.Is(err, playground.ErrNotRunning):
				fmt.Fprintf(s.err, "nothing is running in %s\n", dir)
				return nil
			case err != nil:
				return err
			}
			fmt.Fprintf(s.err, "stopped the clusters in %s\n", dir)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "dir", defaultDir, "`folder` of the playground")
	return s.finishing(cmd)
}

// startPlayground starts a playground with the components in the folder of this program.
func startPlayground(ctx context.Context, o playground.Options, narration io.Writer) (*playground.Playground, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding this program: %w", err)
	}
	if o.Assets, err = playground.Assets(exe); err != nil {
		return nil, err
	}
	o.Progress = func(msg string) { fmt.Fprintln(narration, msg) }
	return playground.Start(ctx, o)
}

// joinMembers installs Refract's types on the hub of the playground, and makes the other clusters its members.
func joinMembers(ctx context.Context, pg *playground.Playground) error {
	cfg, err := fileConfig(pg.Hub().Kubeconfig, "")
	if err != nil {
		return err
	}
	if err := hub.InstallCRDs(ctx, cfg); err != nil {
		return err
	}
	c, err := hub.Client(cfg)
	if err != nil {
		return err
	}
	errs := make([]error, len(pg.Members()))
	var all sync.WaitGroup
	for i, m := range pg.Members() {
		all.Go(func() {
			cfg, err := fileConfig(m.Kubeconfig, "")
			if err != nil {
				errs[i] = err
				return
			}
			errs[i] = member.Join(ctx, c, corev1alpha1.SystemNamespace, m.Name, cfg, memberLabels(i), nil)
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// memberLabels returns the labels of the i-th member, beginning with 0. The first three members have the same labels as
// in examples/override/clusters.yaml.
func memberLabels(i int) map[string]string {
	regions, providers := []string{"eu", "us", "ap"}, []string{"alpha", "beta", "gamma"}
	return map[string]string{"region": regions[i%len(regions)], "provider": providers[i%len(providers)]}
}

// printClusters writes the addresses and kubeconfigs of the clusters to stdout, and their traits to stderr.
func printClusters(s *streams, hub playground.Cluster, members []playground.Cluster) error {
	all := append([]playground.Cluster{hub}, members...)
	for _, c := range all {
		fmt.Fprintf(s.err, "%s: %s\n", c.Name, c.Traits)
	}
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "CLUSTER\tENDPOINT\tKUBECONFIG")
	here, _ := os.Getwd() // After an error, absolute paths are printed.
	for _, c := range all {
		path := c.Kubeconfig
		if rel, err := filepath.Rel(here, path); err == nil && filepath.IsLocal(rel) {
			path = rel
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", c.Name, c.Endpoint, path)
	}
	return table.Flush()
}
