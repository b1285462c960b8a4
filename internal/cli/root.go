// Package cli is the command line. It has one file for each command. A command parses its flags, calls a package that
// does the work, and writes the result.
//
// Results are written to stdout, and all other messages to stderr. The exit code is 0 without findings, 1 for
// differences, violations and failed objects, and 2 if the command failed.
package cli

import (
	"context"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// groups are the commands by purpose, in the order of the help.
var groups = []struct {
	title    string
	commands []func(*streams) *cobra.Command
}{
	{"Preview and test changes:", []func(*streams) *cobra.Command{
		newRenderCommand, newExplainCommand, newDiffCommand, newSnapshotCommand, newInjectCommand, newLintCommand, newTestCommand,
	}},
	{"Install and run Refract:", []func(*streams) *cobra.Command{
		newInstallCommand, newUninstallCommand, newCheckCommand, newRunCommand, newDemoCommand, newUpCommand, newDownCommand,
	}},
	{"Manage clusters and objects:", []func(*streams) *cobra.Command{
		newJoinCommand, newUnjoinCommand, newUICommand, newGetCommand, newWaitCommand, newApproveCommand, newRolloutCommand,
	}},
	{"Custom resources:", []func(*streams) *cobra.Command{newCRDCommand}},
	{"Other commands:", []func(*streams) *cobra.Command{newVersionCommand, newDocsCommand}},
}

// pluginName is the name of the program as a plugin of kubectl. completionName is its name when kubectl completes the
// arguments of the plugin.
//
// Source: https://kubernetes.io/docs/tasks/extend-kubectl/kubectl-plugins/
const (
	pluginName     = "kubectl-refract"
	completionName = "kubectl_complete-refract"
)

// Main runs the command in args, and returns the exit code. The first element of args is the name of the program. When
// ctx ends, Main gives the command a short time to end, see [streams.within], and then abandons it. The caller must
// then end the process.
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
		Long: `Refract gives every member cluster its own variant of an object by
PropagationPolicies and OverridePolicies, and shows for each changed field the
policy and rule behind the change.

Exit codes: 0 for success; 1 for differences, violations or failed objects; 2 for
a command that failed.`,
		SilenceErrors:      true, // Main reports them.
		SilenceUsage:       true,
		DisableSuggestions: true, // Main adds hints instead.
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
	completion.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() } // Without RunE, cobra accepts unknown arguments without an error.
	return root
}

// newHelpCommand returns the help command. Unlike cobra's, it returns an error for an unknown command.
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
