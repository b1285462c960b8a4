package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1alpha1 "refract.dev/api/core/v1alpha1"
	"refract.dev/examples"
	"refract.dev/internal/controller/propagation"
	"refract.dev/internal/hub"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/render"
	"refract.dev/internal/playground"
)

// demoDir is the folder of the demo's playground, and demoLog the file that its
// controllers write to.
const (
	demoDir = ".refract/demo"
	demoLog = ".refract/demo.log"
)

// demoPatience is how long the demo waits for all copies to be right.
const demoPatience = 2 * time.Minute

// demoMembers is how many clusters the examples are written for.
const demoMembers = 3

// demoRelease is the override policy of the examples that releases a change to
// one cluster; the demo takes it back.
const demoRelease = "checkout-release"

type demoOptions struct {
	once    bool
	ui      bool
	members int
	output  string
}

// demoOutputs are the formats of the demo's result, which the text tells as it comes.
var demoOutputs = []string{"text", "json"}

func newDemoCommand(s *streams) *cobra.Command {
	o := &demoOptions{}
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show Refract at work on control planes on this machine",
		Long: `Show Refract at work: start a hub and member clusters on this machine, put the
examples on the hub, wait until every member holds what belongs there, and print
what differs and which policy made it so. Every copy is compared with what
refract render says. Then a change that fails goes out by a rollout policy: one member
gets it, and gets back what it had. Then a policy that injects a service into pods travels to the
members, and is changed: the pods there get what it says, and are recreated.

On a terminal the clusters then run on until Ctrl-C, for a look with kubectl, or in a
browser with --ui.`,
		Example: `  refract demo --once
  refract demo --ui`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), s) },
	}
	f := cmd.Flags()
	f.BoolVar(&o.once, "once", false, "end when all has been shown, on a terminal too")
	f.BoolVar(&o.ui, "ui", false, "show the clusters in a browser in the end, until interrupted")
	f.IntVar(&o.members, "members", demoMembers, "`number` of member clusters, 3 or more")
	addOutputFlag(cmd, &o.output, demoOutputs)
	cmd.MarkFlagsMutuallyExclusive("once", "ui")
	return s.finishing(cmd)
}

func (o *demoOptions) run(ctx context.Context, s *streams) (err error) {
	if o.members < demoMembers {
		return fmt.Errorf("--members: the examples are for %d clusters, got %d", demoMembers, o.members)
	}
	if !slices.Contains(demoOutputs, o.output) {
		return unknownOutput(o.output, demoOutputs)
	}
	set, problems := manifest.ReadFS(examples.Shop)
	if len(problems) > 0 {
		return problems[0]
	}
	began := time.Now()
	defer func() { _ = os.Remove(filepath.Dir(demoDir)) }() // Only if it is empty.
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
	cmd := newUICommand(s) //nolint:contextcheck // It is executed with it.
	args := []string{"--kubeconfig", pg.Hub().Kubeconfig}
	if !isTerminal(s.out) {
		args = append(args, "--no-open")
	}
	cmd.SetArgs(args)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	return cmd.ExecuteContext(ctx)
}

// invite says how to look at the clusters that run on.
func invite(to io.Writer, pg *playground.Playground) {
	kubectl := kubectlBeside()
	fmt.Fprintf(to, `
The clusters run on until Ctrl-C. In another terminal, for example:

  export KUBECONFIG=%s
  %s get propagations --all-namespaces
  %s get overridepolicies --all-namespaces

And in a browser:

  %s ui --kubeconfig %s
`, pg.Hub().Kubeconfig, kubectl, kubectl, calledAs(), pg.Hub().Kubeconfig)
}

// calledAs is how this program was called.
func calledAs() string {
	if len(os.Args) > 0 && os.Args[0] != "" {
		return os.Args[0]
	}
	return "refract"
}

// isTerminal reports whether a person is looking.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// kubectlBeside returns the kubectl that was built with the control planes, or
// the one that the user has.
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

// logToFile returns the log of everything in this process. Forget closes and removes it.
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

// startControllers runs the controllers in this process, those of the hub and those
// of each member. Stop ends them and waits for that.
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

