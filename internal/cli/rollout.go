package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/injected"
	"refract.dev/internal/offline/manifest/nearest"
	"refract.dev/internal/status"
)

// inCluster are the flags that say which cluster and namespace is meant.
type inCluster struct {
	cluster   clusterFlags
	namespace string
}

func (o *inCluster) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&o.namespace, "namespace", "n", "", "`name` of the namespace (default: that of the kubeconfig's context)")
	o.cluster.addClusterFlags(cmd, "cluster")
	must(cmd.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return o.peek(cmd.Context(), "", func(p *refractv1beta1.ServiceInjectionPolicy) string { return p.Namespace }), cobra.ShellCompDirectiveNoFileComp
	}))
}

// in returns the namespace that is meant.
func (o *inCluster) in() string {
	if o.namespace != "" {
		return o.namespace
	}
	return o.cluster.namespace()
}

// peek returns something of each policy of a namespace, for completion and hints.
func (o *inCluster) peek(ctx context.Context, namespace string, of func(*refractv1beta1.ServiceInjectionPolicy) string) []string {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	policies := &refractv1beta1.ServiceInjectionPolicyList{}
	if c, err := clusterClient(ctx, &o.cluster); err != nil || c.List(ctx, policies, client.InNamespace(namespace)) != nil {
		return nil
	}
	var found []string
	seen := map[string]bool{}
	for i := range policies.Items {
		if text := of(&policies.Items[i]); !seen[text] {
			seen[text] = true
			found = append(found, text)
		}
	}
	return found
}

// peekNames returns the names of the policies of the namespace that is meant.
func (o *inCluster) peekNames(ctx context.Context) []string {
	return o.peek(ctx, o.in(), func(p *refractv1beta1.ServiceInjectionPolicy) string { return p.Name })
}

// completePolicy completes the name of one policy.
func (o *inCluster) completePolicy(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.peekNames(cmd.Context()), cobra.ShellCompDirectiveNoFileComp
}

// policy reads a policy.
func (o *inCluster) policy(ctx context.Context, c client.Client, name string) (*refractv1beta1.ServiceInjectionPolicy, error) {
	p := &refractv1beta1.ServiceInjectionPolicy{}
	err := c.Get(ctx, types.NamespacedName{Namespace: o.in(), Name: name}, p)
	switch {
	case meta.IsNoMatchError(err):
		return nil, explainInjection(status.ErrNoInjection)
	case apierrors.IsNotFound(err):
		hint := "kubectl get serviceinjectionpolicies --all-namespaces lists them"
		if near := nearest.To(name, o.peekNames(ctx)); near != "" {
			hint = fmt.Sprintf("did you mean %s?", near)
		}
		return nil, withHint(fmt.Errorf("there is no ServiceInjectionPolicy %q in namespace %q", name, o.in()), hint)
	case err != nil:
		return nil, fmt.Errorf("reading ServiceInjectionPolicy %q: %w", name, err)
	}
	return p, nil
}

// explainInjection adds what to do.
func explainInjection(err error) error {
	if errors.Is(err, status.ErrNoInjection) {
		return withHint(err, "`refract run --injection` installs what is needed, against each cluster whose pods are to be injected into")
	}
	return err
}

func newRolloutCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout COMMAND",
		Short: "Follow and steer how existing pods get what a policy injects",
		Long: `Follow and steer how the pods of a cluster that are there already get what a new or
changed ServiceInjectionPolicy injects. Their own controllers recreate them: one
workload first, then rollout.maxConcurrent at a time. If one does not come up again
the rollout is halted until somebody resumes it.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, // Without it no argument is unknown.
	}
	cmd.AddCommand(newRolloutStatusCommand(s), newRolloutPauseCommand(s), newRolloutResumeCommand(s), newRolloutApproveCommand(s))
	return cmd
}

// rolloutStatusOptions are the flags of rollout status.
type rolloutStatusOptions struct {
	inCluster

	output  string
	wait    bool
	timeout time.Duration
}

func newRolloutStatusCommand(s *streams) *cobra.Command {
	o := &rolloutStatusOptions{}
	cmd := &cobra.Command{
		Use:   "status POLICY",
		Short: "Show how far the pods of a policy have come",
		Long: `Show how far the pods of a policy have come: how many have what it injects, which
workloads roll now, which need attention and why, and the policy's conditions.

