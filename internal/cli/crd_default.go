package cli

import (
	"github.com/spf13/cobra"

	"refract.dev/structural"
)

func newCRDDefaultCommand(s *streams) *cobra.Command {
	o := &transformOptions{do: (*structural.Version).Default}
	cmd := &cobra.Command{
		Use:   "default --crd CRD -f FILE",
		Short: "Set in objects the defaults that an API server sets",
		Long: `Set in objects the defaults of the schema of each object's own version, as an API
server does after decoding: where a field is absent, or null and must not be. A
default inside an object that is absent itself is not set.

Nothing is dropped. An API server prunes first; to have both, pipe crd prune into
this command.

The resulting objects go to stdout, as YAML for kubectl apply -f - or, with -o json,
as a List. With --explain there is a line on stderr for each path that was set, with
its value and the version whose default it is.

CustomResourceDefinitions among the files are passed over; so are documents of groups
that no --crd defines, with a note, but not a file of which there is nothing else. That
something was set is no failure: the exit code is 0. It is 1 if an API server would not default an object,
which is then left out, and 2 if the input cannot be read or is of a kind or version
that is not defined.`,
		Example: `  refract crd default --crd evolution/at/crd.yaml -f evolution/at/at.yaml --explain
  refract crd prune --crd evolution/at/crd.yaml -f evolution/at/garbage.yaml | refract crd default --crd evolution/at/crd.yaml -f -
  refract crd default --crd evolution/at/crd.yaml -f evolution/at/at.yaml -o json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run(s) },
	}
	o.addFlags(cmd)
	return cmd
}
