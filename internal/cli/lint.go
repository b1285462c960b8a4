package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"refract.dev/fleet/offline/lint"
	"refract.dev/fleet/offline/manifest"
	"refract.dev/fleet/offline/manifest/nearest"
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
		Short: "Find mistakes in policies and their effects",
		Long: `Find mistakes in policies, and in their effects on the objects of the input:
unreadable and rejected manifests; missing and unused policies; unknown clusters,
labels, containers and variables; rules that never match or are overwritten by
later ones; patches that do not apply; and values that the type of the object does
not allow. Of ServiceInjectionPolicies the command finds those without pods, with
conflicts with a pod or each other, and with references to missing objects.

Each mistake is one finding, whatever its effects: a line with its place, its
severity and a code that stays the same from release to release, and advice if
there is any. An error keeps an object from a cluster. A warning does not, but the
result is most likely unintended.

Give all related files: objects, policies, FederatedClusters, and the
CustomResourceDefinitions of custom resources.

The exit code is 1 for findings, with --fail-on error only for errors, and 2 for
an unreadable file. Mistakes inside a file are findings.`,
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
	f.StringVar(&o.failOn, "fail-on", string(lint.Warning), "minimum `severity` for exit code 1: "+strings.Join(severities, ", "))
	must(cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(severities, cobra.ShellCompDirectiveNoFileComp)))
	return cmd
}

// severities are the values of --fail-on.
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

// inside reports whether a problem concerns the content of a file, and not the file as a whole.
func inside(p *manifest.Problem) bool { return p.Place.Document > 0 || p.Kind != "" || p.Name != "" }

func unknownSeverity(value string) error {
	hint := "it is one of " + strings.Join(severities, ", ")
	if near := nearest.To(value, severities); near != "" {
		hint = fmt.Sprintf("did you mean %s?", near)
	}
	return withHint(fmt.Errorf("--fail-on: there is no severity %q", value), hint)
}
