package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validation"

	refractv1beta1 "refract.dev/api/refract/v1beta1"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/preview"
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
		Short: "Show the effect of ServiceInjectionPolicies on pods",
		Long: `Show the effect of ServiceInjectionPolicies on the pods of their namespace: the pods
of the input, and for each workload a pod of its template, with the additions by the
webhook of refract run --injection. The command contacts no API server, and does not
add the defaults of an API server.

The input consists of pods, or any objects with a pod template (a Deployment,
ReplicaSet, StatefulSet, DaemonSet, Job, CronJob, ReplicationController, PodTemplate or
a custom kind), and the policies. A Service completes a policy with implicit: true. A
policy with the API version extensions/v1beta1 of the proposal is read as the current
version. Manifests without a namespace belong to that of -n. Policies are applied by
name, or by age if their manifests come from an API server and have a creation time.

Pods go to stdout; a pod that no policy selects is shown unchanged. Policies that are
left out go to stderr, with the reason: a policy that conflicts with a pod is left out
entirely for this pod, and the others are applied. The exit code is then still 0. It is
1 if a pod is rejected (onConflict: Reject) or a policy is invalid and therefore left
out, and 2 if the input cannot be read.

With -o diff, only pods with additions are shown, as a unified diff with the policy of
each addition; with -o json, one document has the pods, the policies left out with the
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
	f.StringVarP(&o.namespace, "namespace", "n", "default", "`name` of the namespace of manifests without one")
	injectOutputs.addFlag(cmd, &o.output)
	must(cmd.RegisterFlagCompletionFunc("namespace", func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return namespaces(o.inputs.peek()), cobra.ShellCompDirectiveNoFileComp
	}))
	return cmd
}

// injectResult is the result of inject.
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

// inInjectionPolicy reports whether a problem concerns the spec of an injection policy. In a cluster such a policy has
// no effect, and pods are created without it. So the problem does not stop this command either.
func inInjectionPolicy(p *manifest.Problem) bool {
	return p.Kind == refractv1beta1.KindServiceInjectionPolicy && strings.HasPrefix(p.Field, "spec")
}

// show shows how the pods are injected. The argument problems has the problems of injection policies.
func (o *injectOptions) show(s *streams, set *manifest.Set, problems []*manifest.Problem, write func(*streams, *injectResult) error) error {
	evaluation := preview.Evaluate(set)
	result := evaluation.Result(set, problems)
	for i := range result.Warnings {
		fmt.Fprintf(s.err, "warning: %s\n", &result.Warnings[i])
	}
	for i := range result.Skipped {
		switch skipped := &result.Skipped[i]; {
		case skipped.Refused: // This is reported as an error below.
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
