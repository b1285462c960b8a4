package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"refract.dev/conversion/crd"
	"refract.dev/fleet/offline/manifest"
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
		Short: "Validate objects like an API server",
		Long: `Validate objects as an API server does at creation: each is decoded and defaulted by
the schema of its own version, which finds unknown fields, and then validated: its
metadata, the schema, sets and maps, embedded objects, and the schema's CEL rules. The
paths and texts of errors are the API server's. An unknown field is a warning: an API
server drops it, or rejects it for clients with strict validation, such as kubectl.

With --old an object is validated as an update of the object there with the same kind,
namespace and name: earlier errors in unchanged values are tolerated, as by an API
server, and rules that compare with the old object apply. An object that is not there is
validated as a create.

A status with an endpoint of its own (the status subresource) is checked only for
unknown fields: like an API server, the command drops it from a new object, and keeps
the status of an old object.

CustomResourceDefinitions among the files are ignored, and so are documents of groups
that no --crd defines, with a note; a file with only such documents is an error. An
object without a namespace is in the namespace default. The exit code is 1 for findings,
with --fail-on error only for errors, and 2 if the input is unreadable, or of a kind or
version that is not defined.

With -o json there is one object, {"findings": [{"path", "message", "severity",
"rule", "kind", "namespace", "name", "file"}]}, in the order of the input, and for one
object by path; fields that an object lacks, such as a namespace, are omitted.`,
		Example: `  refract crd validate --crd evolution/at/crd.yaml -f evolution/at/
  refract crd validate --crd evolution/at/crd.yaml -f evolution/at/garbage.yaml --fail-on error
  refract crd validate --crd evolution/pizza/2-two-versions.yaml -f evolution/pizza/objects.yaml --old evolution/pizza/objects.yaml
  refract crd validate --crd evolution/schemas/int-or-string.yaml -f evolution/schemas/int-or-string-objects.yaml -o json`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return o.run(s) },
	}
	o.inputs.addFlags(cmd)
	cmd.Flags().StringArrayVar(&o.old, "old", nil, "`file` or folder with the previous objects; may be repeated")
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
			fmt.Fprintf(s.err, "note: %s: %s is not in --old, and is validated as a create\n", created.Document.Place, created)
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
