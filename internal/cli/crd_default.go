package cli

import (
	"github.com/spf13/cobra"

	"refract.dev/conversion/structural"
)

func newCRDDefaultCommand(s *streams) *cobra.Command {
	o := &transformOptions{do: (*structural.Version).Default}
	cmd := &cobra.Command{
		Use:   "default --crd CRD -f FILE",
		Short: "Set the defaults of an API server in objects",
		Long: `Set the defaults of the schema of each object's own version, as an API server does
after decoding: where a field is absent, or null and not nullable. A default inside an
absent object is not set.

The command removes nothing. An API server prunes first; for both, pipe crd prune into
this command.

The resulting objects go to stdout, as YAML for kubectl apply -f - or, with -o json,
as a List. With --explain there is a line on stderr for each path that was set, with
its value and the version of the default.

CustomResourceDefinitions among the files are ignored, and so are documents of groups
that no --crd defines, with a note; a file with only such documents is an error. The
exit code is 0 also for changed objects, 1 if an API server would not default an object,
which is then omitted, and 2 if the input is unreadable, or of a kind or version that is
not defined.`,
		Example: `  refract crd default --crd evolution/at/crd.yaml -f evolution/at/at.yaml --explain
  refract crd prune --crd evolution/at/crd.yaml -f evolution/at/garbage.yaml | refract crd default --crd evolution/at/crd.yaml -f -
  refract crd default --crd evolution/at/crd.yaml -f evolution/at/at.yaml -o json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run(s) },
	}
	o.addFlags(cmd)
	return cmd
}
