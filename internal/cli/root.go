// Package cli is the command line: one file per command. A command parses its
// flags, calls the package that knows, and hands the result to a renderer.
//
// Data goes to stdout and narration to stderr. The exit code is 0 when there is
// nothing to say, 1 for differences, violations and objects that failed, and 2
// when the command could not do what it was asked for.
package cli

import (
	"context"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// groups are the commands by what they are for, in the order of the help.
var groups = []struct {
	title    string
	commands []func(*streams) *cobra.Command
}{
	{"See what a change does:", []func(*streams) *cobra.Command{
		newRenderCommand, newExplainCommand, newDiffCommand, newSnapshotCommand, newInjectCommand, newLintCommand, newTestCommand,
	}},
	{"Run it:", []func(*streams) *cobra.Command{
		newInstallCommand, newUninstallCommand, newCheckCommand, newRunCommand, newDemoCommand, newUpCommand, newDownCommand,
	}},
	{"Clusters, and what is on them:", []func(*streams) *cobra.Command{
		newJoinCommand, newUnjoinCommand, newUICommand, newGetCommand, newWaitCommand, newApproveCommand, newRolloutCommand,
	}},
	{"Custom resources:", []func(*streams) *cobra.Command{newCRDCommand}},
	{"Other commands:", []func(*streams) *cobra.Command{newVersionCommand, newDocsCommand}},
}

// Names under which kubectl finds the program as its plugin, and asks it to
// complete what the user types.
//
// Source: https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/
const (
	pluginName     = "kubectl-refract"
	completionName = "kubectl_complete-refract"
)

// Main runs the command that args ask for, the first of which is the program's
// name, until it is done or ctx ends, and returns the exit code. A command that does not
// end in time by itself is left: see [streams.within]. The caller ends the program then.
func Main(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := newStreams(stdin, stdout, stderr)
	root := newRootCommand(s)
	called := strings.TrimSuffix(filepath.Base(args[0]), ".exe")
	args = args[1:]
	if called == completionName {
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	if called == pluginName || called == completionName {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl refract"}
	}
	root.SetArgs(args)
	err := s.within(ctx, grace, func() error {
		cmd, err := root.ExecuteContextC(ctx)
		if err != nil && cmd.HasSubCommands() {
			return explainUnknownCommand(cmd, err)
		}
		return err
	})
	if err == nil {
		return exitOK
	}
	reportEnd(stderr, s, err)
	return exitCode(err)
}

func newRootCommand(s *streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "refract COMMAND",
		Short: "One object, the right variant for every cluster",
		Long: `Refract gives every member cluster its own variant of an object, as
PropagationPolicies and OverridePolicies say, and can always tell which policy
and rule changed which field.

Exit codes: 0 all is well; 1 there are differences or violations, or an object
failed somewhere; 2 the command could not be run.`,
		SilenceErrors:      true, // Main reports them.
		SilenceUsage:       true,
		DisableSuggestions: true, // Main makes hints of them.
	}
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(explainFlagError)
	for _, g := range groups {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, newCommand := range g.commands {
			cmd := newCommand(s)
			cmd.GroupID = g.title
			root.AddCommand(cmd)
		}
	}
	others := groups[len(groups)-1].title
	root.SetCompletionCommandGroupID(others)
	help := newHelpCommand(root)
	help.GroupID = others
	root.SetHelpCommand(help)
	root.InitDefaultCompletionCmd()
	completion, _, err := root.Find([]string{"completion"})
	must(err)
	completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() } // Without it no argument is unknown.
	return root
}

// newHelpCommand is the help command of cobra, which would end well for a command
// that does not exist.
func newHelpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show the help of a command",
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
			var names []cobra.Completion
			for _, c := range root.Commands() {
				if c.IsAvailableCommand() {
					names = append(names, cobra.CompletionWithDesc(c.Name(), c.Short))
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			cmd, rest, err := root.Find(args)
			if err != nil || (cmd == root && len(rest) > 0) {
				return unknownCommand(root, args[0])
			}
			cmd.InitDefaultHelpFlag()
			return cmd.Help()
		},
	}
}
