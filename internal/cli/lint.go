package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"refract.dev/internal/offline/lint"
	"refract.dev/internal/offline/manifest"
	"refract.dev/internal/offline/manifest/nearest"
)

// lintOptions are the flags of lint.
type lintOptions struct {
	inputs inputs
	output string
	failOn string
}

func newLintCommand(s *streams) *cobra.Command {
	o := &lintOptions{}
	cmd := &cobra.Command{
		Use:   "lint -f FILE",
		Short: "Find mistakes in policies, and in what they do",
		Long: `Find mistakes in policies, and in what they do to the objects of the input on
its clusters: manifests that cannot be read or are refused, policies that are
named and not there or there and not named, clusters, labels, containers and
variables that nothing has, rules that hold nowhere or are overwritten by later
ones, patches that miss, and values that the type of the object cannot hold. Of
ServiceInjectionPolicies it finds those that select no pod, that conflict with a pod
or with each other, and that refer to what is not there.

One mistake is one finding, whatever it leads to: a line with its place, its
severity and a code that stays the same from release to release, and advice where
there is any. An error keeps an object from a cluster; a warning does not, and
most likely something else was meant.

Give everything that belongs together: objects, policies, FederatedClusters, and
CustomResourceDefinitions for the types that they define.

The exit code is 1 if something was found, with --fail-on error if an error was,
and 2 if a file cannot be read. What is wrong inside a file is found.`,
		Example: `  refract lint -f shop/ -f clusters.yaml
  refract lint -f shop/ -f clusters.yaml --fail-on error
  refract lint -f shop/ -f clusters.yaml -o sarif > refract.sarif
  kustomize build shop | refract lint -f clusters.yaml -f -
  refract lint --hub`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.run(cmd.Context(), s) },
	}
	f := cmd.Flags()
	o.inputs.addFlags(cmd)
	lintOutputs.addFlag(cmd, &o.output)
	f.StringVar(&o.failOn, "fail-on", string(lint.Warning), "least `severity` for the exit code 1: "+strings.Join(severities, ", "))
	must(cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(severities, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// severities are what --fail-on knows.
var severities = []string{string(lint.Warning), string(lint.Error)}

// lintOutputs are the formats of lint.
var lintOutputs = formats[*lint.Result]{
	{"text", toStdout(lint.WriteText)},
	{"json", toStdout(lint.WriteJSON)},
	{"sarif", toStdout(lint.WriteSARIF)},
}

func (o *lintOptions) run(ctx context.Context, s *streams) error {
	write, err := lintOutputs.find(o.output)
	switch {
	case err != nil:
		return err
	case !slices.Contains(severities, o.failOn):
		return unknownSeverity(o.failOn)
	}
	read, err := o.inputs.open(ctx, s)
	if err != nil {
		return err
	}
	problems := slices.Concat(read.left(read.set), read.problems)
	if unread := slices.DeleteFunc(slices.Clone(problems), inside); len(unread) > 0 {
		return problemsAsError(unread)
	}
	result := lint.Lint(read.set, problems)
	if err := write(s, result); err != nil {
		return err
	}
	if result.Has(lint.Severity(o.failOn)) {
		return errFound
	}
	return nil
}

// inside reports whether a problem is about what is in a file, and not about the
// file.
func inside(p *manifest.Problem) bool { return p.Place.Document > 0 || p.Kind != "" || p.Name != "" }

func unknownSeverity(value string) error {
	hint := "it is one of " + strings.Join(severities, ", ")
	if near := nearest.To(value, severities); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return withHint(fmt.Errorf("--fail-on: there is no severity %q", value), hint)
}
