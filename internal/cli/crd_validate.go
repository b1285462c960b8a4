package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"refract.dev/internal/offline/crd"
	"refract.dev/internal/offline/manifest"
)

// crdValidateOptions are the flags of crd validate.
type crdValidateOptions struct {
	inputs crdInputs
	old    []string
	output string
	failOn failOn
}

func newCRDValidateCommand(s *streams) *cobra.Command {
	o := &crdValidateOptions{}
	cmd := &cobra.Command{
		Use:   "validate --crd CRD -f FILE",
		Short: "Find what an API server would say to objects",
		Long: `Find what an API server would say to objects that are created: each is decoded and
defaulted by the schema of its own version, which finds unknown fields, and then
validated: its metadata, the schema, sets and maps, embedded objects, and the
schema's CEL rules. The paths and texts of errors are the API server's. An unknown
field is a warning: an API server drops it, or refuses it from a client that asks for
strict validation, as kubectl does.

With --old an object is judged as an update of the one there with the same kind,
namespace and name: what was wrong before and has not changed is tolerated, as an API
server does, and rules that compare with the old object are asked. An object that is
not there is judged as a create.

A status that has an endpoint of its own (the status subresource) is not judged, but
for unknown fields: as by an API server it is dropped from an object that is created,
and that of an old one stays as it was.

CustomResourceDefinitions among the files are passed over; so are documents of groups
that no --crd defines, with a note, but not a file of which there is nothing else. An
object that names no namespace is in the namespace default. The exit code is 1 if something was found,
with --fail-on error if an error was, and 2 if the input cannot be read or is of a
kind or version that is not defined.

With -o json there is one object, {"findings": [{"path", "message", "severity",
"rule", "kind", "namespace", "name", "file"}]}, in the order of the input, and of one
object by path; what an object does not have, such as a namespace, is left out.`,
		Example: `  refract crd validate --crd evolution/at/crd.yaml -f evolution/at/
  refract crd validate --crd evolution/at/crd.yaml -f evolution/at/garbage.yaml --fail-on error
  refract crd validate --crd evolution/pizza/2-two-versions.yaml -f evolution/pizza/objects.yaml --old evolution/pizza/objects.yaml
  refract crd validate --crd evolution/schemas/int-or-string.yaml -f evolution/schemas/int-or-string-objects.yaml -o json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run(s) },
	}
	o.inputs.addFlags(cmd)
	cmd.Flags().StringArrayVar(&o.old, "old", nil, "`file` or folder with objects as they were; may be repeated")
	must(cmd.MarkFlagFilename("old", "yaml", "yml", "json"))
	o.failOn.addFlag(cmd)
	reportOutputs.addFlag(cmd, &o.output)
	return cmd
}

func (o *crdValidateOptions) run(s *streams) error {
	write, err := reportOutputs.find(o.output)
	if err != nil {
		return err
	}
	if err := o.failOn.check(); err != nil {
		return err
	}
	if slices.Contains(o.inputs.inputs.files, manifest.Stdin) && slices.Contains(o.old, manifest.Stdin) {
		return bothStdin("-f and --old")
	}
	definitions, err := o.inputs.compile(s)
	if err != nil {
		return err
	}
	objects, err := customResources(o.inputs.inputs.files, definitions, s)
	if err != nil {
		return err
	}
	var old []crd.Object
	if len(o.old) > 0 {
		if old, err = customResources(o.old, definitions, s); err != nil {
			return err
		}
		for _, created := range crd.New(objects, old) {
			fmt.Fprintf(s.err, "note: %s: %s is not in --old, and judged as a create\n", created.Document.Place, created)
		}
	}
	report, problems := crd.Validate(objects, old)
	if len(problems) > 0 {
		return problemsAsError(problems)
	}
	if err := write(s, report); err != nil {
		return err
	}
	return o.failOn.judge(report)
}