// freeAddress returns an address of this machine on which nobody listens.
func freeAddress(ctx context.Context) (string, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp4", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("finding a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// demo is the examples on a running playground.
type demo struct {
	set     *manifest.Set
	want    *render.Result
	hub     client.Client
	members map[string]client.Client
}

// demoResult is what the demo found.
type demoResult struct {
	// Objects are those that were placed, in the order of the examples.
	Objects []demoObject `json:"objects"`
	// RollBack is what came of deleting one of the policies.
	RollBack demoRollBack `json:"rollBack"`
	// Rollout is what came of a change that fails; nil if it did not come to that.
	Rollout *demoRollout `json:"rollout,omitempty"`
	// Injection is what came of a policy for pods; nil if it did not come to that.
	Injection *demoInjection `json:"injection,omitempty"`
	// Right is whether every copy is what refract render says, before and after
	// the roll-back and the change that failed, and whether pods have what the policy for them says.
	Right bool `json:"right"`
	// Seconds from the start of the first process.
	Seconds float64 `json:"seconds"`
}

type demoRollBack struct {
	Policy render.Policy `json:"policy"`
	// Right is whether every copy is again as it was without the policy.
	Right bool `json:"right"`
	// Seconds from the deletion until all copies were right.
	Seconds float64 `json:"seconds"`
}

type demoObject struct {
	Object   render.Object `json:"object"`
	Clusters []demoCopy    `json:"clusters"`
}

type demoCopy struct {
	Name string `json:"name"`
	// State is that of the Propagation.
	State string `json:"state"`
	// Changes are those that the override policies made, and who made them.
	Changes []string `json:"changes,omitempty"`
	// Wrong says in which field the copy is not what refract render says.
	Wrong string `json:"wrong,omitempty"`
}

func newDemo(pg *playground.Playground, set *manifest.Set) (*demo, error) {
	d := &demo{set: set, members: map[string]client.Client{}}
	// What is on the hub alone has nothing to be compared with.
	set.Objects = slices.DeleteFunc(set.Objects, func(o manifest.Object) bool { return !propagates(o.Content) })
	// The clusters of the examples stand for the first members; more may run.
	only := make([]string, 0, demoMembers)
	for _, m := range pg.Members()[:demoMembers] {
		only = append(only, m.Name)
		cfg, err := fileConfig(m.Kubeconfig, "")
		if err != nil {
			return nil, err
		}
		if d.members[m.Name], err = hub.Client(cfg); err != nil {
			return nil, err
		}
	}
	var err error
	if d.want, err = render.Render(set, only); err != nil {
		return nil, err
	}
	cfg, err := fileConfig(pg.Hub().Kubeconfig, "")
	if err != nil {
		return nil, err
	}
	d.hub, err = hub.Client(cfg)
	return d, err
}

// propagates reports whether the object asks to be propagated.
func propagates(u *unstructured.Unstructured) bool {
	labels := u.GetLabels()
	return labels[corev1alpha1.PropagationPolicyLabel] != "" || labels[corev1alpha1.ClusterPropagationPolicyLabel] != ""
}

// settle waits until all copies are right, and returns how it stands then; or
// how it stands when patience is over.
func (d *demo) settle(ctx context.Context, ended <-chan error) (*demoResult, error) {
	var result *demoResult
	_, err := poll(ctx, demoPatience, ended, func(ctx context.Context) (done bool, err error) {
		now, err := d.look(ctx)
		if err != nil {
			return false, err
		}
		result = now
		return now.Right, nil
	})
	if err == nil && result == nil {
		err = errors.New("nothing was heard of the clusters")
	}
	return result, err
}

// poll looks again and again until it is done; ok is false if patience is over before. An error of
// a look that patience cut short is none.
func poll(ctx context.Context, patience time.Duration, ended <-chan error, look func(context.Context) (done bool, err error)) (ok bool, err error) {
	within, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := look(within)
		switch {
		case err == nil && done:
			return true, nil
		case err != nil && within.Err() == nil:
			return false, err
		}
		select {
		case <-within.Done():
			return false, ctx.Err()
		case err := <-ended:
			return false, errors.Join(errors.New("the controllers ended"), err)
		case <-tick.C:
		}
	}
}

