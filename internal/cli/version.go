package cli

import "github.com/spf13/cobra"

func newVersionCommand(*streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version",
		Args:  noArgs,
		RunE:  func(*cobra.Command, []string) error { return nil },
	}
}
