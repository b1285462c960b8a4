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
	"refract.dev/fleet/offline/manifest/nearest"
	"refract.dev/fleet/status"
	"refract.dev/injection/injected"
)

// inCluster are the flags that select a cluster and a namespace.
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

// in returns the namespace that the flags select.
func (o *inCluster) in() string {
	if o.namespace != "" {
		return o.namespace
	}
	return o.cluster.namespace()
}

// peek returns a text for each injection policy of a namespace, without duplicates, for completion and hints.
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

// peekNames returns the names of the injection policies in the selected namespace.
func (o *inCluster) peekNames(ctx context.Context) []string {
	return o.peek(ctx, o.in(), func(p *refractv1beta1.ServiceInjectionPolicy) string { return p.Name })
}

// completePolicy completes the name of an injection policy.
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

// explainInjection adds advice to an error about a cluster without injection.
func explainInjection(err error) error {
	if errors.Is(err, status.ErrNoInjection) {
		return withHint(err, "start `refract run --injection` against each cluster with pods to inject into: it installs the CustomResourceDefinition")
	}
	return err
}

func newRolloutCommand(s *streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout COMMAND",
		Short: "Follow and control the rollout of changes to clusters and pods",
		Long: `Follow and control the rollout of a change.

KIND/NAME is an object of a hub with a RolloutPolicy. A change of the object reaches its
clusters in waves: a wave begins when the clusters of the previous one are ready. If too
many clusters do not become ready, Refract halts or reverts the rollout.

POLICY is a ServiceInjectionPolicy of a cluster that also covers existing pods. Their own
controllers recreate them: one workload first, then rollout.maxConcurrent at a time. If a
workload does not become available again, the rollout halts until refract rollout resume.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() }, // Without RunE, cobra accepts unknown arguments without an error.
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
		Short: "Show the progress of a rollout",
		Long: `Show the progress of an object's rollout: the completed waves, the clusters that have
the change but are not ready yet, the failed clusters with the reason, and the reason for
a wait. For a policy, show the number of injected pods, the workloads that roll now, the
workloads that need attention with the reason, and the policy's conditions.

With --wait the command shows every change, and returns when no work is left; with
--watch it continues until it is interrupted. The exit code is 1 if the rollout is halted
or reverted, if --timeout expires, or if pods are stale and none will be recreated.`,
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
	f.BoolVar(&o.wait, "wait", false, "wait until no work is left")
	f.BoolVarP(&o.watch, "watch", "w", false, "show every change until interrupted")
	cmd.MarkFlagsMutuallyExclusive("wait", "watch")
	f.DurationVar(&o.timeout, "timeout", 5*time.Minute, "`time` after which to give up waiting; 0s to check once")
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

// limit returns the time limit of the command. It is 0 if the command does not wait, or waits without a limit.
func (o *rolloutStatusOptions) limit() time.Duration {
	if o.watch || !o.wait {
		return 0
	}
	return o.timeout
}

// show shows the rollout of an injection policy.
func (o *rolloutStatusOptions) show(ctx context.Context, s *streams, name string, write func(*streams, *injected.Rollout) error) error {
	s.at("the state of the rollout is unknown", again)
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

// follow writes every change of the rollout until it is complete, halted or idle, or until the time limit. It returns
// the last state.
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

// waiting returns a context with the time limit for the wait, if there is one.
func (o *rolloutStatusOptions) waiting(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.watch {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, o.timeout)
}

func newRolloutPauseCommand(s *streams) *cobra.Command {
	return newRolloutStepCommand(s, "pause", "Pause a rollout",
		`Pause a rollout until refract rollout resume: an object changes on no further cluster,
and a policy recreates the pods of no further workload. Clusters and workloads with the
change keep it; if one fails, the rollout stops. New pods still get the policy's services.`,
		func(p *refractv1beta1.ServiceInjectionPolicy) (*injected.Step, error) { return injected.Pause(p), nil },
		(*status.Rollout).Pause)
}

func newRolloutResumeCommand(s *streams) *cobra.Command {
	return newRolloutStepCommand(s, "resume", "Resume a paused or halted rollout",
		`Resume a paused rollout, or retry a rollout that was halted because of failed clusters,
or reverted: a reverted rollout begins again at its first wave. The rollout of a policy
that was halted because of a workload continues with the policy's current services.`,
		injected.Resume, (*status.Rollout).Resume)
}

func newRolloutApproveCommand(s *streams) *cobra.Command {
	return newRolloutStepCommand(s, "approve", "Approve a waiting rollout",
		`Approve the next wave of a rollout with strategy Manual, or a change that is larger than
maxChange; or the rollout of a policy with rollout.strategy Manual. The approval is for
the current object or policy: a later change needs another approval. The command needs
the verb approve for the rollout policy of the object.`,
		injected.Approve, (*status.Rollout).Approve)
}

// newRolloutStepCommand returns a command that pauses, resumes or approves a rollout.
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

// take writes the annotations of a step to the policy.
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

// explainStep adds advice to an error about a step that is not possible.
func explainStep(err error) error {
	if errors.Is(err, injected.ErrGoesOn) || errors.Is(err, injected.ErrNothingToApprove) ||
		errors.Is(err, status.ErrGoesOn) || errors.Is(err, status.ErrNothingToApprove) {
		return withHint(err, "refract rollout status shows its state")
	}
	return err
}
