package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"refract.dev/conversion/crd"
	"refract.dev/conversion/structural"
	"refract.dev/internal/output"
)

func newCRDPruneCommand(s *streams) *cobra.Command {
	o := &transformOptions{do: (*structural.Version).Prune}
	cmd := &cobra.Command{
		Use:   "prune --crd CRD -f FILE",
		Short: "Remove the fields that an API server prunes",
		Long: `Remove the fields that an API server removes when it decodes objects, by the schema of
each object's own version: fields outside the schema, unless it preserves them; unknown
fields of the metadata; and nulls where the schema allows none and has no default.
The command sets no defaults: crd default does.

The resulting objects go to stdout, as YAML for kubectl apply -f - or, with -o json,
as a List. With --explain there is a line on stderr for each path that was removed,
with its value and the version of the schema.

CustomResourceDefinitions among the files are ignored, and so are documents of groups
that no --crd defines, with a note; a file with only such documents is an error. The
exit code is 0 also for changed objects, 1 if an API server would not decode an object,
which is then omitted, and 2 if the input is unreadable, or of a kind or version that is
not defined.`,
		Example: `  refract crd prune --crd evolution/at/crd.yaml -f evolution/at/garbage.yaml --explain
  refract crd prune --crd evolution/at/crd.yaml -f evolution/at/garbage.yaml | kubectl apply -f -
  refract crd prune --crd evolution/schemas/preserve-unknown.yaml -f evolution/schemas/preserve-unknown-object.yaml -o json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run(s) },
	}
	o.addFlags(cmd)
	return cmd
}

// transformOptions are the flags of commands that change objects as an API server does, and print them.
type transformOptions struct {
	inputs  crdInputs
	output  string
	explain bool
	do      func(*structural.Version, map[string]any) (*structural.Result, error)
}

func (o *transformOptions) addFlags(cmd *cobra.Command) {
	o.inputs.addFlags(cmd)
	transformOutputs.addFlag(cmd, &o.output)
	cmd.Flags().BoolVar(&o.explain, "explain", false, "list each changed path on stderr")
}

// transformOutputs are the formats of objects.
var transformOutputs = formats[*crd.Transformed]{
	{"yaml", func(s *streams, t *crd.Transformed) error { return t.WriteYAML(s.out) }},
	{"json", func(s *streams, t *crd.Transformed) error { return t.WriteJSON(s.out) }},
}

func (o *transformOptions) run(s *streams) error {
	write, err := transformOutputs.find(o.output)
	if err != nil {
		return err
	}
	objects, err := o.inputs.read(s)
	if err != nil {
		return err
	}
	result := crd.Transform(objects, o.do)
	if o.explain {
		for _, line := range result.Lines {
			fmt.Fprintln(s.err, line)
		}
		fmt.Fprintf(s.err, "%s in %s\n", output.Count(len(result.Lines), "change", "changes"), output.Count(len(objects), "object", "objects"))
	}
	if len(result.Refused) > 0 {
		report(s.err, problemsAsError(result.Refused))
	}
	if err := write(s, result); err != nil {
		return err
	}
	if len(result.Refused) > 0 {
		return errFound
	}
	return nil
}
