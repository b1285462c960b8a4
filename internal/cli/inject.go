package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validation"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/preview"
)

// injectOptions are the flags of inject.
type injectOptions struct {
	inputs    inputs
	namespace string
	output    string
}

func newInjectCommand(s *streams) *cobra.Command {
	o := &injectOptions{}
	cmd := &cobra.Command{
		Use:   "inject -f FILE",
		Short: "Show what ServiceInjectionPolicies give to pods",
		Long: `Show what pods get from the ServiceInjectionPolicies of their namespace: the pods
of the input, and for each workload the pod that would be made of its template,
with what the webhook of refract run --injection would add. No API server is
asked, and the defaults that one fills in are not added.

The input holds pods, or anything with a pod template (a Deployment, ReplicaSet,
StatefulSet, DaemonSet, Job, CronJob, ReplicationController, PodTemplate or a
custom kind), and the policies. A Service completes a policy with implicit: true.
A policy that still says extensions/v1beta1, as the proposal did, is read as what
it is today. Manifests that name no namespace are in the one of -n. Policies are
applied by name, unless their manifests come from an API server and tell their age.

Pods go to stdout; a pod that no policy selects is shown as it is. What is left out
goes to stderr, and why: a policy that says something else than the pod does is
left out for this pod, whole, and the others are applied. That is no failure: the
exit code is 0. It is 1 if a pod is refused (onConflict: Reject) or a policy is not
valid, which is then left out; and 2 if the input cannot be read.

With -o diff only the pods that get something are shown, as a unified diff with who
adds what; with -o json one document has the pods, the policies left out with the
reason, the errors and the warnings.`,
		Example: `  refract inject -f injection/source-document/pod -n myns
  refract inject -f injection/shop -o diff
  refract inject -f injection/shop -o json
  kustomize build shop | refract inject -f injection/shop/10-database.yaml -f -`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run(s) },
	}
	f := cmd.Flags()
	o.inputs.addFileFlag(cmd)
	f.StringVarP(&o.namespace, "namespace", "n", "default", "`name` of the namespace of manifests that name none")
	injectOutputs.addFlag(cmd, &o.output)
	must(cmd.RegisterFlagCompletionFunc("namespace", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return namespaces(o.inputs.peek()), cobra.ShellCompDirectiveNoFileComp
	}))
	return cmd
}

// injectResult is what inject shows.
type injectResult struct {
	evaluation *preview.Evaluation
	result     *preview.Result
}

// injectOutputs are the formats of inject.
var injectOutputs = formats[*injectResult]{
	{"yaml", func(s *streams, i *injectResult) error { return preview.WriteYAML(s.out, i.result) }},
	{"json", func(s *streams, i *injectResult) error { return preview.WriteJSON(s.out, i.result) }},
	{"diff", func(s *streams, i *injectResult) error {
		if err := preview.WriteDiff(s.out, i.evaluation); err != nil {
			return err
		}
		fmt.Fprintln(s.err, i.evaluation.Totals())
		return nil
	}},
}

func (o *injectOptions) run(s *streams) error {
	write, err := injectOutputs.find(o.output)
	if err != nil {
		return err
	}
	if why := validation.ValidateNamespaceName(o.namespace, false); len(why) > 0 {
		return fmt.Errorf("--namespace: %q is no namespace: %s", o.namespace, strings.Join(why, ", "))
	}
	if !o.inputs.given() {
		return withHint(errors.New("there is nothing to read"), "-f names a file, a folder, or - for stdin")
	}
	set, problems := manifest.ReadNew(o.namespace, o.inputs.files, s.in)
	if slices.ContainsFunc(problems, func(p *manifest.Problem) bool { return !inInjectionPolicy(p) }) {
		return problemsAsError(problems)
	}
	return o.show(s, set, problems, write)
}

// inInjectionPolicy reports whether a problem is one of what a policy says. The
// policy is then without effect, in a cluster as well, and pods go without it.
func inInjectionPolicy(p *manifest.Problem) bool {
	return p.Kind == refractv1beta1.KindServiceInjectionPolicy && strings.HasPrefix(p.Field, "spec")
}

// show shows what pods get. The problems are those of policies.
func (o *injectOptions) show(s *streams, set *manifest.Set, problems []*manifest.Problem, write func(*streams, *injectResult) error) error {
	evaluation := preview.Evaluate(set)
	result := evaluation.Result(set, problems)
	for i := range result.Warnings {
		fmt.Fprintf(s.err, "warning: %s\n", &result.Warnings[i])
	}
	for i := range result.Skipped {
		switch skipped := &result.Skipped[i]; {
		case skipped.Refused: // It is among the errors.
		case skipped.Deliberate:
			fmt.Fprintf(s.err, "note: %s\n", skipped)
		default:
			fmt.Fprintf(s.err, "warning: %s\n", skipped)
		}
	}
	errs := make([]error, len(result.Errors))
	for i := range result.Errors {
		errs[i] = withHint(errors.New(result.Errors[i].String()), result.Errors[i].Hint)
	}
	if len(errs) > 0 {
		report(s.err, errors.Join(errs...))
	}
	if err := write(s, &injectResult{evaluation: evaluation, result: result}); err != nil {
		return err
	}
	if len(errs) > 0 {
		return errFound
	}
	return nil
}
