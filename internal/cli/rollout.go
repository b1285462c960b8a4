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
		Short: "Follow and steer how a change goes out: wave by wave to clusters, or into pods",
		Long: `Follow and steer how a change goes out.

KIND/NAME is an object of a hub that a RolloutPolicy has change wave by wave: to the
clusters of one wave after the other, as long as they become ready with it. If too many
do not it is halted, or taken back by itself.

POLICY is a ServiceInjectionPolicy of a cluster, whose pods that are there already get
what it injects. Their own controllers recreate them: one workload first, then
rollout.maxConcurrent at a time. If one does not come up again the rollout is halted
until somebody resumes it.`,
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
	watch   bool
	timeout time.Duration
}

func newRolloutStatusCommand(s *streams) *cobra.Command {
	o := &rolloutStatusOptions{}
	cmd := &cobra.Command{
		Use:   "status {POLICY | KIND/NAME}",
		Short: "Show how far a change has come",
		Long: `Show how far the change of an object has come: which waves are over, which clusters
have it and are not ready yet, which have failed and why, and what it waits for. Or how
far the pods of a policy have come: how many have what it injects, which workloads roll
now, which need attention and why, and the policy's conditions.

With --wait the command returns when nothing is left to be done, and tells every
change until then; with --watch it goes on until it is interrupted. The exit code is 1
if the rollout is halted or reverted, if --timeout passes, or if pods are stale and none
is to be recreated.`,
		Example: `  refract rollout status deployment/web -n shop
  refract rollout status deployment/web -n shop --wait --timeout 1h
  refract rollout status allow-database -n shop`,
		Args: policyOrObject,
		RunE: func(cmd *cobra.Command, args []string) error {
			if object := objectIn(args); object != "" {
				return o.runObject(cmd.Context(), s, object)
			}
			return o.run(cmd.Context(), s, args[0])
		},
	}
	o.addFlags(cmd)
	f := cmd.Flags()
	f.BoolVar(&o.wait, "wait", false, "wait until nothing is left to be done")
	f.BoolVarP(&o.watch, "watch", "w", false, "go on, and tell every change, until interrupted")
	cmd.MarkFlagsMutuallyExclusive("wait", "watch")
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
	return s.limited(ctx, o.limit(), func(ctx context.Context) error { return o.show(ctx, s, name, write) })
}

// limit is after which time the command ends; 0 if it looks once, or waits for ever.
func (o *rolloutStatusOptions) limit() time.Duration {
	if o.watch || !o.wait {
		return 0
	}
	return o.timeout
}

// show shows the rollout of a policy.
func (o *rolloutStatusOptions) show(ctx context.Context, s *streams, name string, write func(*streams, *injected.Rollout) error) error {
	s.at("nothing is known of the rollout", again)
	c, err := clusterClient(ctx, &o.cluster)
	if err != nil {
		return err
	}
	p, err := o.policy(ctx, c, name)
	if err != nil {
		return err
	}
	r := injected.RolloutOf(p)
	if (o.wait && o.timeout > 0) || o.watch {
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
	limited, cancel := o.waiting(ctx)
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
		return !o.watch && (r.Complete() || r.Halted() || r.Idle()), nil
	}, status.InjectionPolicy(r.Namespace, r.Name))
	if errors.Is(err, context.DeadlineExceeded) {
		fmt.Fprintf(s.err, "%s: not complete after %s\n", r, o.timeout)
		err = nil
	}
	return r, explainInjection(err)
}

// waiting bounds the wait, unless it is for ever.
func (o *rolloutStatusOptions) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.watch {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, o.timeout)
}

func newRolloutPauseCommand(s *streams) *cobra.Command {
	return newRolloutStepCommand(s, "pause", "Touch no further cluster, or workload",
		`Touch no further cluster with the change of an object, or no further workload for a
policy, until refract rollout resume. Who has the change already keeps it, and is
looked at: if it fails the rollout is stopped. New pods get what the policy injects.`,
		func(p *refractv1beta1.ServiceInjectionPolicy) (*injected.Step, error) { return injected.Pause(p), nil },
		(*status.Rollout).Pause)
}

func newRolloutResumeCommand(s *streams) *cobra.Command {
	return newRolloutStepCommand(s, "resume", "Let a rollout go on that is paused or halted",
		`Let a rollout go on that is paused; or have one tried again that was halted because
clusters failed, or taken back: a reverted one begins at its first wave. The rollout of
a policy, halted because a workload did not come up again, is resumed with what the
policy injects now.`,
		injected.Resume, (*status.Rollout).Resume)
}

func newRolloutApproveCommand(s *streams) *cobra.Command {
	return newRolloutStepCommand(s, "approve", "Let a rollout go on that waits for an approval",
		`Let the wave of a rollout begin whose strategy is Manual, or a change that is larger
than maxChange allows; or the rollout of a policy whose rollout.strategy is Manual. What
is approved is what the object, or the policy, is now: a later change must be approved
again. It takes the verb approve for the rollout policy that the object obeys.`,
		injected.Approve, (*status.Rollout).Approve)
}

// newRolloutStepCommand is a command that does something about a rollout.
func newRolloutStepCommand(
	s *streams, verb, short, long string, decide func(*refractv1beta1.ServiceInjectionPolicy) (*injected.Step, error),
	decideObject func(*status.Rollout) (*status.Step, error),
) *cobra.Command {
	o := &inCluster{}
	cmd := &cobra.Command{
		Use:     verb + " {POLICY | KIND/NAME}",
		Short:   short,
		Long:    long,
		Example: "  refract rollout " + verb + " deployment/web -n shop\n  refract rollout " + verb + " allow-database -n shop",
		Args:    policyOrObject,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			if object := objectIn(args); object != "" {
				return o.stepObject(ctx, s, object, decideObject)
			}
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
	if errors.Is(err, injected.ErrGoesOn) || errors.Is(err, injected.ErrNothingToApprove) ||
		errors.Is(err, status.ErrGoesOn) || errors.Is(err, status.ErrNothingToApprove) {
		return withHint(err, "refract rollout status says how it stands")
	}
	return err
}