// rollBack deletes the policy that releases a change, and adds to the result
// what came of that.
func (d *demo) rollBack(ctx context.Context, result *demoResult, ended <-chan error) error {
	policy := &corev1alpha1.OverridePolicy{}
	policy.Namespace, policy.Name = "shop", demoRelease
	began := time.Now()
	if err := d.hub.Delete(ctx, policy); err != nil {
		return fmt.Errorf("deleting OverridePolicy %s: %w", client.ObjectKeyFromObject(policy), err)
	}
	// What each cluster is to get now is what it would get without the label.
	for i := range d.set.Objects {
		o := &d.set.Objects[i]
		labels := o.Content.GetLabels()
		if labels[corev1alpha1.OverridePolicyLabel] == policy.Name {
			o.Content = o.Content.DeepCopy()
			delete(labels, corev1alpha1.OverridePolicyLabel)
			o.Content.SetLabels(labels)
		}
	}
	var err error
	if d.want, err = render.Render(d.set, slices.Sorted(maps.Keys(d.members))); err != nil {
		return err
	}
	after, err := d.settle(ctx, ended)
	if err != nil {
		return err
	}
	result.RollBack = demoRollBack{
		Policy:  render.Policy{Kind: corev1alpha1.KindOverridePolicy, Namespace: policy.Namespace, Name: policy.Name},
		Right:   after.Right,
		Seconds: time.Since(began).Round(10 * time.Millisecond).Seconds(),
	}
	result.Right = result.Right && after.Right
	return nil
}

// apply puts on the hub all of the examples but the clusters.
func (d *demo) apply(ctx context.Context) error {
	for i := range d.set.Manifests {
		u := d.set.Manifests[i].Content
		if u.GetKind() == corev1alpha1.KindFederatedCluster {
			continue
		}
		if err := d.put(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// put puts an object on the hub as it stands.
func (d *demo) put(ctx context.Context, u *unstructured.Unstructured) error {
	err := d.hub.Apply(ctx, client.ApplyConfigurationFromUnstructured(u.DeepCopy()), client.FieldOwner("refract-demo"), client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("applying %s %s: %w", u.GetKind(), client.ObjectKeyFromObject(u), err)
	}
	return nil
}

// look compares every copy with what refract render says.
func (d *demo) look(ctx context.Context) (*demoResult, error) {
	result := &demoResult{Right: len(d.want.Errors) == 0}
	at := map[render.Object]int{}
	for _, c := range d.want.Clusters {
		for _, object := range c.Objects {
			want := &unstructured.Unstructured{Object: object}
			id := render.Object{APIVersion: want.GetAPIVersion(), Kind: want.GetKind(), Namespace: want.GetNamespace(), Name: want.GetName()}
			if _, ok := at[id]; !ok {
				at[id] = len(result.Objects)
				result.Objects = append(result.Objects, demoObject{Object: id})
			}
			got, err := d.copyOn(ctx, c.Name, want)
			if err != nil {
				return nil, err
			}
			result.Right = result.Right && got.Wrong == "" && got.State == "Synced"
			o := &result.Objects[at[id]]
			o.Clusters = append(o.Clusters, *got)
		}
	}
	return result, nil
}

func (d *demo) copyOn(ctx context.Context, cluster string, want *unstructured.Unstructured) (*demoCopy, error) {
	c := &demoCopy{Name: cluster}
	live := &unstructured.Unstructured{}
	live.SetGroupVersionKind(want.GroupVersionKind())
	err := d.members[cluster].Get(ctx, client.ObjectKeyFromObject(want), live)
	switch {
	case apierrors.IsNotFound(err):
		c.Wrong = "the copy is not there"
	case err != nil:
		return nil, fmt.Errorf("reading %s %s of %s: %w", want.GetKind(), client.ObjectKeyFromObject(want), cluster, err)
	default:
		c.Wrong = differs("", want.Object, live.Object)
	}
	status, err := propagation.StatusOf(ctx, d.hub, want)
	if err != nil {
		return nil, err
	}
	if status == nil {
		return c, nil
	}
	hash := ""
	for _, row := range status.Clusters {
		if row.Name == cluster {
			c.State, hash = string(row.State), row.Hash
		}
	}
	for _, v := range status.Variants {
		if v.Hash == hash {
			c.Changes = v.Changes
		}
	}
	return c, nil
}