With --wait the command returns when nothing is left to be done, and tells every
change until then. The exit code is 1 if the rollout is halted, if --timeout passes,
or if pods are stale and none is to be recreated.`,
		Example: `  refract rollout status allow-database -n shop
  refract rollout status allow-database -n shop --wait --timeout 10m`,
		Args: oneName("policy"),
		RunE: func(cmd *cobra.Command, args []string) error { return o.run(cmd.Context(), s, args[0]) },
	}
	o.addFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.wait, "wait", false, "wait until nothing is left to be done")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "`time` after which to give up waiting; 0s to look once")
	rolloutOutputs.addFlag(cmd, &o.output)
	must(cmd.RegisterFlagCompletionFunc("timeout", cobra.NoFileCompletions))
	cmd.ValidArgsFunction = o.completePolicy
	return cmd
}

var rolloutOutputs = formats[*injected.Rollout]{
	{"text", toStdout(injected.WriteRollout)},
	{"json", toStdout(func(w io.Writer, r *injected.Rollout) error { return injected.WriteJSON(w, r) })},
}

func (o *rolloutStatusOptions) run(ctx context.Context, s *streams, name string) error {
	write, err := rolloutOutputs.find(o.output)
	if err != nil {
		return err
	}
	if o.timeout < 0 {
		return fmt.Errorf("--timeout: want 0s or more, got %s", o.timeout)
	}
	c, err := clusterClient(ctx, &o.cluster)
	if err != nil {
		return err
	}
	p, err := o.policy(ctx, c, name)
	if err != nil {
		return err
	}
	r := injected.RolloutOf(p)
	if o.wait && o.timeout > 0 {
		if r, err = o.follow(ctx, s, c, r); err != nil {
			return err
		}
	}
	if err := write(s, r); err != nil {
		return err
	}
	if r.Halted() || (o.wait && !r.Complete()) {
		return errFound
	}
	return nil
}

// follow tells every change until the rollout is complete, halted or given up on, or
// there is none, and returns how it stands then.
func (o *rolloutStatusOptions) follow(ctx context.Context, s *streams, c client.WithWatch, r *injected.Rollout) (*injected.Rollout, error) {
	limited, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	last := ""
	err := status.Follow(limited, c, func(events []status.Event) (bool, error) {
		for _, e := range events {
			p, ok := e.Object.(*refractv1beta1.ServiceInjectionPolicy)
			switch {
			case ok && e.Gone:
				return false, fmt.Errorf("ServiceInjectionPolicy %s was deleted", r)
			case ok:
				r = injected.RolloutOf(p)
			}
		}
		if line := r.Line(); line != last {
			last = line
			fmt.Fprintf(s.err, "%s: %s\n", r, line)
		}
		return r.Complete() || r.Halted() || r.Idle(), nil
	}, status.InjectionPolicy(r.Namespace, r.Name))
	if err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		fmt.Fprintf(s.err, "%s: not complete after %s\n", r, o.timeout)
		err = nil
	}
	return r, explainInjection(err)
}

func newRolloutPauseCommand(s *streams) *cobra.Command {
	return newRolloutStepCommand(s, "pause", "Touch no further workload for a policy",
		`Touch no further workload for a policy, until refract rollout resume. What rolls
already goes on, and new pods get what the policy injects.`,
		func(p *refractv1beta1.ServiceInjectionPolicy) (*injected.Step, error) { return injected.Pause(p), nil })
}

func newRolloutResumeCommand(s *streams) *cobra.Command {
	return newRolloutStepCommand(s, "resume", "Let a rollout go on that is paused or halted",
		`Let a rollout go on that is paused, or that was halted because a workload did not
come up again. It is resumed with what the policy injects now: if that is changed
and a workload does not come up with it, the rollout is halted again.`,
		injected.Resume)
}

func newRolloutApproveCommand(s *streams) *cobra.Command {
	return newRolloutStepCommand(s, "approve", "Let a rollout begin that waits for an approval",
		`Let the rollout of a policy begin whose rollout.strategy is Manual. What is approved
is what the policy injects now: a later change of it must be approved again.`,
		injected.Approve)
}

// newRolloutStepCommand is a command that does something about a rollout.
func newRolloutStepCommand(
	s *streams, verb, short, long string, decide func(*refractv1beta1.ServiceInjectionPolicy) (*injected.Step, error),
) *cobra.Command {
	o := &inCluster{}
	cmd := &cobra.Command{
		Use:     verb + " POLICY",
		Short:   short,
		Long:    long,
		Example: "  refract rollout " + verb + " allow-database -n shop",
		Args:    oneName("policy"),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			c, err := clusterClient(ctx, &o.cluster)
			if err != nil {
				return err
			}
			p, err := o.policy(ctx, c, args[0])
			if err != nil {
				return err
			}
			step, err := decide(p)
			if err != nil {
				return explainStep(err)
			}
			if err := take(ctx, c, p, step); err != nil {
				return err
			}
			fmt.Fprintf(s.err, "%s/%s: %s\n", p.Namespace, p.Name, step.Said)
			return nil
		},
	}
	o.addFlags(cmd)
	cmd.ValidArgsFunction = o.completePolicy
	return cmd
}

// take writes the annotations of a step.
func take(ctx context.Context, c client.Client, p *refractv1beta1.ServiceInjectionPolicy, step *injected.Step) error {
	if len(step.Annotations) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": step.Annotations}})
	if err != nil {
		return err
	}
	if err := c.Patch(ctx, p.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("annotating ServiceInjectionPolicy %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// explainStep adds what to do.
func explainStep(err error) error {
	if errors.Is(err, injected.ErrGoesOn) || errors.Is(err, injected.ErrNothingToApprove) {
		return withHint(err, "refract rollout status says how it stands")
	}
	return err
}
